"""The engine `command`: real programs, what they say, how they fail, how they are killed."""

from __future__ import annotations

import asyncio
import grp
import json
import os
import pwd
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import uvloop
from msgspec import structs
from pydantic import SecretStr
from structlog.testing import capture_logs

from switchboard.agents.command import CommandEngine
from switchboard.agents.delivery import parse_said
from switchboard.agents.http import HttpEngine
from switchboard.app.settings import Settings
from switchboard.app.wiring import make_worker, open_runtime
from switchboard.core.envelope.strict import strict
from switchboard.domain.envelope import Envelope
from switchboard.ports.engine import Answer, EngineFailure, NoReply, OutcomeUnknown, Refusal, TurnResult
from switchboard.testing.engines import MemoryJournal, Record, a_turn
from switchboard.transport.programs import death_guard
from tests.engines import failure, run
from tests.processes import butler, write_teams
from tests.processes import until as stalled_until
from tests.routing import member
from tests.waiting import SOON

# What may be said -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "result"),
    [
        (b'{"reply": "hi"}', Answer("hi")),
        (b'{"reply": " hi\\u0000 ", "extra": [1]}', Answer("hi")),
        (b'{"reply": ""}', NoReply()),
        (b'{"no_reply": true}', NoReply()),
        (b'{"no_reply": true, "reason": "spam"}', NoReply("spam")),
        (b'{"refuse": "not mine"}', Refusal("not mine")),
        (b'{"refuse": ""}', Refusal("no reason was given")),
    ],
)
def test_parse_said(said: bytes, result: TurnResult) -> None:
    assert parse_said(said) == result


@pytest.mark.parametrize(
    "said",
    [
        *(b"", b"hi", b"{}", b"[]", b"\xff\xfe", b'{"reply": 1}', b'{"no_reply": false}', b'{"reply": "\\ud800"}'),
        *(b'{"reply": "a", "refuse": "b"}', b"[" * 100_000, b'{"x": ' * 100_000),
    ],
)
def test_parse_said_refuses(said: bytes) -> None:
    with pytest.raises(EngineFailure, match="invalid") as caught:
        parse_said(said)
    assert not caught.value.retryable


# command ----------------------------------------------------------------------------------------------------------

GUARDS = [(), death_guard()] if death_guard() else [()]


@pytest.fixture(params=GUARDS, ids=lambda guard: "guarded" if guard else "plain")
def command(request: pytest.FixtureRequest) -> CommandEngine:
    return CommandEngine(tuple(request.param), grace=0.3)


def python(source: str, **options: Any) -> dict[str, Any]:
    """Options that run this Python program; `-I -S` for a quick start."""
    return {"command": [sys.executable, "-I", "-S", "-c", source], **options}


@pytest.mark.parametrize(
    ("source", "options", "result"),
    [
        ("print('hi')", {}, Answer("hi")),
        ("print('  ')", {}, NoReply()),
        ("", {}, NoReply()),
        ("import os; os.write(1, b'a\\xff\\x00b')", {}, Answer("a�b")),
        ("import sys; sys.exit('not mine' and sys.stderr.write('not mine') and 65)", {}, Refusal("not mine")),
        ("import sys; sys.exit(65)", {}, Refusal("no reason was given")),
        ('print(\'{"reply": "hi"}\')', {"output": "json"}, Answer("hi")),
        ("print('{\"no_reply\": true}')", {"output": "json"}, NoReply()),
        ('print(\'{"refuse": "no"}\')', {"output": "json"}, Refusal("no")),
        ("", {"output": "json"}, NoReply()),
        ('print(\'{"reply": "hi"}\')', {}, Answer('{"reply": "hi"}')),
        ("print('x' * 1000, end='')", {"max_output": 1000}, Answer("x" * 1000)),
    ],
)
async def test_what_a_program_says(
    command: CommandEngine, source: str, options: dict[str, Any], result: TurnResult
) -> None:
    assert await run(command, python(source, **options)) == result


