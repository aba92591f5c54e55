"""The tool `bash`: a shell of a conversation, called as a turn calls it, and in a turn of the engine `model`."""

from __future__ import annotations

import asyncio
import os
import select
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from msgspec.structs import replace

from switchboard.app.runtime import Runtime
from switchboard.app.settings import Settings
from switchboard.app.wiring import make_worker, open_runtime, open_switchboard
from switchboard.ports.engine import Answer
from switchboard.ports.sandbox import SandboxRules
from switchboard.ports.tools import QUOTA, Kept, ToolOutcome
from switchboard.sandbox.run import Sandbox
from switchboard.sandbox.session import start_session
from switchboard.testing.engines import MemoryJournal, a_turn
from switchboard.testing.scripted_llm import Call, Reply, ScriptedLlm
from switchboard.tools.bash import Bash
from switchboard.tools.calls import CallLimits, call_tool
from switchboard.tools.registry import build_tools
from tests.hands import at_work
from tests.lab import submission
from tests.mcp_servers import begun, running
from tests.tools import scope_of
from tests.turning import OWNER, a_model_engine
from tests.waiting import SOON, eventually

NEW = "a new session: nothing is set that was set before\n"
MIB = 1024**2


@pytest_asyncio.fixture
async def shell(tmp_path: Path) -> AsyncIterator[Shell]:
    one = Shell(Bash(Sandbox(SandboxRules()), patience=0.5), tmp_path / "w")
    if lacking := await one.tool.lacking():
        pytest.skip(lacking)
    yield one
    await one.tool.close()


class Shell:
    """The tool, in a workspace."""

    def __init__(self, tool: Bash, workspace: Path) -> None:
        self.tool = tool
        self.workspace = workspace

    async def __call__(self, command: str, conversation: str = "one", timeout: float = 60) -> ToolOutcome:
        scope = scope_of(self.workspace, conversation=conversation)
        return await call_tool(self.tool, {"command": command}, scope, CallLimits(timeout))

    async def told(self, command: str, conversation: str = "one") -> str:
        return (await self(command, conversation)).text


async def test_a_session_keeps_what_was_set(shell: Shell) -> None:
    assert await shell.told('mkdir d; cd d; x=5; f() { echo "f $x"; }') == f"{NEW}exit code 0, in /workspace/d"
    assert await shell.told("f; pwd") == "exit code 0, in /workspace/d\nf 5\n/workspace/d"
    assert await shell.told("false") == "exit code 1, in /workspace/d"
    assert await shell.told("echo $?") == "exit code 0, in /workspace/d\n1"
    assert await shell.told("export X=heron; sh -c 'echo $X; exit 3'") == "exit code 3, in /workspace/d\nheron"
    assert await shell.told("f", "two") == f"{NEW}exit code 127, in /workspace\nbash: f: command not found"
    await shell.tool.close()
    assert (await shell.told("cd d && f")).startswith(f"{NEW}exit code 127, in /workspace/d\n")


