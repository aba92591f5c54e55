"""More than can be answered at a time: bounds per connection and per token, turns, and few lines in the log."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final, get_args
from urllib.parse import urlsplit

import pytest
import uvicorn
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import Receive, Scope, Send
from structlog.testing import capture_logs
from uvicorn.server import ServerState

from switchboard.server.connections import Connections
from switchboard.server.fastpath import heads
from switchboard.server.fastpath.heads import MOST_AHEAD, BoundedHttp
from switchboard.server.turns import MOST_EAGER, RequestPace, StrangerKind, StrangerRequest, StrangersTurns, TokenPaces
from switchboard.server.ws import protocol
from switchboard.testing.connectors import in_no_time
from tests.gateway import client
from tests.integration.test_fastpath import Wire, cut, unlimited_turns
from tests.servers import Opened
from tests.waiting import SOON, eventually

# Requests in a row --------------------------------------------------------------------------------------------------


@dataclass
class House:
    """An application whose answers wait until they may go out; each says the path and the size of the body."""

    may_answer: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    asked: list[str] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked.append(scope["path"])
        await self.may_answer.acquire()
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            size, more = size + len(message.get("body", b"")), message.get("more_body", False)
        said = f"<{scope['path']} {size}>".encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(said))]})
        await send({"type": "http.response.body", "body": said})


class Reading(Wire):
    """A wire that tells whether it is read."""

    def __init__(self) -> None:
        super().__init__()
        self.paused = False

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


def connected(
    house: House, wire: Wire, turns: StrangersTurns | None = None, connections: Connections | None = None
) -> BoundedHttp:
    config = uvicorn.Config(house, http=BoundedHttp, log_config=None, lifespan="off", server_header=False)
    config.load()
    state = {
        "connections": Connections(8) if connections is None else connections,
        "turns": unlimited_turns() if turns is None else turns,
    }
    connection = BoundedHttp(config, ServerState(), state, asyncio.get_running_loop())
    connection.connection_made(wire)
    return connection


def ahead(connection: BoundedHttp) -> int:
    """Requests that are parsed and not answered."""
    return len(connection.pipeline) + (bool(connection.cycle) and not connection.cycle.response_complete)


def request(number: int, body: bytes, *, chunked: bool) -> bytes:
    head = b"POST /%d HTTP/1.1\r\nHost: x\r\n" % number
    if chunked and body:
        return head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    return head + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


BODIES: Final = st.one_of(st.binary(max_size=40), st.sampled_from([b"\n\r\n" * 50, b"0\r\n\r\n" * 9, b"x" * 3000]))


async def test_at_most_eight_requests_are_parsed_ahead_and_none_is_lost() -> None:
    made: list[tuple[list[tuple[bytes, bool]], int]] = [([(b"", False)] * 1000, 20_000)]

    @settings(max_examples=60, database=None)
    @given(st.lists(st.tuples(BODIES, st.booleans()), min_size=1, max_size=40), st.sampled_from([1, 7, 100, 100_000]))
    def collect(bodies: list[tuple[bytes, bool]], every: int) -> None:
        made.append((bodies, every))

    collect()
    for bodies, every in made:
        await _answered_in_order(bodies, every)


async def _answered_in_order(bodies: Sequence[tuple[bytes, bool]], every: int) -> None:
    house, wire = House(), Reading()
    connection = connected(house, wire)
    data = b"".join(request(n, body, chunked=chunked) for n, (body, chunked) in enumerate(bodies))
    for piece in cut(data, every):
        while wire.paused:  # the transport gives nothing meanwhile
            assert ahead(connection) <= MOST_AHEAD
            house.may_answer.release()
            await asyncio.sleep(0)
        connection.data_received(piece)
        assert ahead(connection) <= MOST_AHEAD
    expected = [f"<{f'/{n}'} {len(body)}>".encode() for n, (body, _) in enumerate(bodies)]

    async def all_answered() -> bool:
        assert ahead(connection) <= MOST_AHEAD
        house.may_answer.release()
        return wire.written.count(b"</") == len(expected)

    async with asyncio.timeout(SOON):
        while not await all_answered():
            await asyncio.sleep(0)
    places = [wire.written.index(said) for said in expected]
    assert places == sorted(places)
    assert not wire.paused
    connection.connection_lost(None)


async def test_a_full_connection_is_not_read_and_leaves_nothing_when_lost() -> None:
    house, wire = House(), Reading()
    connection = connected(house, wire)
    connection.data_received(request(1, b"", chunked=False) * 2000)
    await asyncio.sleep(0)
    assert (ahead(connection), house.asked, wire.paused) == (MOST_AHEAD, ["/1"], True)
    connection.connection_lost(ConnectionResetError())
    for _ in range(20):
        house.may_answer.release()
        await asyncio.sleep(0)
    assert (len(connection.pipeline), house.asked) == (0, ["/1"])


async def test_a_body_that_nobody_reads_stops_the_reading() -> None:
    """Also in chunks, of which only so many are parsed at a time."""
    wire = Reading()
    connection = connected(House(), wire)
    connection.data_received(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    given = 0

    async def paused() -> bool:
        nonlocal given
        for _ in range(100):
            if not wire.paused:
                connection.data_received(b"1\r\nx\r\n" * 1000)
                given += 1
            await asyncio.sleep(0)
        return given < 200 and wire.paused

    await eventually(paused)
    assert len(connection.cycle.body) < 200_000
    connection.connection_lost(None)


async def test_a_head_of_many_fields_is_refused() -> None:
    for fields, status in ((heads.MOST_FIELDS - 1, b"200"), (heads.MOST_FIELDS, b"431")):
        house, wire = House(asyncio.Semaphore(9)), Reading()
        connection = connected(house, wire)
        connection.data_received(b"POST / HTTP/1.1\r\nContent-Length: 3\r\n" + b"a: b\r\n" * fields + b"\r\nabc")
        await eventually(partial(_written, wire))
        assert wire.written.startswith(b"HTTP/1.1 %b " % status)
        connection.connection_lost(None)


async def _written(wire: Wire) -> bytes:
    return wire.written


# Turns --------------------------------------------------------------------------------------------------------------


def test_a_pace_allows_a_second_at_once_and_then_so_many_a_second() -> None:
    pace, begun = RequestPace(10), []
    now = 100.0
    for _ in range(25):
        now += pace.wait(now)
        pace.count(now)
        begun.append(round(now - 100, 3))
    assert begun[:11] == [0.0] * 11
    assert begun[11:] == [round(0.1 * n, 3) for n in range(1, 15)]


class Caller:
    """A connection; whether it was cut off."""

    cut = False

    def abort(self) -> None:
        self.cut = True


async def test_strangers_take_turns_and_who_has_sent_more_comes_last() -> None:
    turns, begun = StrangersTurns(asyncio.get_running_loop(), per_second=100.0), list[int]()
    callers = [Caller() for _ in range(200)]
    for n, caller in enumerate(callers):
        turns.take(caller, partial(begun.append, n), StrangerRequest(eager=n < 190))
    waiting = [n for n in range(200) if n not in begun]
    assert len(turns) == MOST_EAGER + 10
    cut = [n for n, caller in enumerate(callers) if caller.cut]
    assert cut == waiting[: len(waiting) - MOST_EAGER - 10]
    turns.leave(callers[150])
    turns.leave(callers[195])
    turns.put_behind(callers[194])
    await eventually(partial(_is_empty, turns))
    rest = [n for n in waiting if n not in {*cut, 150, 194, 195}]
    assert begun[len(begun) - 71 :] == [*(n for n in rest if n >= 190), *(n for n in rest if n < 190), 194][-71:]


async def test_an_idle_connection_displaces_no_request_that_waits_for_its_turn() -> None:
    turns, connections = StrangersTurns(asyncio.get_running_loop(), per_second=1e-3), Connections(8)
    wires = [Wire() for _ in range(100)]
    first, waits = [connected(House(asyncio.Semaphore(9)), wire, turns, connections) for wire in wires[:2]]
    for one in (first, waits):
        one.data_received(request(1, b"", chunked=False))
    assert (first in turns, waits in turns) == (False, True)
    for wire in wires[2:]:
        connected(House(), wire, turns, connections)
    assert (wires[0].is_closing(), wires[1].is_closing()) == (True, False)
    turns.leave(waits)


@given(st.lists(st.tuples(st.sampled_from(get_args(StrangerKind)), st.booleans()), max_size=40), st.booleans())
def test_a_flood_holds_up_its_own_half_of_a_kind_alone(flood: list[tuple[StrangerKind, bool]], later: bool) -> None:
    async def main() -> None:
        loop, begun = asyncio.get_running_loop(), list[str]()
        turns = StrangersTurns(loop, per_second=100.0)
        while not len(turns):  # what may begin at once has begun
            turns.take(Caller(), lambda: None, StrangerRequest())
        for kind, again in flood:
            turns.take(Caller(), partial(begun.append, kind), StrangerRequest(kind, again))
        turns.take(Caller(), partial(begun.append, "mine"), StrangerRequest("webhook", later))
        while len(turns):
            await asyncio.sleep(0.01)
        before = begun[: begun.index("mine")]
        alike = sum(one == ("webhook", later) for one in flood)
        assert before.count("webhook") <= 2 * alike + 1
        assert all(before.count(kind) <= before.count("webhook") + 1 for kind in ("token", "other"))

    in_no_time(main())


def test_who_shows_a_token_that_was_accepted_lately_is_no_stranger() -> None:
    connections, known, new = Connections(8), Caller(), Caller()
    bearer = [(b"host", b"x"), (b"authorization", b"Bearer sb_c_one")]
    assert connections.is_stranger(known, bearer)
    connections.add_connection(known)
    connections.admit_connection(known, operator=False, shown="Bearer sb_c_one")
    assert not connections.is_stranger(known, [])
    assert not connections.is_stranger(new, bearer)
    assert connections.is_stranger(new, [(b"authorization", b"Bearer sb_c_two")])
    connections.forget_token("Bearer sb_c_one")
    assert connections.is_stranger(new, bearer)


async def _is_empty(turns: StrangersTurns) -> bool:
    return not len(turns)


async def test_connections_with_one_token_share_its_pace_and_others_do_not_wait() -> None:
    now, paces, done = 0.0, TokenPaces(lambda: now), list[str]()

    async def ask(name: str, token: str) -> None:
        await paces.take(token)
        done.append(name)

    async with asyncio.timeout(SOON):
        for n in range(51):
            await ask(f"{n}", "busy")
        late = asyncio.create_task(ask("late", "busy"))
        await ask("other", "quiet")
        await late
    assert done[-2:] == ["other", "late"]


async def test_requests_that_are_given_up_cost_their_token_nothing() -> None:
    paces = TokenPaces(lambda: 0.0)
    given_up = [asyncio.create_task(paces.take("busy")) for _ in range(2_000)]
    await asyncio.sleep(0)
    for one in given_up:
        one.cancel()
    await asyncio.gather(*given_up, return_exceptions=True)
    async with asyncio.timeout(SOON):
        await paces.take("busy")


# WebSockets ---------------------------------------------------------------------------------------------------------

HANDSHAKE: Final = (
    b"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
PING, PONG = b"\x89\x80\0\0\0\0", b"\x8a\x80\0\0\0\0"


def text_frame(message: object) -> bytes:
    data = json.dumps(message).encode()
    return b"\x81\xfe" + len(data).to_bytes(2) + bytes(4) + data


def ask(method: str, number: int = 1, **params: object) -> bytes:
    return text_frame({"type": "req", "id": f"{number}", "method": method, "params": params})


@asynccontextmanager
async def raw_socket(server: Opened) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A WebSocket whose frames the test writes itself, after its handshake."""
    at = urlsplit(server.url)
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    try:
        async with asyncio.timeout(SOON):
            writer.write(HANDSHAKE)
            assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
            yield reader, writer
    finally:
        writer.transport.abort()