@pytest.mark.parametrize(
    ("source", "options", "error_class", "retryable", "told"),
    [
        ("import sys; sys.exit(75)", {}, "overload", True, "later"),
        ("import sys; sys.stderr.write('busy'); sys.exit(75)", {}, "overload", True, "busy"),
        ("raise SystemExit('broken')", {}, "internal", True, "exit status 1: broken"),
        ("import os; os.kill(os.getpid(), 9)", {}, "internal", True, "killed by signal 9"),
        ("print('hi')", {"output": "json"}, "internal", False, "invalid"),
        ("print('x' * 1001, end='')", {"max_output": 1000}, "internal", False, "more than 1000 bytes"),
        ("while True: print('x' * 1000)", {}, "internal", False, "more than 1048576 bytes"),
        ("import time; time.sleep(600)", {"timeout": 0.3}, "timeout", True, "longer than 0.3 s"),
    ],
)
async def test_how_a_program_fails(
    command: CommandEngine, source: str, options: dict[str, Any], error_class: str, retryable: bool, told: str
) -> None:
    error = await failure(command, python(source, **options))
    assert (error.error_class, error.retryable) == (error_class, retryable)
    assert told in str(error)


async def test_only_the_end_of_a_long_complaint_is_kept(command: CommandEngine) -> None:
    error = await failure(command, python("import sys; sys.stderr.write('é' * 5_000_000 + 'END'); sys.exit(3)"))
    assert str(error).endswith("é" * 497 + "END")
    assert len(str(error)) < 600 + len(sys.executable)


@pytest.mark.parametrize(
    ("options", "error_class", "told"),
    [
        ({"command": ["/no/such/program"]}, "target_unavailable", "cannot be run"),
        ({"command": ["no-such-program-in-path"]}, "target_unavailable", "cannot be run"),
        ({"command": ["/etc/passwd"]}, "target_unavailable", "cannot be run"),
        ({"command": ["a\x00b"]}, "target_unavailable", "cannot be run"),
        ({"command": [sys.executable], "cwd": "/no/such/place"}, "target_unavailable", "cannot be run"),
        ({"command": "echo hi"}, "validation", "command must be a list, not 'echo hi'"),
        ({"command": []}, "validation", "command"),
        ({}, "validation", "command is required"),
        ({"command": ["true"], "outptu": "json"}, "validation", "outptu"),
        ({"command": ["true"], "timeout": "soon"}, "validation", "timeout"),
        ({"command": ["true"], "env": {"A": 1}}, "validation", "env.A"),
    ],
)
async def test_what_cannot_be_run(command: CommandEngine, options: dict[str, Any], error_class: str, told: str) -> None:
    error = await failure(command, options)
    assert (error.error_class, error.retryable) == (error_class, False)
    assert told in str(error)


async def test_a_program_is_handed_the_delivery(command: CommandEngine) -> None:
    options = python("import sys; sys.stdout.write(sys.stdin.read())")
    turn = a_turn(options, text="grüße", attempt=2)
    record = Record()
    result = await command.run(turn, MemoryJournal(record))
    assert isinstance(result, Answer)
    given = json.loads(result.text)
    typed = strict(Envelope, given.pop("envelope"))
    assert typed.payload.normalized_text == "grüße"
    assert typed.payload.raw is None
    assert datetime.fromisoformat(given.pop("received_at")) == turn.received_at
    assert given == {
        "schema_version": "delivery.v1",
        "kind": "delivery",
        "request_id": str(turn.request_id),
        "conversation": turn.conversation,
        "system_id": "System1/tool",
        "team_id": "root",
        "segment": 0,
        "attempt": 2,
        "idempotency_key": str(record.key("command")),
    }


async def test_a_program_is_not_told_where_the_connector_sends_replies(command: CommandEngine) -> None:
    turn = a_turn(python("import sys; sys.stdout.write(sys.stdin.read())"))
    event = structs.replace(turn.envelope.event, reply_address={"chat": "secret-5488"}, refers_to="42")
    result = await command.run(
        replace(turn, envelope=structs.replace(turn.envelope, event=event)), MemoryJournal(Record())
    )
    assert isinstance(result, Answer)
    assert "secret-5488" not in result.text
    assert json.loads(result.text)["envelope"]["event"]["refers_to"] == "42"


async def test_a_notice_comes_with_its_dead_letter(command: CommandEngine) -> None:
    source = "import json, sys; d = json.load(sys.stdin); print(d['kind'], d['dead_letter']['category'])"
    options = {"command": [sys.executable, "-I", "-c", source]}
    assert await run(command, options, notice=True) == Answer("notice no_route")