async def test_other_readers_of_the_conversation_have_another_shell(shell: Shell) -> None:
    kept: list[int | None] = [None]

    async def told(command: str, readers: str, worker: int = 1) -> str:
        async def keeps(_: float) -> Kept:
            kept.append(worker)
            return Kept(kept[-2], worker)

        scope = scope_of(shell.workspace, conversation="one", readers=readers)
        return (await call_tool(shell.tool, {"command": command}, replace(scope, keeps=keeps))).text

    assert (await told("x=heron; cd /tmp", "alice")).startswith(NEW)
    assert await told('echo "<$x>"; history | grep -c [h]eron', "group") == f"{NEW}exit code 1, in /workspace\n<>\n0"
    assert await told('echo "<$x>"', "alice") == "exit code 0, in /tmp\n<heron>"
    kept.append(2)  # another worker had the conversation
    assert (await told("true", "group")).startswith(NEW)
    assert (await told("true", "alice")).startswith(NEW)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("echo out; echo err >&2; echo out; (exit 7)", "exit code 7, in /workspace\nout\nerr\nout"),
        ("cat <<E\none\ntwo\nE", "exit code 0, in /workspace\none\ntwo"),
        ("if", "exit code 2, in /workspace\nbash: syntax error: unexpected end of file"),
        (
            "printf 'a\\033]0;x\\007\\036x\\0370\\037/\\036\\n'",
            "exit code 0, in /workspace\na\\x1b]0;x\\x07\\x1ex\\x1f0\\x1f/\\x1e",
        ),
        ("echo !!; [ -t 0 ] && [ -t 1 ] && echo a terminal", "exit code 0, in /workspace\n!!\na terminal"),
        ("echo " + "x" * 30_000 + " | wc -c", "exit code 0, in /workspace\n30001"),
        ("stty sane; stty raw; exec 3<&-", "exit code 0, in /workspace"),
        ("PROMPT_COMMAND=no", "exit code 1, in /workspace\nbash: PROMPT_COMMAND: readonly variable"),
        ("mkdir $'a\\nb'; cd $'a\\nb'", "exit code 0, in $'/workspace/a\\nb'"),
        ("echo a\x00b", "the command was not run: it cannot contain NUL or half a character"),
    ],
)
async def test_what_a_model_is_told(shell: Shell, command: str, told: str) -> None:
    outcome = await shell(command)
    assert outcome.text.removeprefix(NEW) == told
    assert outcome.ok is ("exit code 0" in told)
    assert (await shell.told("echo on")).endswith("\non")


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("sleep 7143", "it had written nothing"),
        ("echo one; echo two; while :; do :; done", "its output until then:\none\ntwo"),
        ("printf 'working '; sleep 7143", "its output until then:\nworking "),
        ("cat", "it waits for input\nit had written nothing"),
        ("echo one; read -p 'Sure? '", "it waits for input: Sure?\nits output until then:\none\nSure? "),
        ("python3 -c 'input(\"Name: \")'", "it waits for input: Name:\nits output until then:\nName: "),
        (
            "python3 -c 'import getpass; getpass.getpass()'",
            "it waits for input: Password:\nits output until then:\nPassword: ",
        ),
        (
            "printf 'Go? '; python3 -c 'import select; select.select([0], [], [])'",
            "it may wait for input: Go?\nits output until then:\nGo? ",
        ),
    ],
)
async def test_the_output_of_a_command_that_hangs_is_told_and_its_session_lives(
    shell: Shell, command: str, told: str
) -> None:
    await shell("x=heron")
    late = await shell(command, timeout=1)
    stopped = "bash was stopped after 1 s: it had not ended; whether it had an effect is not known"
    assert late.text.rstrip() == f"{stopped}\n{told}".rstrip()
    assert (late.ok, late.passing) == (False, True)
    assert await shell.told("echo $x") == "exit code 0, in /workspace\nheron"


async def test_a_command_that_was_interrupted_before_it_began_is_not_run_later(shell: Shell) -> None:
    sandbox = Sandbox(SandboxRules())
    session = await start_session(sandbox, shell.workspace, QUOTA)
    for _ in range(5):
        running = asyncio.ensure_future(session.run("echo stale"))
        await asyncio.sleep(0)
        running.cancel()
        await session.interrupt()
        said = await session.run("echo fresh")
        assert said.output == b"fresh\n"
    await session.close()


async def test_of_a_shell_that_has_just_been_killed_a_command_hears_so(shell: Shell) -> None:
    """Nobody knows of its end yet."""
    session = await start_session(Sandbox(SandboxRules()), shell.workspace, QUOTA)
    await session.run("sleep 7145.5 &")
    await begun("7145.5")
    _kill_all_inside(running(["7145.5"])[0])
    said = await session.run("echo lost")
    assert (said.output, said.report) == (b"", None)
    await session.close()


async def test_a_shell_that_has_closed_its_pipe_of_commands_ends(shell: Shell) -> None:
    """Bash keeps it at a high number while a command runs."""
    told = await shell.told('for n in {4..99}; do eval "exec $n<&-"; done')
    assert told.startswith(f"{NEW}the session has ended; the next command begins a new one")
    assert await shell.told("echo on") == f"{NEW}exit code 0, in /workspace\non"


