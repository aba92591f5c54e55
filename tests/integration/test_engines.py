"""The engines that need no model, against the real thing: programs, an HTTP server, PostgreSQL."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
import uvloop
from aiohttp import web

from switchboard.agents.callback import callbacks_from
from switchboard.agents.command import CommandEngine, death_guard
from switchboard.agents.delivery import parse_said
from switchboard.agents.http import HttpEngine
from switchboard.agents.memo import MemoEngine, answer_text, excerpt, person_of
from switchboard.agents.signed_post import MAX_RESPONSE, Destination, PostError, post, verify
from switchboard.core.identity import conversation
from switchboard.domain.envelope import Envelope
from switchboard.domain.errors import ConfigurationError
from switchboard.domain.ledger import Item, LaneKey, OutboxRow
from switchboard.domain.message import Conversation, Message, RequestId
from switchboard.domain.routing import Chosen, Decision, Member, SystemId, TeamId, Unrouted
from switchboard.journey.turn import Answer, Engine, EngineFailure, NoReply, Refusal, Turn, TurnResult
from switchboard.lanes.journal import Journal, OutcomeUnknown
from switchboard.store import inbox, lanes
from switchboard.store.database import Database, from_json, to_json
from switchboard.store.ids import new_uuid7
from switchboard.store.lanes import Effect, Settlement, Step, Work
from switchboard.store.memos import Memo, file_memo, nearest_memos
from switchboard.store.migrate import migrate
from switchboard.store.outbox import Receipt
from tests.lab import envelope, envelope_json

ROOT = TeamId("root")
ITEM = Item(LaneKey("turn:System1/tool:api/x/y"), "turn", 2, 1, 1, 1)


# A turn without a database ----------------------------------------------------------------------------------------


class MemoryJournal(Journal):
    """The real journal with its rows in a dictionary, for engines that have no other business with the database."""

    def __init__(self, rows: dict[int, Step], item: Item = ITEM) -> None:
        self._item = item
        self._known = dict(rows)
        self._n = 0
        self._rows = rows

    async def _write(self, step: Step, _: Effect) -> None:
        self._rows[step.n] = replace(step, result=from_json(to_json(step.result)))


def a_turn(options: Mapping[str, Any], *, text: str = "hello", attempt: int = 1, notice: bool = False) -> Turn:
    member = Member(SystemId("System1/tool"), ROOT, 1, "tool", options)
    given = envelope(text, channel="api")
    dead_letter = {"category": "no_route", "reason": "nobody", "dead_letter_id": "x"} if notice else None
    work = Work(
        lane=ITEM.lane,
        seq=1,
        request_id=RequestId(new_uuid7()),
        conversation=Conversation("api/x/y"),
        system_id=member.system_id,
        team_id=ROOT,
        segment=0,
        envelope=given,
        received_at=datetime.now(UTC),
        dead_letter=dead_letter,
    )
    return Turn(work, member, attempt)


async def run(engine: Engine, options: Mapping[str, Any], **more: Any) -> TurnResult:
    return await engine.run(a_turn(options, **more), MemoryJournal({}))


async def failure(engine: Engine, options: Mapping[str, Any], **more: Any) -> EngineFailure:
    with pytest.raises(EngineFailure) as caught:
        await run(engine, options, **more)
    return caught.value


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
    with pytest.raises(EngineFailure, match="not understood") as caught:
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
        ("print('hi')", {"output": "json"}, "internal", False, "not understood"),
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
        ({"command": "echo hi"}, "validation", "command: Input should be a valid tuple"),
        ({"command": []}, "validation", "command"),
        ({}, "validation", "command: Field required"),
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
    rows: dict[int, Step] = {}
    result = await command.run(turn, MemoryJournal(rows))
    assert isinstance(result, Answer)
    given = json.loads(result.text)
    typed = Envelope.model_validate(given.pop("envelope"))
    assert typed.payload.normalized_text == "grüße"
    assert typed.payload.raw is None
    assert datetime.fromisoformat(given.pop("received_at")) == turn.work.received_at
    assert given == {
        "schema_version": "delivery.v1",
        "kind": "delivery",
        "request_id": str(turn.work.request_id),
        "conversation": "api/x/y",
        "system_id": "System1/tool",
        "team_id": "root",
        "segment": 0,
        "attempt": 2,
        "idempotency_key": str(rows[1].idempotency_key),
    }


async def test_a_notice_comes_with_its_dead_letter(command: CommandEngine) -> None:
    source = "import json, sys; d = json.load(sys.stdin); print(d['kind'], d['dead_letter']['category'])"
    options = {"command": [sys.executable, "-I", "-c", source]}
    assert await run(command, options, notice=True) == Answer("notice no_route")


async def test_a_program_sees_only_the_environment_it_is_given(
    command: CommandEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_TOKEN", "canary")
    rows: dict[int, Step] = {}
    options = {"command": ["env"], "env": {"MODE": "test"}}
    result = await command.run(a_turn(options), MemoryJournal(rows))
    assert isinstance(result, Answer)
    seen = dict(line.split("=", 1) for line in result.text.splitlines())
    assert set(seen) == {"PATH", "HOME", "LANG", "MODE", "SWITCHBOARD_IDEMPOTENCY_KEY"}
    assert seen["SWITCHBOARD_IDEMPOTENCY_KEY"] == str(rows[1].idempotency_key)


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


async def until(true: Callable[[], bool], limit: float = 10.0) -> None:
    """Poll, yielding to the loop, until it is true or the deadline is over."""
    deadline = time.monotonic() + limit
    while not true():
        assert time.monotonic() < deadline, "it did not come true in time"
        await asyncio.sleep(0.01)


def gone(pid: int) -> bool:
    """Whether the process has ended; a zombie, which nobody here can bury, has."""
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


async def test_a_timeout_kills_the_whole_family(tmp_path: Path) -> None:
    place = tmp_path / "pids"
    error = await failure(CommandEngine(death_guard(), grace=0.1), family(place, "time.sleep(600)", timeout=3.0))
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
    await all_gone(place)


async def test_a_child_that_holds_the_output_does_not_hold_us(command: CommandEngine, tmp_path: Path) -> None:
    place = tmp_path / "pids"
    async with asyncio.timeout(5):
        assert await run(command, family(place, "print('done', flush=True); os._exit(0)")) == Answer("done")
    await all_gone(place)


async def test_a_child_in_a_session_of_its_own_does_not_hold_us_either(command: CommandEngine, tmp_path: Path) -> None:
    place = tmp_path / "pids"
    source = FAMILY.replace('time.sleep(600)"]', 'time.sleep(600)"], start_new_session=True')
    program = [sys.executable, "-I", "-c", source + "print('done', flush=True); os._exit(0)", str(place)]
    try:
        async with asyncio.timeout(5):
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
from switchboard.agents.command import CommandEngine, CommandOptions, death_guard
options = CommandOptions(command=tuple(sys.argv[1:]))
asyncio.run(CommandEngine(death_guard())._execute(options, b"", {}))
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
    rows: dict[int, Step] = {}
    for attempt in (1, 2):
        assert await command.run(a_turn(options, attempt=attempt), MemoryJournal(rows)) == Answer("hi")
    assert count.read_text() == "x\n"


async def test_an_idempotent_program_is_repeated_with_the_same_key(command: CommandEngine, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    script = f"echo $SWITCHBOARD_IDEMPOTENCY_KEY >> {keys}; [ $(wc -l < {keys}) -gt 1 ] && echo hi"
    options = {"command": ["sh", "-c", script]}
    rows: dict[int, Step] = {}
    with pytest.raises(EngineFailure, match="exit status 1"):
        await command.run(a_turn(options), MemoryJournal(rows))
    assert await command.run(a_turn(options, attempt=2), MemoryJournal(rows)) == Answer("hi")
    assert len(set(keys.read_text().split())) == 1


async def test_an_effectful_program_that_failed_is_not_repeated_blindly(command: CommandEngine) -> None:
    options = python("raise SystemExit(1)", effect="effectful")
    rows: dict[int, Step] = {}
    with pytest.raises(EngineFailure, match="exit status 1"):
        await command.run(a_turn(options), MemoryJournal(rows))
    with pytest.raises(OutcomeUnknown):
        await command.run(a_turn(options, attempt=2), MemoryJournal(rows))


async def test_an_effectful_program_that_did_nothing_is_tried_again(command: CommandEngine, tmp_path: Path) -> None:
    count = tmp_path / "count"
    script = f"echo x >> {count}; [ $(wc -l < {count}) -gt 2 ] && echo hi || exit 75"
    options = {"command": ["sh", "-c", script], "effect": "effectful"}
    rows: dict[int, Step] = {}
    for attempt in (1, 2):
        with pytest.raises(EngineFailure, match="later"):
            await command.run(a_turn(options, attempt=attempt), MemoryJournal(rows))
    assert await command.run(a_turn(options, attempt=3), MemoryJournal(rows)) == Answer("hi")
    assert await command.run(a_turn(options, attempt=4), MemoryJournal(rows)) == Answer("hi")
    assert count.read_text() == "x\n" * 3


# http -------------------------------------------------------------------------------------------------------------

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
SECRET = "canary-secret"


@dataclass
class Hook:
    """A real server on a free port that answers every POST with `handler`, and remembers what came."""

    port: int = 0
    handler: Handler | None = None
    bodies: list[bytes] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def says(self, status: int = 200, body: str = "", media_type: str = "application/json", **headers: str) -> None:
        async def handler(_: web.Request) -> web.StreamResponse:
            # Not content_type=: an answer may well have none.
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return web.Response(status=status, body=body.encode(), headers={"Content-Type": media_type, **named})

        self.handler = handler

    async def serve(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.read())
        self.headers.append(request.headers)
        assert self.handler is not None
        return await self.handler(request)


@asynccontextmanager
async def a_hook() -> AsyncIterator[Hook]:
    hook = Hook()
    app = web.Application(client_max_size=2**24)
    app.router.add_post("/hook", hook.serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        [address] = runner.addresses
        hook.port = address[1]
        yield hook
    finally:
        await runner.cleanup()


@pytest.fixture
async def hook(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Hook]:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    async with a_hook() as running:
        yield running


def options_for(hook: Hook, **more: Any) -> dict[str, Any]:
    return {"url": hook.url, "secret_env": "HOOK_SECRET", "allow_private": True, **more}


@pytest.mark.parametrize(
    ("status", "body", "media_type", "result"),
    [
        (200, '{"reply": "hi"}', "application/json", Answer("hi")),
        (200, '{"reply": "hi"}', "application/vnd.x+json; charset=utf-8", Answer("hi")),
        (201, '{"no_reply": true}', "application/json", NoReply()),
        (200, '{"refuse": "not mine"}', "application/json", Refusal("not mine")),
        (200, "hi\n", "text/plain; charset=utf-8", Answer("hi")),
        (200, "", "text/plain", NoReply()),
        (204, "", "application/json", NoReply()),
    ],
)
async def test_what_a_webhook_says(hook: Hook, status: int, body: str, media_type: str, result: TurnResult) -> None:
    hook.says(status, body, media_type)
    assert await run(HttpEngine(), options_for(hook)) == result


@pytest.mark.parametrize(
    ("status", "body", "media_type", "kind", "told"),
    [
        (408, "", "text/plain", ("timeout", True), "408"),
        (425, "", "text/plain", ("target_unavailable", True), "425"),
        (429, "slow", "text/plain", ("overload", True), "429 (asks to wait 7 s): slow"),
        (500, "x" * 1000, "text/plain", ("target_unavailable", True), "500 (asks to wait 7 s): " + "x" * 300),
        (503, "", "text/plain", ("overload", True), "503"),
        (302, "", "text/plain", ("target_unavailable", False), "302"),
        (400, "bad\x00 é", "text/plain", ("target_unavailable", False), "400 (asks to wait 7 s): bad é"),
        (401, "", "text/plain", ("target_unavailable", False), "401"),
        (200, "<html>", "text/html", ("internal", False), "text/html"),
        (200, "{", "application/json", ("internal", False), "not understood"),
        (200, "x" * (MAX_RESPONSE + 1), "text/plain", ("internal", False), "larger than 1 MiB"),
    ],
)
async def test_how_a_webhook_fails(
    hook: Hook, status: int, body: str, media_type: str, kind: tuple[str, bool], told: str
) -> None:
    hook.says(status, body, media_type, Retry_After="7", Location="http://127.0.0.1:1/")
    error = await failure(HttpEngine(), options_for(hook))
    assert (error.error_class, error.retryable) == kind
    assert told in str(error)
    assert len(str(error)) < 400
    assert len(hook.bodies) == 1


async def test_a_webhook_is_handed_a_signed_delivery(hook: Hook) -> None:
    hook.says(204)
    rows: dict[int, Step] = {}
    await HttpEngine().run(a_turn(options_for(hook)), MemoryJournal(rows))
    [body], [headers] = hook.bodies, hook.headers
    key = str(rows[1].idempotency_key)
    assert headers["Idempotency-Key"] == key
    assert headers["Host"] == f"127.0.0.1:{hook.port}"
    timestamp, signature = headers["Switchboard-Timestamp"], headers["Switchboard-Signature"]
    seen = verify(SECRET.encode(), timestamp=timestamp, signature=signature, body=body, now=time.time())
    assert seen == "valid"
    given = json.loads(body)
    assert (given["schema_version"], given["idempotency_key"]) == ("delivery.v1", key)
    assert SECRET not in str(dict(headers)) + body.decode()


async def test_the_secret_may_come_from_a_file(hook: Hook, tmp_path: Path) -> None:
    hook.says(204)
    (tmp_path / "secret").write_text(SECRET)
    options = {"url": hook.url, "secret_file": str(tmp_path / "secret"), "allow_private": True}
    assert await run(HttpEngine(), options) == NoReply()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"secret_env": None}, "secret_env or secret_file"),
        ({"secret_env": "NO_SUCH_SECRET"}, "NO_SUCH_SECRET"),
        ({"url": "ftp://example.org"}, "http:// or https://"),
        ({"url": None}, "url"),
        ({"allow_privat": True}, "allow_privat"),
    ],
)
async def test_wrong_options_end_the_delivery(hook: Hook, options: dict[str, Any], told: str) -> None:
    error = await failure(HttpEngine(), options_for(hook, **options))
    assert (error.error_class, error.retryable) == ("validation", False)
    assert told in str(error)
    assert hook.bodies == []


async def test_a_private_address_is_not_called(hook: Hook) -> None:
    for host in ("127.0.0.1", "localhost", "2130706433", "0177.0.0.1", "[::ffff:127.0.0.1]"):
        error = await failure(
            HttpEngine(), options_for(hook, url=f"http://{host}:{hook.port}/hook", allow_private=False)
        )
        assert not error.retryable
        assert "not a public address" in str(error) or "the URL is not understood" in str(error)
    assert hook.bodies == []


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


async def test_a_webhook_that_is_not_there(hook: Hook) -> None:
    error = await failure(HttpEngine(), options_for(hook, url=f"http://127.0.0.1:{free_port()}/"))
    assert (error.error_class, error.retryable) == ("target_unavailable", True)
    error = await failure(HttpEngine(), options_for(hook, url="http://no-such-host.invalid/"))
    assert (error.error_class, error.retryable) == ("target_unavailable", True)


@asynccontextmanager
async def a_silent_webhook(hook: Hook, first: bytes | None) -> AsyncIterator[None]:
    """Answers nothing, or only the beginning, until the block is over."""
    over = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        if first is not None:
            await response.prepare(request)
            await response.write(first)
        await over.wait()
        return response

    hook.handler = handler
    try:
        yield
    finally:
        over.set()


@pytest.mark.parametrize("first", [None, b"the beginning"])
async def test_a_webhook_that_takes_too_long(hook: Hook, first: bytes | None) -> None:
    async with a_silent_webhook(hook, first):
        error = await failure(HttpEngine(), options_for(hook, timeout=0.3))
    assert (error.error_class, error.retryable) == ("timeout", True)


async def test_a_webhook_that_hangs_up(hook: Hook) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    hook.handler = handler
    error = await failure(HttpEngine(), options_for(hook))
    assert (error.error_class, error.retryable) == ("target_unavailable", True)


async def test_an_endless_answer_is_cut_off(hook: Hook) -> None:
    ended = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x" * 65536)
        finally:
            ended.set()

    hook.handler = handler
    error = await failure(HttpEngine(), options_for(hook))
    assert "larger than 1 MiB" in str(error)
    async with asyncio.timeout(5):
        await ended.wait()


async def test_an_effectful_webhook_is_only_called_again_if_it_did_nothing(hook: Hook) -> None:
    rows: dict[int, Step] = {}
    hook.says(429)
    options = options_for(hook, effect="effectful")
    with pytest.raises(EngineFailure, match="429"):
        await HttpEngine().run(a_turn(options), MemoryJournal(rows))
    hook.says(500)
    with pytest.raises(EngineFailure, match="500"):
        await HttpEngine().run(a_turn(options, attempt=2), MemoryJournal(rows))
    hook.says(200, '{"reply": "hi"}')
    with pytest.raises(OutcomeUnknown):
        await HttpEngine().run(a_turn(options, attempt=3), MemoryJournal(rows))
    assert len(hook.bodies) == 2


Info = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[str, int]]


@asynccontextmanager
async def names(monkeypatch: pytest.MonkeyPatch, answers: list[list[str]]) -> AsyncIterator[list[str]]:
    """A resolver under the test's control: each look-up takes the next answer; yields the names that were asked for."""
    asked: list[str] = []

    async def getaddrinfo(host: str, port: int, **_: object) -> list[Info]:
        asked.append(host)
        found = answers.pop(0)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]

    with monkeypatch.context() as patch:
        patch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
        yield asked