async def frame(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """The next frame of the server: its kind, and its payload."""
    kind, size = await reader.readexactly(2)
    if size == 126:
        size = int.from_bytes(await reader.readexactly(2))
    return kind & 0x0F, await reader.readexactly(size)


async def close_code(reader: asyncio.StreamReader) -> int:
    while True:
        kind, payload = await frame(reader)
        if kind == 8:
            return int.from_bytes(payload[:2])


@pytest.mark.parametrize("control", [PING, PONG])
async def test_a_stranger_has_sixteen_control_frames(server: Opened, control: bytes) -> None:
    async with raw_socket(server) as (reader, writer):
        writer.write(control * protocol.STRANGER_FRAMES)
        writer.write(ask("connect", token=server.token))
        answers = [await frame(reader) for _ in range(17 if control == PING else 1)]
        assert json.loads(answers[-1][1])["ok"] is True
        writer.write(PING * 200)
        assert {(await frame(reader))[0] for _ in range(200)} == {10}
    async with raw_socket(server) as (reader, writer):
        writer.write(control * 10_000)
        assert await close_code(reader) == 1008


async def test_what_follows_the_token_waits_until_it_is_known(server: Opened) -> None:
    """Nothing is lost of it, not even a text that a stranger could not send; and nothing is done for a wrong token."""
    large = ask("ping", 2, x="y" * 50_000)
    async with raw_socket(server) as (reader, writer):
        writer.write(ask("connect", token=server.token) + large * 2 + ask("ping", 3) * 20)
        answers = [json.loads((await frame(reader))[1]) for _ in range(23)]
        assert [answer["id"] for answer in answers] == ["1", "2", "2", *["3"] * 20]
    async with raw_socket(server) as (reader, writer):
        writer.write(ask("connect", token="sb_o_wrong") + ask("ping", 2) * 1000)
        assert json.loads((await frame(reader))[1])["error"]["code"] == "unauthenticated"
        assert await close_code(reader) == 1008


async def test_frames_that_do_not_wait_for_the_handshake_come_after_it(
    server: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    at = urlsplit(server.url)
    for frames, code in (
        (PING * 10_000, 1008),
        (b"\xf3\x80\0\0\0\0", 1002),
        (b"\x81\x81\0\0\0\0\xff", 1007),
        (ask("connect", token=server.token) + ask("ping", 2) + b"\x88\x82\0\0\0\0\x03\xe8", 1000),
    ):
        reader, writer = await asyncio.open_connection(at.hostname, at.port)
        async with asyncio.timeout(SOON):
            writer.write(HANDSHAKE + frames)
            assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
            assert await close_code(reader) == code
        writer.transport.abort()
    assert not [record for record in caplog.records if record.exc_info or record.levelname == "ERROR"]


@pytest.mark.parametrize("every", [1, 3, 1000])
async def test_frames_in_pieces_are_whole_messages(server: Opened, every: int) -> None:
    long = {"type": "req", "id": "4", "method": "chat.history", "params": {"session": "s" * 200}}
    frames = ask("ping", 2) + PING + ask("ping", 3) + text_frame(long)
    async with raw_socket(server) as (reader, writer):
        for piece in cut(ask("connect", token=server.token) + frames, every):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        told = [await frame(reader) for _ in range(5)]
        for piece in cut(b"\x88\x82\0\0\0\0\x03\xe8", every):
            writer.write(piece)
        assert await close_code(reader) == 1000
        assert sorted(kind for kind, _ in told) == [1, 1, 1, 1, 10]
        assert [json.loads(data)["id"] for kind, data in told if kind == 1] == ["1", "2", "3", "4"]


REFUSED: Final = {
    "a handshake without a key": HANDSHAKE.replace(b"dGhlIHNhbXBsZSBub25jZQ==", b"none"),
    "a handshake of an old version": HANDSHAKE.replace(b"Version: 13", b"Version: 8"),
    "a handshake that cannot be read": HANDSHAKE.replace(b"\r\n\r\n", b"\r\nContent-Length: 1\r\n\r\na"),
    "a frame of no kind": HANDSHAKE + b"\xf3\x80\0\0\0\0",
    "a text that is none": b"\x81\x81\0\0\0\0\xff",
}


async def test_refused_handshakes_and_frames_are_few_log_lines_and_no_traceback(
    server: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    with capture_logs() as logs:
        for data in [*REFUSED.values()] * 8:
            await _refused(server, data)
    told = [line for line in logs if line["event"] == "a client of the gateway was refused"]
    assert len(told) == protocol.SAY_MOST < 8 * len(REFUSED)
    assert len({line["why"] for line in told}) == len(REFUSED)
    assert not [record for record in caplog.records if record.exc_info or record.levelname == "ERROR"]
    async with client(server.url, server.token) as one:
        assert await one.call("ping")


def test_a_line_says_how_many_refusals_had_none() -> None:
    now = 0.0
    refusals = protocol.Refusals(lambda: now)
    with capture_logs() as logs:
        for _ in range(100):
            refusals.add("1002", ("192.0.2.1", 5))
        now = 61.0
        refusals.add("1002", None)
    assert [line["untold"] for line in logs] == [*[0] * protocol.SAY_MOST, 100 - protocol.SAY_MOST]


async def _refused(server: Opened, data: bytes) -> None:
    """Send it and read until the connection is closed."""
    at = urlsplit(server.url)
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    async with asyncio.timeout(SOON):
        handshake, frames = data, b""
        if not data.startswith(b"GET") or data.startswith(HANDSHAKE):
            handshake, frames = HANDSHAKE, data.removeprefix(HANDSHAKE)
        writer.write(handshake)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(frames)
        await reader.read()
        writer.close()