def _kill_all_inside(pid: int) -> None:
    """What is in the sandbox of this process; return when its first process has ended, and let nobody hear of it."""
    while _status(pid)["NSpid"].split()[-1] != "1":
        pid = int(_status(pid)["PPid"])
    process = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    select.select([process], [], [])
    os.close(process)


def _status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


async def test_late_output_of_an_interrupted_shell_is_not_the_next_commands(shell: Shell) -> None:
    """Ctrl-C comes while nothing runs any more, so the shell reports twice."""
    session = await start_session(Sandbox(SandboxRules()), shell.workspace, QUOTA)
    for n in range(20):
        await session.run(f"(exit {n})")
        interrupted = await session.interrupt()
        assert interrupted.report is not None
        said = await session.run(f"echo {n}; (exit {n})")
        assert (said.output, said.report and said.report.status) == (f"{n}\n".encode(), n)
    await session.close()


FORGED = r"printf '\036%s\0370\036' "
_ALIAS = r"""__hook() { [[ $__due ]] && return; [[ $O ]] && exec 3<&5; O=1; exec 5<&3
IFS= read -r -d '' -u 3 c; IFS= read -r -d '' -u 3 m; exec 3< <(printf '%s:echo evil\0%s\0' "${c%%:*}" "$m"); }
alias {='{ __hook; } 2>/dev/null; {'"""
HOSTILE = [
    f'{FORGED} "$__mark$__read$__due" >/dev/tty',
    f"for n in {{1..50}}; do {FORGED} 0123456789abcdef0123456789abcdef; done",
    'read() { builtin read "$@"; echo got $REPLY $__read; }; printf() { echo printed "$@"; }; export -f printf',
    "eval() { echo evil; }; unset() { echo evil; }; set() { echo evil; }; return() { echo evil; }; trap() { :; }",
    "builtin() { echo evil; }; command() { echo evil; }; exec() { :; }; enable() { :; }; test() { :; }; [() { :; }",
    "__last() { echo evil; return 0; }; __report() { echo evil; }",
    "enable -n printf read unset; enable -n trap",
    "alias printf='echo evil' read='echo evil' while='echo evil' eval='echo evil' '[[=echo evil' '__next=echo evil'",
    "trap 'echo evil' DEBUG; set -T",
    "trap 'echo evil' ERR RETURN; set -ET; trap 'echo evil' DEBUG",
    "PROMPT_COMMAND='echo evil'; PS0='evil$(echo evil)' PS1='evil ' PS2='evil '",
    "exec 1>&- 2>&- 3>&-; exec >/dev/tty 2>&1",
    'PWD=/etc; OLDPWD=/etc; cd() { builtin cd "$@"; PWD=/etc; }',
    "declare -n __status=RANDOM __kept=RANDOM; declare -i __begun",
    "IFS=0123456789abcdef:; set -f; shopt -s nocasematch extglob",
    "set -v; set +v",
    "set -o posix; POSIXLY_CORRECT=",
    "exec 4>/dev/null; BASH_XTRACEFD=4; set -x",
    "echo 'a",
    'echo "a',
    "echo `",
    "echo ${x",
    _ALIAS,
    "alias }='echo evil; }' '((=echo evil' eval=echo unset=echo",
    "readonly __command='echo evil'",
    "declare -i __command",
    "declare -u __read",
    "readonly __status",
    "readonly __due __begun __kept",
    "declare -i __due",
    "set -u",
    "set -a; shopt -s localvar_inherit",
]


@pytest.mark.parametrize("hostile", HOSTILE)
async def test_a_command_falsifies_no_report_of_a_later_one(shell: Shell, hostile: str) -> None:
    await shell("true")
    await shell(hostile, timeout=5)
    for status in (0, 5):
        told = await shell.told(f"cd /tmp; echo fine; (exit {status})")
        # What the shell itself was told to do, such as a trap or a trace, is part of the output.
        [head, *output] = told.removeprefix(NEW).splitlines()
        assert (head, output[-1]) == (f"exit code {status}, in /tmp", "fine")
        assert not [line for line in output if "__" in line]


