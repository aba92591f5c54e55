"""Programs of turns that a hijacked model, or a hijacked program, steers against us: what they reach and cost.

`running.py` has the programs, which play claude-code; `test_runners.py` what honest ones do.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from switchboard.core.turns.asking import render_arguments
from switchboard.domain.llm import OfferedTool, ToolCall, ToolResult
from switchboard.llm.tool_server import serving
from switchboard.ports.engine import Answer, Decided, Effect, EngineFailure, Parked, Turn
from switchboard.testing.engines import MemoryJournal, a_turn
from tests.integration import test_runners
from tests.running import program, spec_of, turns_by
from tests.turning import OWNER, NoApprovals, Noting
from tests.waiting import eventually

MINE = {"owners": OWNER}
scratch = test_runners.scratch


class Counting(NoApprovals):
    """What waits is what this journal was asked to wait for."""

    def __init__(self, journal: MemoryJournal) -> None:
        self._journal = journal

    async def count(self, turn: Turn) -> int:  # noqa: ARG002
        await asyncio.sleep(0)  # as a database would, it lets others go on
        return len(self._journal.record.asks)


# Calls ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("effect", ["effectful", "idempotent"])
async def test_calls_at_once_are_no_more_than_calls_one_after_the_other(tmp_path: Path, effect: Effect) -> None:
    pay = Noting("pay", effect)
    body = """
    for n in range(60):
        send("tools/call", name="pay", arguments={"text": str(n)})
    said = [json.loads(server.stdout.readline())["result"]["content"][0]["text"] for n in range(44)]
    end("Some are paid.")
    """
    async with turns_by(tmp_path, body, [pay]) as engine:
        result = await engine.run(a_turn({**MINE, "own": ["pay"]}), MemoryJournal())
    assert isinstance(result, Answer)
    assert len(pay.calls) == 40


@pytest.mark.parametrize("effect", ["effectful", "idempotent"])
async def test_calls_at_once_ask_people_no_more_than_they_may(tmp_path: Path, effect: Effect) -> None:
    body = """
    for n in range(30):
        send("tools/call", name="pay", arguments={"text": str(n)})
    server.stdout.readline()  # what is read after it has ended is not carried out
    end("I wait.")
    """
    pay, journal = Noting("pay", effect), MemoryJournal()
    async with turns_by(tmp_path, body, [pay], approvals=Counting(journal)) as engine:
        with pytest.raises(Parked):
            await engine.run(a_turn({**MINE, "approve": ["pay"]}), journal)
    assert pay.calls == []
    assert len(journal.record.asks) <= 20


async def test_a_tool_that_is_not_granted_is_not_there(tmp_path: Path) -> None:
    pay, look = Noting("pay", "effectful"), Noting("look")
    body = """
    for name in ("pay", "look:0", "Look", "look ", "../look", "execute_command", "", "made"):
        answer = ask("tools/call", name=name, arguments={"text": "x"})
        assert answer["error"]["code"] == -32602, answer
    for method in ("tools/call/pay", "resources/read", "completion/complete", "sampling/createMessage"):
        assert ask(method, name="look")["error"]["code"] == -32601
    end("Nothing there.")
    """
    async with turns_by(tmp_path, body, [pay, look]) as engine:
        result = await engine.run(a_turn({**MINE, "tools": ["look"]}), MemoryJournal())
    assert isinstance(result, Answer), result
    assert (result.text, pay.calls, look.calls) == ("Nothing there.", [], [])


async def test_what_is_called_after_the_stop_is_not_carried_out(tmp_path: Path) -> None:
    """A program that is asked to end has a moment left."""
    pay = Noting("pay", "effectful")
    body = """
    import socket
    direct = socket.socket(socket.AF_UNIX)
    os.chdir(os.path.dirname(at["args"][-1]))
    direct.connect("mcp")
    def pay(text):
        params = {"name": "pay", "arguments": {"text": text}}
        asked = {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params}
        direct.sendall(json.dumps(asked).encode() + b"\\n")
        direct.recv(1000)
    def late(*_):
        mark("asked")
        pay("late")
    signal.signal(signal.SIGTERM, late)
    pay("in time")
    say("I am at it.")
    mark("ready")
    signal.pause()
    """
    stop = asyncio.Event()

    async def ready() -> bool:
        return (tmp_path / "ready").exists()

    async with turns_by(tmp_path, body, [pay]) as engine:
        running = asyncio.create_task(engine.run(replace(a_turn(MINE), stop=stop), MemoryJournal()))
        await eventually(ready)
        stop.set()
        await running
    assert (tmp_path / "asked").exists()
    assert [arguments for _, arguments in pay.calls] == [{"text": "in time"}]


ARGUMENTS = {
    "a key twice": '{"text": "one cent", "text": "all"}',
    "a key twice, once escaped": '{"text": "one cent", "\\u0074ext": "all"}',
    "unlike forms of one letter": '{"text": "\\u00e9 e\\u0301"}',
    "marks of direction": '{"text": "\\u202egro.live\\u202c \\u200b"}',
    "what steers a terminal": '{"text": "\\u001b[2J\\u001b]0;x\\u0007\\r\\n```"}',
    "half a character": '{"text": "\\ud83d and \\u0000"}',
    "tags": '{"text": "\\udb40\\udc41"}',
    "a float that is whole": '{"text": "x", "n": 1.0}',
    "a float of many digits": '{"text": "x", "n": 0.1000000000000000055511151231257827}',
    "minus nothing": '{"text": "x", "n": -0.0}',
    "a large number": '{"text": "x", "n": 9007199254740993}',
    "one that is larger": '{"text": "x", "n": 123456789012345678901234567890}',
    "deep": '{"text": "x", "n": ' + "[" * 200 + "]" * 200 + "}",
    "long": '{"text": "' + "x" * 500_000 + ' all"}',
}


@pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=ARGUMENTS)
async def test_what_is_shown_of_a_call_is_what_is_carried_out(tmp_path: Path, arguments: str) -> None:
    """Through the journal, as a worker reads it that goes on after the approval."""
    (tmp_path / "arguments").write_text(arguments)
    body = """
    if len((here / "prompts").read_text().splitlines()) == 1:
        line = '{"jsonrpc": "2.0", "id": 8, "method": "tools/call", "params": {"name": "pay", "arguments": %s}}'
        server.stdin.write(line % (here / "arguments").read_text() + "\\n")
        server.stdin.flush()
        server.stdout.readline()
    end("It is paid.")
    """
    pay, first = Noting("pay", "effectful"), MemoryJournal()
    async with turns_by(tmp_path, body, [pay], approvals=Counting(first)) as engine:
        turn = a_turn({**MINE, "approve": ["pay"]})
        with pytest.raises(Parked):
            await engine.run(turn, first)
        [(path, ask)] = first.record.asks.items()
        shown = json.loads("{" + ",".join(render_arguments(ask.arguments).splitlines()) + "}")
        first.record.ended = msgspec.json.decode(msgspec.json.encode(first.record.ended))
        first.record.ended[path] = Decided({"decision": "approved", "digest": ask.digest})
        result = await engine.run(turn, MemoryJournal(first.record))
    assert isinstance(result, Answer)
    [(_, carried_out)] = pay.calls
    assert carried_out == shown
    assert (
        render_arguments(ask.arguments).isprintable() or render_arguments(ask.arguments).count("\n") == len(shown) - 1
    )


# The socket -----------------------------------------------------------------------------------------------------------


async def connected(place: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    directory = os.open(place, os.O_RDONLY)
    try:
        return await asyncio.open_unix_connection(f"/proc/self/fd/{directory}/mcp")
    finally:
        os.close(directory)


def calling(tool: str, number: int = 1) -> bytes:
    params = {"name": tool, "arguments": {}}
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}).encode() + b"\n"


async def nothing(call: ToolCall) -> ToolResult:
    raise AssertionError(call)


TOOLS = (OfferedTool("pay", "pays", {"type": "object"}),)


async def test_nobody_is_answered_when_the_turn_is_over(tmp_path: Path) -> None:
    made: list[ToolCall] = []

    async def carry_out(call: ToolCall) -> ToolResult:
        made.append(call)
        return ToolResult("", "paid", ok=True)

    async with serving(tmp_path, TOOLS, carry_out):
        reader, writer = await connected(tmp_path)
        writer.write(calling("pay"))
        assert b"paid" in await reader.readline()
    with suppress(ConnectionError):
        writer.write(calling("pay", 2))
        assert await reader.read() == b""
    assert len(made) == 1
    writer.close()


async def test_who_calls_without_end_is_read_no_further(tmp_path: Path) -> None:
    """Else a program fills the memory of the worker, in which other turns run."""
    begun, go_on = Counter[str](), asyncio.Event()

    async def carry_out(call: ToolCall) -> ToolResult:
        begun[call.name] += 1
        await go_on.wait()
        return ToolResult("", "paid", ok=True)

    async with serving(tmp_path, TOOLS, carry_out):
        connections = [await connected(tmp_path) for _ in range(3)]
        for _, writer in connections:
            writer.writelines(calling("pay", n) for n in range(200))

        async def many() -> bool:
            return begun["pay"] >= 64

        await eventually(many)
        for _ in range(200):
            await asyncio.sleep(0)
        assert begun["pay"] == 64
        go_on.set()
        for reader, writer in connections:
            answers = [json.loads(await reader.readline())["id"] for _ in range(200)]
            assert sorted(answers) == list(range(200))
            writer.close()


async def test_who_does_not_read_the_answers_is_read_no_further(tmp_path: Path) -> None:
    """The list of tools is much longer than the request for it."""
    listed = 0

    class Schema(Mapping[str, object]):
        def __getitem__(self, key: str) -> object:
            return {"type": "object", "title": "x" * 500_000}[key]

        def __len__(self) -> int:
            return 2

        def __iter__(self) -> Iterator[str]:
            nonlocal listed
            listed += 1
            return iter(("type", "title"))

    async def listed_once() -> bool:
        return listed > 0

    async with serving(tmp_path, (OfferedTool("pay", "pays", Schema()),), nothing):
        _, writer = await connected(tmp_path)
        writer.write(b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}\n' * 1000)
        await eventually(listed_once)
        for _ in range(1000):
            await asyncio.sleep(0)
        assert listed < 10
        writer.close()


@pytest.mark.parametrize(
    "line",
    [
        b"no JSON",
        b'{"id": 1, "method": "tools/call", "params": {"name": "pay", "arguments": {"n": NaN}}}',
        b'{"n": 1e999}',
        b'{"n": ' + b"9" * 5000 + b"}",
        b'{"n": ' + b"[" * 100_000,
    ],
)
async def test_what_is_no_json_is_said_to_be_none(tmp_path: Path, line: bytes) -> None:
    async with serving(tmp_path, TOOLS, nothing):
        reader, writer = await connected(tmp_path)
        writer.write(line + b"\n")
        answer = json.loads(await reader.readline())
        assert (answer["id"], answer["error"]["code"]) == (None, -32700)
        writer.close()


# What it says, and leaves ---------------------------------------------------------------------------------------------


SECRET = "sk-live-0123456789abcdef"


@pytest.mark.parametrize(
    "body",
    [
        "sys.exit(os.environ['ANTHROPIC_API_KEY'])",
        "end('401 of ' + os.environ['ANTHROPIC_API_KEY'], is_error=True)",
        "print('what is ' + os.environ['ANTHROPIC_API_KEY'])",
        "end(os.environ['ANTHROPIC_API_KEY'], stop_reason='refusal')",
    ],
)
async def test_its_key_is_in_nothing_that_is_said_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], body: str
) -> None:
    monkeypatch.setenv("TEST_KEY", SECRET)
    one = spec_of(program(tmp_path, body), api_key_env="TEST_KEY")
    async with turns_by(tmp_path, "", specs=[one]) as engine:
        try:
            said: object = await engine.run(a_turn(MINE), MemoryJournal())
        except EngineFailure as failure:
            said = failure
    assert SECRET not in f"{said!r} {said} {capfd.readouterr()}"


async def test_its_directory_is_its_own_and_what_it_links_to_is_left_alone(tmp_path: Path) -> None:
    """Other users read nothing of a prompt there, and what a run leaves is removed without following links."""
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("kept")
    body = """
    place = pathlib.Path.cwd().parent
    assert place.stat().st_mode & 0o777 == 0o700
    for file in place.rglob("*"):
        assert file.name in ("home", "work", "mcp", "held") or file.stat().st_mode & 0o77 == 0, file
    os.symlink(here / "precious", place / "link")
    os.rmdir(place / "home")
    os.symlink(here / "precious", place / "home")
    end("Linked.")
    """
    async with turns_by(tmp_path, body) as engine:
        result = await engine.run(a_turn(MINE, "my secret"), MemoryJournal())
    assert isinstance(result, Answer)
    assert (precious / "file").read_text() == "kept"


@pytest.mark.parametrize(
    "piece",
    [
        'dict(type="assistant", message={"id": str(n), "usage": {"input_tokens": 1}, "content": []})',
        'dict(type="assistant", message={"id": str(n), "content": [{"type": "tool_use", "name": "x"}]})',
        'dict(type="system", subtype="init", mcp_servers=[{"name": "x" * 400, "status": "failed"}])',
        'dict(type="stream_event", event={"type": "content_block_delta", "delta": {"text": "x" * 400}})',
    ],
)
async def test_one_that_writes_without_end_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: str
) -> None:
    monkeypatch.setattr("switchboard.llm.running._MOST_OUTPUT", 2_000_000)
    body = f"""
    n = 0
    while True:
        n += 1
        line(filler="f" * 20_000, **{piece})
    """
    async with turns_by(tmp_path, body) as engine:
        with pytest.raises(EngineFailure) as caught:
            await engine.run(a_turn(MINE), MemoryJournal())
    assert "wrote more than" in str(caught.value)