async def test_a_program_sees_only_the_environment_it_is_given(
    command: CommandEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_TOKEN", "canary")
    record = Record()
    options = {"command": ["env"], "env": {"MODE": "test"}}
    result = await command.run(a_turn(options), MemoryJournal(record))
    assert isinstance(result, Answer)
    seen = dict(line.split("=", 1) for line in result.text.splitlines())
    assert set(seen) == {"PATH", "HOME", "LANG", "MODE", "SWITCHBOARD_IDEMPOTENCY_KEY", "SWITCHBOARD_REPLY_FILES"}
    assert seen["SWITCHBOARD_IDEMPOTENCY_KEY"] == str(record.key("command"))


NOBODY = "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
"""Whom a program may be run as: another user, if we are root."""


async def test_a_program_runs_as_the_user_it_is_told(command: CommandEngine, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("")
    (tmp_path / "secret").chmod(0o600)
    source = (
        f"id -un; id -Gn; echo $HOME; cat /dev/stdin >/dev/null && echo read; cat {tmp_path}/secret && echo open; true"
    )
    result = await run(command, {"command": ["/bin/sh", "-c", source], "user": NOBODY, "cwd": "/"})
    entry = pwd.getpwnam(NOBODY)
    groups = " ".join(grp.getgrgid(gid).gr_name for gid in os.getgrouplist(NOBODY, entry.pw_gid))
    assert isinstance(result, Answer)
    said = result.text.splitlines()
    assert said[:4] == [NOBODY, groups, entry.pw_dir, "read"]
    assert (len(said) == 4) == (os.geteuid() == 0), "nobody reads what is ours alone"


async def test_an_engine_may_have_a_user_for_all_programs() -> None:
    engine = CommandEngine(user=NOBODY)
    us = pwd.getpwuid(os.geteuid()).pw_name
    assert await run(engine, {"command": ["id", "-un"]}) == Answer(NOBODY)
    assert await run(engine, {"command": ["id", "-un"], "user": us}) == Answer(us)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's programs run as root")
@pytest.mark.parametrize("user", [None, "nobody"])
async def test_a_worker_says_which_programs_run_as_root(database_url: str, tmp_path: Path, user: str | None) -> None:
    theirs = {**butler("theirs", ["id"]), "config": {"command": ["id"], "user": "nobody"}}
    systems = [butler("ours", ["id"]), theirs, butler("memo")]
    teams_dir = write_teams(tmp_path / "teams", {"team": {"name": "root"}, "systems": systems})
    settings = Settings(data_dir=tmp_path, teams_dir=teams_dir, program_user=user).model_copy(
        update={"database_url": SecretStr(database_url)}
    )
    async with open_runtime(settings, for_worker=True) as runtime:
        with capture_logs() as lines:
            make_worker(runtime)
    told = [line["butlers"] for line in lines if line["event"] == "programs of butlers run as root"]
    assert told == ([] if user else [["System1/ours"]])


async def test_a_user_who_does_not_exist_is_refused(command: CommandEngine) -> None:
    options: dict[str, Any] = {"command": ["id"], "user": "no-such-user"}
    with pytest.raises(EngineFailure, match="user: there is no user 'no-such-user' on this machine") as caught:
        command.check(member("System1/one", "command", **options))
    assert not caught.value.retryable
    assert not (await failure(command, options)).retryable


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_plain_user_cannot_run_programs_as_another() -> None:
    """Said at the start of the worker."""
    source = (
        "import os; from switchboard.transport.programs import account_of; "
        f"os.setuid({pwd.getpwnam('nobody').pw_uid}); assert account_of('nobody') is None; account_of('daemon')"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    assert "ValueError: only root can run a program as another user, 'daemon'" in done.stderr


async def test_a_program_gets_no_descriptor_of_ours(command: CommandEngine, tmp_path: Path) -> None:
    with (tmp_path / "secret").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        result = await run(command, {"command": ["/bin/sh", "-c", "ls -l /proc/self/fd"]})
    assert isinstance(result, Answer)
    assert "secret" not in result.text
    assert len(result.text.splitlines()) == 5, "standard input, output, error, and the directory itself"


async def test_a_program_runs_where_it_is_told(command: CommandEngine, tmp_path: Path) -> None:
    (tmp_path / "answer.sh").write_text("#!/bin/sh\nbasename $PWD\n")
    (tmp_path / "answer.sh").chmod(0o700)
    assert await run(command, {"command": ["./answer.sh"], "cwd": str(tmp_path)}) == Answer(tmp_path.name)


async def test_a_program_need_not_read_its_input(command: CommandEngine) -> None:
    assert await run(command, python("print('hi')"), text="x" * 100_000) == Answer("hi")


async def test_a_large_delivery_and_a_large_answer(command: CommandEngine) -> None:
    options = python("import sys; print(len(sys.stdin.buffer.read()) > 200_000, 'y' * 500_000)")
    assert await run(command, options, text="x" * 200_000) == Answer("True " + "y" * 500_000)


FAMILY = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the child takes that over
child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"])
with open(sys.argv[1] + ".new", "w") as file:
    file.write(f"{os.getpid()} {child.pid}")
os.rename(sys.argv[1] + ".new", sys.argv[1])
"""


def family(place: Path, then: str, **options: Any) -> dict[str, Any]:
    """A program that ignores SIGTERM and has a child of the same kind, which holds its output; pids are in `place`."""
    return {"command": [sys.executable, "-I", "-c", FAMILY + then, str(place)], **options}


async def until(true: Callable[[], bool], limit: float = SOON) -> None:
    """Poll, yielding to the loop, until it is true or the deadline is over."""
    deadline = time.monotonic() + limit
    while not true():
        assert time.monotonic() < deadline, "it did not come true in time"
        await asyncio.sleep(0.01)


def gone(pid: int) -> bool:
    """Whether the process has ended; a zombie, which nobody here can reap, has."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def pids_in(place: Path) -> list[int]:
    """Of the program and of its child."""
    return [int(pid) for pid in place.read_text().split()]


async def all_gone(place: Path) -> None:
    pids = pids_in(place)
    assert len(pids) == 2
    await until(lambda: all(gone(pid) for pid in pids))


@pytest.mark.slow
async def test_a_timeout_kills_the_whole_family(tmp_path: Path) -> None:
    place = tmp_path / "pids"
    error = await failure(CommandEngine(death_guard(), grace=0.1), family(place, "time.sleep(600)", timeout=8.0))
    assert error.error_class == "timeout"
    await all_gone(place)


async def test_too_much_output_kills_the_whole_family(command: CommandEngine, tmp_path: Path) -> None:
    place = tmp_path / "pids"
    error = await failure(command, family(place, "\nwhile True: print('x' * 1000)"))
    assert "more than" in str(error)
    await all_gone(place)


async def test_a_cancelled_turn_kills_the_whole_family(command: CommandEngine, tmp_path: Path) -> None:
    place = tmp_path / "pids"
    turn = asyncio.create_task(run(command, family(place, "time.sleep(600)")))
    await until(place.exists)
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    await all_gone(place)


@pytest.mark.parametrize("steps", range(8))
async def test_a_turn_cancelled_while_its_program_starts_kills_the_whole_family(
    command: CommandEngine, tmp_path: Path, steps: int
) -> None:
    """The program is faster than we are: it has a child already when the loop has made only so many steps."""
    place = tmp_path / "pids"
    turn = asyncio.create_task(run(command, family(place, "time.sleep(600)")))
    for _ in range(1 + steps):
        await asyncio.sleep(0)
    stalled_until(place.exists)  # the loop does nothing meanwhile, as on a machine that stalls
    turn.cancel()
    await asyncio.wait({turn}, timeout=SOON)
    assert turn.cancelled()
    await all_gone(place)


async def test_a_turn_that_is_cancelled_twice_kills_the_whole_family(tmp_path: Path) -> None:
    place = tmp_path / "pids"
    turn = asyncio.create_task(run(CommandEngine(grace=600), family(place, "time.sleep(600)")))
    await until(place.exists)
    turn.cancel()
    await asyncio.wait({turn}, timeout=0.05)
    assert not turn.done()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    with pytest.raises(ProcessLookupError):
        os.kill(pids_in(place)[0], 0)  # not even as a zombie
    await all_gone(place)


async def test_a_child_that_holds_the_output_does_not_hold_us(command: CommandEngine, tmp_path: Path) -> None:
    place = tmp_path / "pids"
    async with asyncio.timeout(SOON):
        assert await run(command, family(place, "print('done', flush=True); os._exit(0)")) == Answer("done")
    await all_gone(place)


async def test_a_child_in_a_session_of_its_own_does_not_hold_us_either(command: CommandEngine, tmp_path: Path) -> None:
    place = tmp_path / "pids"
    source = FAMILY.replace('time.sleep(600)"]', 'time.sleep(600)"], start_new_session=True')
    program = [sys.executable, "-I", "-c", source + "print('done', flush=True); os._exit(0)", str(place)]
    try:
        async with asyncio.timeout(SOON):
            assert await run(command, {"command": program}) == Answer("done")
        assert not gone(pids_in(place)[1]), "it has left our group, so it is not ours to kill"
    finally:
        os.kill(pids_in(place)[1], signal.SIGKILL)
    await all_gone(place)


def test_the_same_under_uvloop(tmp_path: Path) -> None:
    place = tmp_path / "pids"

    async def both() -> None:
        engine = CommandEngine(death_guard(), grace=0.1)
        assert await run(engine, python("print('hi')")) == Answer("hi")
        error = await failure(engine, family(place, "\nwhile True: print('x' * 1000)"))
        assert "more than" in str(error)
        error = await failure(engine, {"command": ["/no/such/program"]})
        assert not error.retryable
        error = await failure(HttpEngine(), {"url": "http://127.0.0.1:1/", "secret_env": "PATH"})
        assert "not a public address" in str(error)
        await all_gone(place)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(both())


WORKER = """
import asyncio, sys
from switchboard.agents.command import CommandEngine
from switchboard.testing.engines import MemoryJournal, a_turn
from switchboard.transport.programs import death_guard
asyncio.run(CommandEngine(death_guard()).run(a_turn({"command": sys.argv[1:]}), MemoryJournal()))
"""


@pytest.mark.skipif(not death_guard(), reason="no setpriv with --pdeathsig here")
async def test_a_killed_worker_takes_its_program_along(tmp_path: Path) -> None:
    place = tmp_path / "pid"
    program = "import os, sys, time; open(sys.argv[1], 'w').write(f'{os.getpid()}\\n'); time.sleep(600)"
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WORKER, sys.executable, "-I", "-c", program, str(place)
    )
    await until(lambda: place.exists() and place.read_text().endswith("\n"), 30)
    worker.kill()
    await worker.wait()
    await until(lambda: gone(int(place.read_text())))


async def test_a_finished_program_is_not_run_again(command: CommandEngine, tmp_path: Path) -> None:
    count = tmp_path / "count"
    options = {"command": ["sh", "-c", f"echo x >> {count}; echo hi"]}
    record = Record()
    for attempt in (1, 2):
        assert await command.run(a_turn(options, attempt=attempt), MemoryJournal(record)) == Answer("hi")
    assert count.read_text() == "x\n"


async def test_an_idempotent_program_is_repeated_with_the_same_key(command: CommandEngine, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    script = f"echo $SWITCHBOARD_IDEMPOTENCY_KEY >> {keys}; [ $(wc -l < {keys}) -gt 1 ] && echo hi"
    options = {"command": ["sh", "-c", script]}
    record = Record()
    with pytest.raises(EngineFailure, match="exit status 1"):
        await command.run(a_turn(options), MemoryJournal(record))
    assert await command.run(a_turn(options, attempt=2), MemoryJournal(record)) == Answer("hi")
    assert len(set(keys.read_text().split())) == 1


async def test_an_effectful_program_that_failed_is_not_repeated_blindly(command: CommandEngine) -> None:
    options = python("raise SystemExit(1)", effect="effectful")
    record = Record()
    with pytest.raises(EngineFailure, match="exit status 1"):
        await command.run(a_turn(options), MemoryJournal(record))
    with pytest.raises(OutcomeUnknown):
        await command.run(a_turn(options, attempt=2), MemoryJournal(record))


async def test_an_effectful_program_that_did_nothing_is_tried_again(command: CommandEngine, tmp_path: Path) -> None:
    count = tmp_path / "count"
    script = f"echo x >> {count}; [ $(wc -l < {count}) -gt 2 ] && echo hi || exit 75"
    options = {"command": ["sh", "-c", script], "effect": "effectful"}
    record = Record()
    for attempt in (1, 2):
        with pytest.raises(EngineFailure, match="later"):
            await command.run(a_turn(options, attempt=attempt), MemoryJournal(record))
    assert await command.run(a_turn(options, attempt=3), MemoryJournal(record)) == Answer("hi")
    assert await command.run(a_turn(options, attempt=4), MemoryJournal(record)) == Answer("hi")
    assert count.read_text() == "x\n" * 3