@pytest.mark.parametrize(
    "hostile",
    [
        "shopt -s extdebug; f() { return 2; }; trap f DEBUG",
        "readonly POSIXLY_CORRECT=1",
        "readonly IFS",
        "__due=; exec 4<&0",
        "unset __due; set -u",
    ],
)
async def test_a_shell_that_cannot_report_is_ended_soon(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, hostile: str
) -> None:
    monkeypatch.setattr("switchboard.sandbox.session._LOOK_S", 0.1)
    reads = "exec 3</dev/tty; read -t 1 line; read -t 0.5 line <&3; echo read"
    assert await shell.told(reads) == f"{NEW}exit code 0, in /workspace\nread"
    told = (await shell(hostile, timeout=20)).text
    assert told.startswith("the session has ended: its shell no longer reports how a command ends; the next command")
    assert await shell.told("echo on") == f"{NEW}exit code 0, in /workspace\non"


async def test_what_we_ask_of_the_shell_is_not_traced(shell: Shell) -> None:
    await shell("set -x; PS4='+$(echo x >>/workspace/traced)'")
    for _ in range(2):
        assert await shell.told("echo one; false") == "exit code 1, in /workspace\n++echo one\none\n++false"
    assert await shell.told("echo $?") == "exit code 0, in /workspace\n++echo 1\n1"
    assert await shell.told("if") == "exit code 2, in /workspace\nbash: syntax error: unexpected end of file"
    assert await shell.told("set +x") == "exit code 0, in /workspace\n++set +x"
    assert await shell.told("echo off") == "exit code 0, in /workspace\noff"


async def test_the_token_of_reports_is_told_to_no_program(shell: Shell) -> None:
    everything = "cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n' | grep -c -e '[P]ROMPT' -e '03[7]%'; set | wc -l"
    assert (await shell.told(everything)).splitlines()[-2] == "0"


async def test_a_session_is_said_to_be_new_though_its_first_command_was_stopped(shell: Shell) -> None:
    await shell("x=heron")
    await shell.tool.close()
    for name in ("y", "z"):
        assert not (await shell(f"{name}=egret; sleep 7143", timeout=0.3)).ok
    since = "a new session since the last command that ended: nothing is set that was set until then\n"
    assert await shell.told('echo "<$x$y$z>"') == f"{since}exit code 0, in /workspace\n<egretegret>"
    assert await shell.told("echo on") == "exit code 0, in /workspace\non"


async def test_a_command_that_ignores_it_is_killed_with_its_session(shell: Shell) -> None:
    await shell("x=heron")
    assert not (await shell("trap '' INT; sleep 7143", timeout=0.3)).ok
    assert await shell.told('echo "<$x>"') == f"{NEW}exit code 0, in /workspace\n<>"


