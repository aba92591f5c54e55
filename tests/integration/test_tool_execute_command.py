"""The tool `execute_command`, called as a turn calls it, and in turns of the engine `model`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import pytest_asyncio

from switchboard.ports.engine import Answer
from switchboard.ports.sandbox import SandboxRules
from switchboard.sandbox.run import Sandbox
from switchboard.testing.engines import MemoryJournal, a_turn
from switchboard.testing.scripted_llm import Call, Reply, ScriptedLlm
from switchboard.tools.bash import Bash
from switchboard.tools.calls import CallLimits, call_tool
from switchboard.tools.execute_command import MOST_SHOWN
from switchboard.tools.registry import build_tools
from tests.tools import TOOLS, called, outcome_of, scope_of
from tests.turning import OWNER, a_model_engine


@pytest_asyncio.fixture(autouse=True)
async def _sandboxed() -> None:
    if lacking := await Sandbox(SandboxRules()).lacking():
        pytest.skip(lacking)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("echo hello | tr a-z A-Z", "exit code 0\nHELLO"),
        ("true", "exit code 0"),
        ("echo out; echo err >&2; echo out; exit 7", "exit code 7\nout\nerr\nout"),
        ("printf 'a\\033]0;x\\007b\\342\\200\\256c\\r'", "exit code 0\na\\x1b]0;x\\x07b\\u202ec\\r"),
        ("printf '\\377'", "exit code 0\n\ufffd"),
        ("kill -9 $$", "exit code 137"),
        ("cat; echo over", "exit code 0\nover"),
        ("echo a\x00b", "the command was not run: it cannot contain NUL or half a character"),
        ("echo \ud800", "the command was not run: it cannot contain NUL or half a character"),
    ],
)
async def test_what_a_model_is_told(tmp_path: Path, command: str, told: str) -> None:
    outcome = await called(tmp_path, "execute_command", command=command)
    assert outcome.text == told
    assert outcome.ok is told.startswith("exit code 0")


async def test_files_are_those_of_the_other_tools(tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    await called(workspace, "write_file", path="a.txt", content="b\na\n")
    assert (await called(workspace, "execute_command", command="sort a.txt >b.txt")).ok
    assert (await called(workspace, "read_file", path="b.txt")).text == "a\nb"
    await called(workspace, "execute_command", command="ln -s /etc/passwd link; mkfifo pipe")
    for name in ("link", "pipe"):
        assert not (await called(workspace, "read_file", path=name)).ok


async def test_of_much_output_the_head_and_the_tail_are_shown(tmp_path: Path) -> None:
    outcome = await called(tmp_path / "w", "execute_command", command="seq 1 20000")
    assert (outcome.text[:14], outcome.text[-6:]) == ("exit code 0\n1\n", "\n20000")
    assert len(outcome.text) == MOST_SHOWN
    assert "in the file tool-results/" in outcome.text
    assert (await called(tmp_path / "w", "execute_command", command="seq 1 5000")).text.endswith("\n5000")


async def test_output_without_end_is_ended(tmp_path: Path) -> None:
    outcome = await called(tmp_path, "execute_command", command="yes")
    assert outcome.text.startswith("the command was killed: it wrote more than 8388608 bytes\ny\n")


async def test_a_command_that_does_not_end_is_stopped(tmp_path: Path) -> None:
    tool = TOOLS["execute_command"]
    stopped = "execute_command was stopped after 1 s: it had not ended; whether it had an effect is not known\n"
    outcome = await outcome_of(tool, tmp_path, CallLimits(1), command="sleep 7142")
    assert outcome.text == f"{stopped}it had written nothing"
    outcome = await outcome_of(tool, tmp_path, CallLimits(1), command="echo half; echo done >&2; sleep 7142")
    assert outcome.text == f"{stopped}its output until then:\nhalf\ndone"
    assert (outcome.ok, outcome.passing) == (False, True)


async def test_commands_at_the_same_time_do_not_meet(tmp_path: Path) -> None:
    commands = [f"echo {n} >/tmp/x; cat /tmp/x; ps ax | grep -c [s]h" for n in range(3)]
    told = await asyncio.gather(*(called(tmp_path, "execute_command", command=command) for command in commands))
    assert [one.text.split("\n")[1] for one in told] == ["0", "1", "2"]


async def test_a_turn_of_an_owner_runs_commands_and_that_of_another_does_not(tmp_path: Path) -> None:
    replies = [
        Reply(calls=(Call("execute_command", {"command": "echo heron >f; cat f"}),)),
        Reply(text="A heron."),
        Reply(text="So."),
    ]
    async with ScriptedLlm(replies) as llm, a_model_engine(llm, build_tools(), workspaces=tmp_path) as (engine, _):
        result = await engine.run(a_turn({"owners": OWNER}), MemoryJournal())
        offered = llm.requests[0].tools
        await engine.run(a_turn({}), MemoryJournal())
        others = llm.requests[-1].tools
    assert isinstance(result, Answer)
    assert result.entries[1].calls[0].result == "exit code 0\nheron"
    assert "execute_command" in offered
    assert "execute_command" not in others


async def test_no_model_is_told_of_it_where_there_is_no_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}")
    replies = [Reply(text="So.")]
    async with ScriptedLlm(replies) as llm, a_model_engine(llm, build_tools(), workspaces=tmp_path) as (engine, _):
        await engine.run(a_turn({"owners": OWNER}), MemoryJournal())
        offered = llm.requests[0].tools
    assert offered[3:5] == ("search_files", "web_fetch")


_NESTED = "for n in $(seq {depth}); do mkdir {name} && cd {name} || exit; done"


@pytest.mark.parametrize(
    ("depth", "name", "excess"),
    [
        (64, "a", None),
        (65, "a", "more than 64 directories inside each other"),
        (3000, "a", "more than 64 directories inside each other"),
        (10, "n" * 220, "paths of more than 2048 bytes"),
    ],
)
async def test_too_deep_directories_are_refused_to_their_maker_and_removable(
    tmp_path: Path, depth: int, name: str, excess: str | None
) -> None:
    shell = Bash(Sandbox(SandboxRules()))
    for tool in (TOOLS["execute_command"], shell):
        made = await outcome_of(tool, tmp_path, command=_NESTED.format(depth=depth, name=name))
        assert made.ok is (excess is None)
        assert excess is None or f"not permitted: the workspace had {excess}" in made.text
        more = await outcome_of(tool, tmp_path, command="echo on")
        assert more.ok  # it is not to blame
        assert "not permitted" not in more.text
        removed = await outcome_of(tool, tmp_path, command=f"cd /workspace; rm -r {name[0]}*; sleep 3; ls")
        assert (removed.ok, removed.text.splitlines()[-1][:11]) == (True, "exit code 0")
    await shell.close()


async def test_what_is_too_deep_counts_for_the_quota(tmp_path: Path) -> None:
    fill = "; head -c 3M /dev/zero >f"
    await called(tmp_path, "execute_command", command=_NESTED.format(depth=100, name="a") + fill)
    scope = scope_of(tmp_path, quota=2 * 1024**2)
    refused = await call_tool(TOOLS["write_file"], {"path": "x", "content": "x"}, scope)
    assert "the workspace is full" in refused.text