def to_name(hook: Hook, *, allow_private: bool) -> Destination:
    return Destination(f"http://rebind.test:{hook.port}/hook", b"s", 5.0, allow_private)


async def test_the_checked_address_is_the_one_that_is_called(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    hook.says(204)
    async with names(monkeypatch, [["127.0.0.1"], ["192.0.2.1"]]) as asked:
        assert (await post(to_name(hook, allow_private=True), b"{}", uuid4())).status == 204
    assert asked == ["rebind.test"]
    assert hook.headers[0]["Host"] == f"rebind.test:{hook.port}"


async def test_one_private_address_among_others_is_enough_to_refuse(
    hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with names(monkeypatch, [["1.1.1.1", "127.0.0.1"]]):
        with pytest.raises(PostError, match="not a public address"):
            await post(to_name(hook, allow_private=False), b"{}", uuid4())
    assert hook.bodies == []


async def test_the_next_address_is_tried(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    hook.says(204)
    async with names(monkeypatch, [["127.0.0.2", "127.0.0.1"]]):
        assert (await post(to_name(hook, allow_private=True), b"{}", uuid4())).status == 204
    assert len(hook.bodies) == 1


async def test_a_leave_to_call_private_addresses_is_not_inherited(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    hook.says(204)
    async with names(monkeypatch, [["127.0.0.1"], ["127.0.0.1"]]):
        await post(to_name(hook, allow_private=True), b"{}", uuid4())
        with pytest.raises(PostError):
            await post(to_name(hook, allow_private=False), b"{}", uuid4())


async def test_a_proxy_in_the_environment_is_not_asked(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    hook.says(204)
    assert await run(HttpEngine(), options_for(hook)) == NoReply()


# callback ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """Like the application's own."""

    url: str
    endpoint: str = "shop"
    secret_env: str | None = "HOOK_SECRET"
    secret_file: Path | None = None
    allow_private: bool = True


REPLY = OutboxRow(
    outbox_id=UUID(int=7),
    lane=LaneKey("send:api/shop/c"),
    seq=1,
    conversation=Conversation("api/shop/c"),
    request_id=RequestId(UUID(int=8)),
    system_id=SystemId("System1/tool"),
    channel="api",
    endpoint="shop",
    thread="c",
    recipient="customer",
    reply_to="event-1",
    text="grüße",
    state="sending",
    attempts=1,
    lease=1,
    platform_message_id=None,
    error=None,
    created_at=datetime(2026, 11, 21, 12, tzinfo=UTC),
    settled_at=None,
)


async def send(hook: Hook, **setting: Any) -> Receipt:
    return await callbacks_from([Setting(**{"url": hook.url, **setting})])["shop"].send(REPLY)


async def test_a_reply_is_posted_and_signed(hook: Hook) -> None:
    hook.says(200, '{"id": "m-1"}')
    assert await send(hook) == Receipt("sent", platform_message_id="m-1")
    [body], [headers] = hook.bodies, hook.headers
    timestamp, signature = headers["Switchboard-Timestamp"], headers["Switchboard-Signature"]
    seen = verify(SECRET.encode(), timestamp=timestamp, signature=signature, body=body, now=time.time())
    assert seen == "valid"
    assert headers["Idempotency-Key"] == str(REPLY.outbox_id)
    assert json.loads(body) == {
        "schema_version": "reply.v1",
        "outbox_id": str(REPLY.outbox_id),
        "request_id": str(REPLY.request_id),
        "conversation": "api/shop/c",
        "thread": "c",
        "reply_to": "event-1",
        "system_id": "System1/tool",
        "text": "grüße",
        "created_at": "2026-11-21T12:00:00Z",
    }


@pytest.mark.parametrize(
    ("status", "body", "outcome", "platform_id", "delay"),
    [
        (200, '{"id": 17}', "sent", "17", 0.0),
        (202, '{"id": "a\\u0000b"}', "sent", "ab", 0.0),
        (200, '{"id": {}}', "sent", None, 0.0),
        (200, "thanks", "sent", None, 0.0),
        (204, "", "sent", None, 0.0),
        (408, "", "retryable", None, 7.0),
        (425, "", "retryable", None, 7.0),
        (429, "", "retryable", None, 7.0),
        (500, "", "retryable", None, 7.0),
        (503, "", "retryable", None, 7.0),
        (302, "", "failed", None, 0.0),
        (400, "no\x00 such", "failed", None, 0.0),
        (410, "", "failed", None, 0.0),
    ],
)
async def test_receipts(
    hook: Hook, status: int, body: str, outcome: str, platform_id: str | None, delay: float
) -> None:
    hook.says(status, body, Retry_After="7")
    receipt = await send(hook)
    assert (receipt.outcome, receipt.platform_message_id, receipt.delay) == (outcome, platform_id, delay)
    assert (receipt.error is None) == (outcome == "sent")


async def test_a_callback_that_is_not_there_is_tried_again(hook: Hook) -> None:
    assert (await send(hook, url=f"http://127.0.0.1:{free_port()}/")).outcome == "retryable"


async def test_a_callback_at_a_private_address_has_failed(hook: Hook) -> None:
    receipt = await send(hook, allow_private=False)
    assert receipt.outcome == "failed"
    assert "not a public address" in str(receipt.error)


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ({"secret_env": "NO_SUCH_SECRET"}, "'shop'.*NO_SUCH_SECRET"),
        ({"secret_env": None}, "'shop'.*secret_env or secret_file"),
        ({"url": "example.org"}, "'shop'.*http"),
    ],
)
def test_a_wrong_callback_stops_the_start(setting: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        callbacks_from([Setting(**{"url": "https://example.org/", **setting})])


def test_an_endpoint_has_one_callback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    with pytest.raises(ConfigurationError, match="two callbacks"):
        callbacks_from([Setting("https://a.example/"), Setting("https://b.example/")])


# memo -------------------------------------------------------------------------------------------------------------

NOTES = SystemId("System1/notes")


@dataclass
class Desk:
    """A worker's place at a real database: accepts messages and lets the memo engine answer them."""

    database: Database
    worker: int

    async def accept(self, given: Envelope, decision: Decision) -> Message:
        request_id = RequestId(new_uuid7())
        message = Message(
            request_id, conversation(given), str(request_id), given, b"{}", "application/json", datetime.now(UTC)
        )
        await inbox.accept(self.database, [(message, decision)])
        return message

    async def claim(self) -> tuple[Item, Turn]:
        [item] = await lanes.claim(self.database, self.worker, [1, 1, 1, 1])
        [work] = await lanes.load_work(self.database, [item])
        return item, Turn(work, Member(work.system_id, work.team_id, 1, "memo"), item.attempts)

    async def turn(self) -> TurnResult:
        """Claim the next delivery or notice, and do it."""
        item, turn = await self.claim()
        journal = await Journal.open(self.database, self.worker, item)
        result = await MemoEngine(self.database).run(turn, journal)
        settlement = Settlement(item, "declined", "memo", datetime.now(UTC), hand_on=False)
        [settled] = await lanes.settle(self.database, self.worker, [settlement])
        assert settled.ok
        return result

    async def ask(self, text: str, *, to: SystemId = NOTES, **more: Any) -> str:
        """Send a message to a butler; its answer. `more` as of `envelope`."""
        given = envelope(text, **more)
        await self.accept(given, Decision(1, (Chosen(to, ROOT),), (), ()))
        result = await self.turn()
        assert isinstance(result, Answer)
        return result.text

    async def memos(self) -> list[asyncpg.Record]:
        return list(await self.database.rows("select * from memo order by created_at"))


@asynccontextmanager
async def a_desk(url: str) -> AsyncIterator[Desk]:
    database = await Database.connect(url, size=2)
    try:
        await migrate(database)
        connection = await database.dedicated()
        try:
            worker = await lanes.register_worker(connection, host="test", pid=1, version="0", ttl=600, lock=True)
            yield Desk(database, worker)
        finally:
            await connection.close()
    finally:
        await database.close()


@pytest.fixture
async def desk(database_url: str) -> AsyncIterator[Desk]:
    async with a_desk(database_url) as made:
        yield made


def earlier(answer: str) -> list[str]:
    """The earlier memos in an answer, without their dates."""
    return [line.split(": ", 1)[1] for line in answer.splitlines() if line.startswith("- ")]


async def test_the_memo_engine_files_and_says_so(desk: Desk) -> None:
    answer = await desk.ask("Buy milk\n tomorrow")
    assert answer == (
        "No model is configured, so I have filed this and searched what I filed before. "
        "Filed: “Buy milk tomorrow”. Nothing I filed earlier resembles it."
    )
    [memo] = await desk.memos()
    assert (memo["text"], memo["system_id"], memo["private"]) == ("Buy milk\n tomorrow", NOTES, True)
    assert memo["person"] == "telegram/bot%3Ahouse/alice"


async def test_the_nearest_earlier_memos_come_first_and_are_three(desk: Desk) -> None:
    for text in ("milk", "the dentist is on Monday", "buy milk and bread", "bread", "milk and honey and bread"):
        await desk.ask(text)
    found = earlier(await desk.ask("buy milk, bread"))
    assert found[0] == "buy milk and bread"
    assert len(found) == 3
    assert "the dentist is on Monday" not in found


async def test_one_persons_memos_are_never_shown_to_another(desk: Desk) -> None:
    await desk.ask("the safe code is 1234", sender="alice")
    strangers: list[dict[str, Any]] = [
        {"sender": "bob"},
        {"sender": "Alice"},
        {"sender": "alice", "channel": "email"},
        {"sender": "alice", "endpoint": "bot:office"},
        {"sender": "house/alice", "endpoint": "bot"},
    ]
    for stranger in strangers:
        assert "1234" not in await desk.ask("what is the safe code?", **stranger)
    assert earlier(await desk.ask("what is the safe code?", sender="alice")) == ["the safe code is 1234"]


async def test_a_person_finds_what_was_said_in_another_conversation(desk: Desk) -> None:
    await desk.ask("the wifi password is hidden", thread="one", chat_type="private")
    found = earlier(await desk.ask("wifi password?", thread="two", chat_type="private"))
    assert found == ["the wifi password is hidden"]


async def test_a_group_hears_only_what_was_said_in_it(desk: Desk) -> None:
    await desk.ask("party for Carol: secret", sender="alice")
    await desk.ask("party plan: other group", sender="alice", thread="g2", chat_type="group")
    await desk.ask("party plan: cake", sender="bob", thread="g1", chat_type="group")
    answer = await desk.ask("what about the party?", sender="alice", thread="g1", chat_type="supergroup")
    assert earlier(answer) == ["party plan: cake"]


async def test_a_group_that_shares_the_key_of_a_private_chat_hears_nothing_of_it(desk: Desk) -> None:
    # Without a thread the conversation is known by its sender, in private and in a group alike.
    await desk.ask("the safe code is 1234", sender="alice", chat_type="private")
    for chat_type in ("group", "supergroup", "channel"):
        answer = await desk.ask("what is the safe code?", sender="alice", chat_type=chat_type)
        assert "1234" not in answer


@pytest.mark.parametrize(
    "group",
    [
        {"thread": "-1001"},
        {"raw": {"update_id": 1, "message": {"chat": {"id": -1001, "type": "group"}, "from": {"id": 42}}}},
        {"channel": "slack", "thread": "C0123"},
    ],
)
async def test_a_chat_that_does_not_say_what_it_is_may_be_a_group(desk: Desk, group: dict[str, Any]) -> None:
    channel = group.get("channel", "telegram")
    await desk.ask("the safe code is 1234", sender="42", channel=channel, chat_type="private")
    assert "1234" not in await desk.ask("what is the safe code?", sender="42", **group)


@pytest.mark.parametrize("alone", [{"thread": "42"}, {}, {"channel": "email", "thread": "<1@x>"}, {"channel": "cli"}])
async def test_a_chat_in_which_nobody_else_can_be_is_private(desk: Desk, alone: dict[str, Any]) -> None:
    channel = alone.get("channel", "telegram")
    await desk.ask("the safe code is 1234", sender="42", channel=channel, thread="before", chat_type="private")
    assert "1234" in await desk.ask("what is the safe code?", sender="42", **alone)


async def test_several_writers_are_a_group(desk: Desk) -> None:
    await desk.ask("the safe code is 1234", sender="alice")
    given = envelope_json("what is the safe code?", sender="alice", thread="t")
    given["sender"]["participants"] = {"alice": "Alice", "bob": "Bob"}
    await desk.accept(Envelope.model_validate(given), Decision(1, (Chosen(NOTES, ROOT),), (), ()))
    assert "1234" not in str(await desk.turn())


async def test_butlers_do_not_share_their_memos(desk: Desk) -> None:
    await desk.ask("milk", to=SystemId("System1/shopping"))
    assert earlier(await desk.ask("milk")) == []


async def test_a_repeated_turn_files_once(desk: Desk) -> None:
    await desk.accept(envelope("milk"), Decision(1, (Chosen(NOTES, ROOT),), (), ()))
    item, turn = await desk.claim()
    answers = [await MemoEngine(desk.database).run(turn, MemoryJournal({}, item)) for _ in range(2)]
    assert answers[0] == answers[1]
    assert len(await desk.memos()) == 1


async def test_a_dead_letter_is_filed_and_shown_to_nobody(desk: Desk) -> None:
    handler = SystemId("System4/root")
    unrouted = Unrouted(ROOT, "no_route", "canary in the reason", handler)
    await desk.accept(envelope("where am I"), Decision(1, (), (unrouted,), ()))
    assert isinstance(await desk.turn(), NoReply)
    [memo] = await desk.memos()
    assert memo["text"] == "Dead letter (no_route): canary in the reason\nwhere am I"
    for chat_type in ("private", "group"):
        assert "canary" not in await desk.ask("where am I", to=handler, chat_type=chat_type)


async def test_attachments_are_filed_by_name(desk: Desk) -> None:
    given = envelope_json("")
    given["payload"]["attachments"] = [
        {"media_type": "image/png", "filename": "roof.png", "size_bytes": 1},
        {"media_type": "audio/ogg", "size_bytes": 1},
    ]
    await desk.accept(Envelope.model_validate(given), Decision(1, (Chosen(NOTES, ROOT),), (), ()))
    assert "[roof.png] [audio/ogg]" in str(await desk.turn())
    assert earlier(await desk.ask("where is roof.png")) == ["[roof.png] [audio/ogg]"]


async def test_a_very_long_name_is_still_one_person(desk: Desk) -> None:
    long = "é" * 511
    await desk.ask("milk", sender=long + "1")
    assert earlier(await desk.ask("milk", sender=long + "2")) == []
    assert earlier(await desk.ask("milk", sender=long + "1")) == ["milk"]
    assert len(person_of(envelope(sender=long))) == 400


HOSTILE = [
    "it's \\ 'quoted' | & ! <-> ( ) :* ''",
    "foo:* bar:A 'baz",
    "'; drop table memo; --",
    "\\' \\\\ \\",
    "a'b\\c'd http://x.org/a'b?c='d' e-mail@ex'ample.org",
    "''''",
    "& | !",
    "İıßŉ ǰΐ",
    "a\tb\u2028c\u00a0d\ufeff",
    "$1 $2 %s %(x)s {0}",
    "/path/to/the'file <tag attr='x'> &amp;",
]


@pytest.mark.parametrize("text", HOSTILE)
async def test_hostile_text_is_only_text(desk: Desk, text: str) -> None:
    await desk.ask("unrelated words", sender="alice")
    await desk.ask(text, sender="alice")
    found = earlier(await desk.ask(text, sender="alice"))
    assert found in ([excerpt(text)], [])
    assert "unrelated words" not in found


HUGE = {
    "one word": "x" * 1_000_000,
    "many words": " ".join(f"w{n}" for n in range(150_000)),
    "two letters": " ".join(chr(0x4E00 + n % 20000) + chr(0x4E00 + n // 2) for n in range(30_000)),
    "four bytes": " ".join(chr(0x20000 + n % 40000) for n in range(300_000)),
    "hyphens": "-".join(f"a{n}" for n in range(100_000)),
    "paths": " ".join(f"http://h{n}.org/p{n}/q" for n in range(40_000)),
    "quotes": "'\\" * 500_000,
}


@pytest.mark.parametrize("name", HUGE)
async def test_a_huge_text_is_filed_and_found(desk: Desk, name: str) -> None:
    def memo(text: str) -> Memo:
        return Memo(uuid4(), Conversation("a/b/c"), NOTES, RequestId(new_uuid7()), "a/b/c", True, text)

    first, second = memo(HUGE[name]), memo(HUGE[name])
    assert await file_memo(desk.database, first)
    assert not await file_memo(desk.database, first)
    async with asyncio.timeout(10):
        found = await nearest_memos(desk.database, second, 3)
    assert [f.memo_id for f in found] in ([first.memo_id], [])
    assert len(answer_text(second.text, found)) < 1000


async def test_only_earlier_messages_are_found(desk: Desk) -> None:
    def memo(request_id: UUID) -> Memo:
        return Memo(uuid4(), Conversation("a/b/c"), NOTES, RequestId(request_id), "a/b/c", True, "milk")

    first, second = new_uuid7(), new_uuid7()
    await file_memo(desk.database, memo(second))
    assert await nearest_memos(desk.database, memo(first), 3) == []