async def test_a_session_that_cannot_be_ended_in_time_is_left_behind(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as stalled:
        stalled.setattr("switchboard.sandbox.run._GONE_S", 0.0)
        await shell("trap '' INT; while :; do sleep 0.1; done", timeout=1)
        await eventually(lambda: _is_over(shell))
    assert await shell.told("echo again") == f"{NEW}exit code 0, in /workspace\nagain"


async def _is_over(shell: Shell) -> bool:
    [kept] = shell.tool._kept.values()
    return kept.ending is not None and kept.ending.done() and kept.ending.exception() is None


async def test_a_session_that_does_not_start_says_so(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as stalled:
        stalled.setattr("switchboard.sandbox.session._START_S", 0.0)
        assert await shell.told("true") == "the session does not answer; the next command begins a new one"
    assert await shell.told("true") == f"{NEW}exit code 0, in /workspace"


async def test_a_session_that_ends_says_so(shell: Shell) -> None:
    ended = f"{NEW}the session has ended; the next command begins a new one"
    assert await shell.told("echo bye; exit 3") == f"{ended}\nbye\nexit"
    assert await shell.told("kill -9 $$") == ended
    assert (await shell("true")).ok


async def test_output_without_end_is_interrupted(shell: Shell) -> None:
    outcome = await shell("yes")
    interrupted = "it was interrupted: it wrote more than 8388608 bytes\nexit code 130, in /workspace\ny\n"
    assert outcome.text[:200].startswith(NEW + interrupted)
    assert not outcome.ok
    assert await shell.told("echo on") == "exit code 0, in /workspace\non"


async def test_jobs_go_on_between_commands(shell: Shell) -> None:
    await shell("(while [ ! -e go ]; do sleep 0.01; done; echo heron >came) &")
    assert (await shell.told("touch go; wait; cat came")).endswith("\nheron")


async def test_a_session_that_waits_too_long_is_ended(shell: Shell) -> None:
    hasty = Shell(Bash(Sandbox(SandboxRules()), idle=0.05), shell.workspace)
    await hasty("sleep 7144 & echo $! >pid")
    async with asyncio.timeout(SOON):
        while (await hasty.told("jobs")) != f"{NEW}exit code 0, in /workspace":
            await asyncio.sleep(0.1)
    await hasty.tool.close()


async def test_of_many_sessions_the_one_that_has_waited_longest_is_ended(shell: Shell) -> None:
    few = Shell(Bash(Sandbox(SandboxRules()), most=2), shell.workspace)
    for conversation in ("one", "two", "one", "three"):
        await few("true", conversation)
    assert not (await few.told("true", "one")).startswith(NEW)
    assert (await few.told("true", "two")).startswith(NEW)
    await few.tool.close()


async def test_it_is_shut_in_and_limited(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("heron")
    files = ("cat /etc/shadow", f"cat {tmp_path}/secret", "touch /usr/x")
    for attempt in (*files, "getent hosts example.com", "su -c true", "unshare -Ur true"):
        assert not (await shell(attempt)).ok, attempt
    assert "Max processes             256 " in await shell.told("cat /proc/self/limits")
    small = Shell(Bash(Sandbox(SandboxRules(memory=64 * MIB))), tmp_path / "small")
    told = await small.told("head -c 100M /dev/zero | tail | wc -c")
    assert "memory" in told or "memory" in await small.told("sleep 60")
    await small.tool.close()


@pytest.mark.usefixtures("shell")
async def test_a_turn_of_an_owner_uses_it(tmp_path: Path) -> None:
    tools = build_tools()
    replies = [
        Reply(calls=(Call("bash", {"command": "cd /tmp; x=heron"}),)),
        Reply(calls=(Call("bash", {"command": "echo $x"}),)),
        Reply(text="A heron."),
    ]
    async with ScriptedLlm(replies) as llm, a_model_engine(llm, tools, workspaces=tmp_path) as (engine, _):
        result = await engine.run(a_turn({"owners": OWNER}), MemoryJournal())
        offered = llm.requests[0].tools
    for tool in tools:
        if isinstance(tool, Bash):
            await tool.close()
    assert isinstance(result, Answer)
    assert [call.result for call in result.entries[1].calls] == [
        f"{NEW}exit code 0, in /tmp",
        "exit code 0, in /tmp\nheron",
    ]
    assert offered[3:6] == ("search_files", "execute_command", "bash")


@pytest.mark.usefixtures("shell")
async def test_shells_end_with_their_worker(database_url: str, tmp_path: Path) -> None:
    clerk = {"name": "clerk", "type": "operation", "engine": "model", "config": {"owners": OWNER}}
    rule = {"name": "all", "channel": "*", "targets": [{"system_id": "System1/clerk"}]}
    team = {"team": {"name": "root"}, "purpose": "all", "systems": [clerk], "routing_rules": [rule]}
    replies = [Reply(calls=(Call("bash", {"command": "sleep 7144.5 & echo began"}),)), Reply("It sleeps.")]
    async with ScriptedLlm(replies) as llm:
        model = {"name": "m", "kind": "openai", "model": "m", "base_url": f"{llm.url}/v1"}
        settings = {"database_url": database_url, "data_dir": tmp_path, "teams": [team], "models": [model]}
        async with (
            open_runtime(Settings.model_validate(settings)) as runtime,
            open_switchboard(runtime) as switchboard,
            at_work(make_worker(runtime)),
        ):
            await switchboard.accept.accept(submission("sleep", channel="api", sender="x"))
            await eventually(lambda: _answered(runtime))
            await begun("7144.5")
    assert running(["7144.5"]) == []


async def _answered(runtime: Runtime) -> bool:
    return bool(await runtime.database.value("select count(*) from outbox"))
