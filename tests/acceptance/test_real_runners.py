"""The real claude-code and codex do turns of three tools, against a scripted model: no network beyond us.

`make clis` installs them. A program that is not there is skipped, and the skip says so. `make runners` tries more: both
of them in both ways, killed at all points, stopped, and waiting for an approval.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from switchboard.journey.approving import ApprovalDecision, decide
from switchboard.lanes.faults import Point
from switchboard.llm.build import Sessions
from switchboard.llm.port import CliKind
from switchboard.ports.engine import Answer, Delta
from switchboard.store.work import approvals
from switchboard.testing.engines import MemoryJournal, a_turn
from switchboard.testing.scripted_llm import Call, Hang, Reply, Request, ScriptedLlm
from tests.acceptance.runner_node import team
from tests.acceptance.test_real_clis import HARMLESS, calling
from tests.asking import request, spec
from tests.forked import Forks
from tests.hands import assert_balanced
from tests.lab import Lab, lab, rule, submission
from tests.programs import real_kinds, search_path
from tests.routing_server import TOKEN, routing_server
from tests.running import living
from tests.turning import OWNER, Noting, a_model_engine
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

WIDE: Final = os.environ.get("RUNNERS") == "all"
CALLS: Final = ("look", "pay", "look")
MINE: Final = {"owners": OWNER, "own": CALLS}
OWN: Final[Mapping[CliKind, tuple[Call, ...]]] = {
    "claude-code": (
        Call("Bash", {"command": "touch owned", "description": "d"}, exact=True),
        Call("Write", {"file_path": "owned", "content": "x"}, exact=True),
        Call("WebSearch", {"query": "owned"}, exact=True),
        Call("WebFetch", {"url": "http://127.0.0.1:9", "prompt": "x"}, exact=True),
    ),
    "codex": (
        Call("shell", {"command": ["touch", "owned"]}, exact=True),
        Call("exec_command", {"cmd": "touch owned"}, exact=True),
        Call("apply_patch", {"input": "*** Begin Patch\n*** Add File: owned\n+x\n*** End Patch"}, exact=True),
        Call("web_search", {"query": "owned"}, exact=True),
    ),
}
"""What the programs have themselves, and must not use."""


@pytest.fixture(autouse=True)
def _programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Runs look for programs on PATH, and have their directories in one of ours; no process may be left."""
    monkeypatch.setenv("PATH", search_path())
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    yield
    assert living(tmp_path) == []


def one_of(*cases: tuple[CliKind, Any]) -> list[Any]:
    """Each kind with what follows it, or all kinds with all of it."""
    wanted = [(kind, more) for kind in OWN for _, more in cases] if WIDE else cases
    return [param for kind, more in dict.fromkeys(wanted) for param in _with(kind, more)]


def _with(kind: CliKind, more: Any) -> list[Any]:
    return [pytest.param(kind, more, marks=param.marks) for param in real_kinds([kind])]


def results(request: Request) -> int:
    return sum(said.role == "tool" for said in request.messages)


def brain(request: Request) -> Reply:
    """Three calls, and then the answer."""
    n = results(request)
    return Reply(f"Step {n}.", (Call(CALLS[n], {"who": "x"}),)) if n < len(CALLS) else Reply("All is done.")


# One turn -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "login"), one_of(("claude-code", True), ("codex", False)))
async def test_it_answers_with_our_tools_and_without_its_own(
    kind: CliKind, login: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a login, nothing else of the user's directory has a say: no instructions, hook, skill, or MCP server."""
    monkeypatch.setenv("HOME", str(a_home(tmp_path / "home")))
    own = OWN[kind]

    def tempted(request: Request) -> Reply:
        n = results(request)
        if n == 0:
            return Reply("Let me see.", own)
        n -= len(own)
        return Reply("", (Call(CALLS[n], {"text": "x"}),)) if n < len(CALLS) else Reply("All is done.")

    look, pay, deltas = Noting("look"), Noting("pay", "effectful"), list[Delta]()
    async with (
        ScriptedLlm(tempted) as llm,
        a_model_engine(llm, [look, pay], specs=[spec(kind, llm.url, "m", login=login)]) as (engine, _),
    ):
        turn = replace(a_turn({**MINE, "models": ["m"], "prompt": "Be brief."}), on_delta=deltas.append)
        result = await engine.run(turn, MemoryJournal())
        said = [one.text for one in llm.requests[1].messages if one.role == "tool"]
        offered = {tool.removeprefix("mcp__switchboard").strip("_:") for one in llm.requests for tool in one.tools}
        kinds = {tool.get("type", "custom") for one in llm.requests for tool in one.body.get("tools", ())}
        bodies = json.dumps([dict(one.body) for one in llm.requests])
    assert isinstance(result, Answer)
    assert (result.text, result.stop_reason) == ("All is done.", "end")
    assert (len(look.calls), len(pay.calls)) == (2, 1)
    assert [call.name for call in result.entries[1].calls] == list(CALLS)
    assert result.usage[0].input_tokens > 0
    assert (result.usage[0].cost_usd is None) == (login or kind == "codex"), "nothing is paid with a login"
    told = ""
    for delta in deltas:
        told = told[: delta.offset] + delta.text
    assert told == "All is done."
    assert len(said) == len(own)
    assert all(_refuses(text) for text in said), said
    assert offered <= {"look", "pay", *HARMLESS}
    assert kinds <= {"custom", "function", "namespace"}, "none that the provider carries out"
    assert "Be brief." in bodies
    assert "MARK" not in bodies
    assert not was_owned(tmp_path)


def was_owned(place: Path) -> bool:
    """Whether any of what must not run has run."""
    return list(place.rglob("owned")) != []


def a_home(home: Path) -> Path:
    """The directory of a user who is logged in to both, and has told both a lot besides."""
    touch = {"command": "touch", "args": [f"{home}/owned"]}
    tomorrow = round((time.time() + 86400) * 1000)
    login = {"accessToken": "sk-ant-oat01-x", "scopes": ["user:inference"], "expiresAt": tomorrow}
    hooks = {"SessionStart": [{"hooks": [{"type": "command", "command": f"touch {home}/owned"}]}]}
    skill = "---\nname: mark\ndescription: MARK\n---\nMARK"
    files = {
        ".claude/.credentials.json": json.dumps({"claudeAiOauth": login}),
        ".claude/CLAUDE.md": "MARK",
        ".claude/settings.json": json.dumps({"hooks": hooks, "permissions": {"allow": ["Bash"]}}),
        ".claude/skills/mark/SKILL.md": skill,
        ".claude.json": json.dumps({"mcpServers": {"other": touch}}),
        ".codex/auth.json": json.dumps({"OPENAI_API_KEY": "sk-x"}),
        ".codex/AGENTS.md": "MARK",
        ".codex/config.toml": f'developer_instructions = "MARK"\n[mcp_servers.other]\ncommand = "touch"\n'
        f'args = ["{home}/owned"]\n',
        ".codex/skills/mark/SKILL.md": skill,
    }
    for name, text in files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    return home


def _refuses(text: str) -> bool:
    words = ("no such tool", "unsupported", "not available", "not enabled", "not found", "unknown tool")
    return any(word in text.lower() for word in words)


# Killed ---------------------------------------------------------------------------------------------------------------

POINTS: Final[list[tuple[CliKind, tuple[Point, str]]]] = [
    ("codex", ("before_journal", "tool:pay")),
    ("codex", ("between_steps", "tool:pay")),
]
"""In the middle of the call that pays, whose outcome is not known then; and after it. Codex starts at a third of the
cost of claude-code."""
MORE: Final[list[tuple[CliKind, tuple[Point, str]]]] = [
    ("codex", ("before_step", "run")),
    ("codex", ("before_step", "tool:pay")),
    ("codex", ("between_steps", "tool:look")),
    ("codex", ("before_journal", "run")),
    ("codex", ("before_complete", "")),
]


@asynccontextmanager
async def a_message(database_url: str, *approve: str) -> AsyncIterator[Lab]:
    """One for the butler."""
    async with lab(database_url, [team(*approve)], [rule("System1/clerk")]) as parts:
        await parts.accept.accept(submission("pay", channel="api", sender="x", event="e"))
        yield parts


@pytest.mark.parametrize(("kind", "at"), one_of(*POINTS, *(MORE if WIDE else ())))
async def test_killed_in_the_middle_it_pays_once_answers_once_and_leaves_nothing(
    kind: CliKind, at: tuple[Point, str], database_url: str, tmp_path: Path, forks: Forks
) -> None:
    async with a_message(database_url) as parts, ScriptedLlm(brain) as llm:
        words = (database_url, llm.url, str(tmp_path), kind)
        assert await live(forks, tmp_path, words, f"{at[0]}:1:{at[1]}") == -signal.SIGKILL
        await eventually(lambda: _nothing_lives(tmp_path))
        assert await live(forks, tmp_path, words) == 0
        assert list((tmp_path / "scratch").iterdir()) == [], "a key may be in it"
        rows = await parts.database.rows("select text from outbox")
        assert [row["text"] for row in rows] == ["All is done."]
        calls = [line.split()[0] for line in (tmp_path / "trace").read_text().splitlines()]
        assert calls.count("pay") <= 1
        assert calls.count("pay") == 1 or at == ("before_step", "tool:pay"), "whether it was begun is not known"
        assert calls.count("look") <= CALLS.count("look") + 1, "what changes nothing may be repeated"
        told = "\n".join(said.text for said in llm.requests[-1].messages)
        if at[1] == "tool:pay":
            known = at[0] == "between_steps"
            assert ("[from the record of an earlier run" in told, "outcome unknown" in told) == (True, not known)
        assert await parts.count("select count(*) from dead_letter") == 0
        await assert_balanced(parts)


async def live(forks: Forks, place: Path, words: tuple[str, ...], crash_at: str = "") -> int:
    """A worker, until it has ended."""
    env = os.environ | {"SWITCHBOARD_CRASH_AT": crash_at}
    process = forks.start("tests.acceptance.runner_node", *words, env=env, errors=place / "errors")
    try:
        code = await process.wait()
    finally:
        process.kill()
    assert code in (0, -signal.SIGKILL), (place / "errors").read_text()[-3000:]
    return code


async def _nothing_lives(place: Path) -> bool:
    return living(place) == []


# More of both ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", real_kinds(list(OWN)))
async def test_killed_twice_at_any_time_it_pays_once(
    kind: CliKind, seed: int, database_url: str, tmp_path: Path, forks: Forks
) -> None:
    chance = random.Random(seed)
    async with a_message(database_url) as parts, ScriptedLlm(brain) as llm:
        words = (database_url, llm.url, str(tmp_path), kind)
        for _ in range(2):
            await live_for(chance.random(), forks, tmp_path, words, llm)
        assert await live(forks, tmp_path, words) == 0
        assert await parts.count("select count(*) from outbox where text = 'All is done.'") == 1
        paid = (tmp_path / "trace").read_text().count("pay ")
        unknown = any("outcome unknown" in said.text for one in llm.requests for said in one.messages)
        assert paid == 1 or (paid == 0 and unknown)
        assert list((tmp_path / "scratch").iterdir()) == []
        await assert_balanced(parts)


async def live_for(seconds: float, forks: Forks, place: Path, words: tuple[str, ...], llm: ScriptedLlm) -> None:
    """A worker that is killed so long after its program has asked its model, or has ended before."""
    before = len(llm.requests)
    process = forks.start("tests.acceptance.runner_node", *words, env=os.environ, errors=place / "errors")

    async def has_asked() -> bool:
        return len(llm.requests) > before or process.returncode is not None

    try:
        await eventually(has_asked, within=60)
        await asyncio.sleep(seconds)  # no condition is waited for: any moment will do
    finally:
        process.kill()
    await process.wait()
    await eventually(lambda: _nothing_lives(place))


@pytest.mark.parametrize("kind", real_kinds(list(OWN)))
async def test_it_waits_for_an_approval(kind: CliKind, database_url: str, tmp_path: Path, forks: Forks) -> None:
    def patient(request: Request) -> Reply:
        waits = any(said.text.startswith("pending") or "pending: end now" in said.text for said in request.messages)
        return Reply("I wait.") if waits else brain(request)

    async with a_message(database_url, "pay") as parts, ScriptedLlm(patient) as llm:
        words = (database_url, llm.url, str(tmp_path), kind, "pay")
        assert await live(forks, tmp_path, words) == 0
        [asked] = await approvals.list_approvals(parts.database, "pending", None, 9)
        await decide(parts.database, parts.notifier, asked, ApprovalDecision("approved", "a test"))
        assert await live(forks, tmp_path, words, "before_journal:1:run:2") == -signal.SIGKILL
        assert await live(forks, tmp_path, words) == 0
        rows = await parts.database.rows("select text from outbox where system_id <> 'switchboard'")
        assert [row["text"] for row in rows] == ["All is done."]
        calls = [line.split()[0] for line in (tmp_path / "trace").read_text().splitlines()]
        assert sorted(calls) == ["look", "look", "pay"]


@pytest.mark.parametrize("kind", real_kinds(list(OWN)))
async def test_it_classifies_with_a_login(kind: CliKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(a_home(tmp_path / "home")))
    async with ScriptedLlm(calling("health")) as llm, routing_server(("health", "finance")) as server:
        sessions = Sessions([spec(kind, llm.url, login=True)])
        try:
            await sessions.models[0][1].run(request(token=TOKEN, mcp_url=server.url, deadline=90.0))
        finally:
            await sessions.aclose()
        assert len(server.calls) == 1
        assert "MARK" not in json.dumps([dict(one.body) for one in llm.requests])
    assert not was_owned(tmp_path)


@pytest.mark.parametrize("kind", real_kinds(list(OWN)))
async def test_it_is_stopped(kind: CliKind, tmp_path: Path) -> None:
    stop, deltas = asyncio.Event(), list[Delta]()

    def hangs(request: Request) -> Reply:
        said = Reply("This is what I have written so far, and then", (Call("look", {"text": "x"}),))
        return said if results(request) == 0 else Reply("Never.", fault=Hang())

    async with (
        ScriptedLlm(hangs) as llm,
        a_model_engine(llm, [Noting("look")], specs=[spec(kind, llm.url, "m")]) as (engine, _),
    ):
        turn = replace(a_turn({**MINE, "models": ["m"]}), stop=stop, on_delta=deltas.append)
        running = asyncio.create_task(engine.run(turn, MemoryJournal()))
        await llm.waiting("hang")
        stop.set()
        result = await running
        assert living(tmp_path) == []
        await llm.settled()
    assert isinstance(result, Answer)
    assert result.stop_reason == "aborted"
    assert [call.name for call in result.entries[1].calls] == ["look"]


if not WIDE:  # `make acceptance` should not tell of 16 tests that it has skipped
    del test_killed_twice_at_any_time_it_pays_once, test_it_waits_for_an_approval
    del test_it_classifies_with_a_login, test_it_is_stopped
