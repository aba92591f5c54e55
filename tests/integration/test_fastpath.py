"""`server/fastpath` against the standard way: the same status, headers and bytes, for valid and broken requests."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pytest
import uvicorn
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from switchboard.app.access import Principal
from switchboard.app.messages.intake import Intake
from switchboard.domain.errors import ConfigurationError
from switchboard.server.app import create_app, set_gate
from switchboard.server.connections import Connections
from switchboard.server.entrance import Entrance
from switchboard.server.fastpath.heads import BoundedHttp
from switchboard.server.listener import bind
from switchboard.server.serve import run_server
from switchboard.server.turns import StrangersTurns
from tests.lab import envelope_json
from tests.servers import AGENT, CONNECTOR, Opened
from tests.strategies import broken_envelope_dicts, envelope_dicts
from tests.waiting import SOON
from tests.width import wide

# Past FastAPI ---------------------------------------------------------------------------------------------------------

MAIL: Final = b"From: Joe <joe@example.org>\r\nSubject: Hi\r\nMessage-ID: <1@example.org>\r\n\r\nHow are you?\r\n"
JSON: Final = {"content-type": "application/json"}
RFC822: Final = {"content-type": "message/rfc822"}
STORED: Final = json.dumps(envelope_json("héllo", event="stored", channel="api")).encode()
Answer = tuple[int, list[tuple[bytes, bytes]], bytes]


@dataclass(frozen=True, slots=True)
class Asked:
    """A request after uvicorn; the body comes in the pieces given."""

    path: str
    body: Sequence[bytes]
    headers: dict[str, str]
    query: str = ""
    method: str = "POST"


@dataclass(frozen=True, slots=True)
class Both:
    """The two ways over the same services."""

    fast: ASGIApp
    standard: ASGIApp
    token: str

    async def alike(self, asked: Asked) -> Answer:
        """What both answer."""
        standard = await self.answer(self.standard, asked)
        assert await self.answer(self.fast, asked) == standard
        return standard

    async def answer(self, app: ASGIApp, asked: Asked) -> Answer:
        headers = {"authorization": f"Bearer {self.token}", **asked.headers}
        scope = {
            "type": "http",
            "method": asked.method,
            "path": asked.path,
            "raw_path": asked.path.encode(),
            "query_string": asked.query.encode(),
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers.items()],
            "http_version": "1.1",
            "scheme": "http",
            "server": ("127.0.0.1", 8470),
            "client": ("127.0.0.1", 5),
            "root_path": "",
            "state": {"connections": Connections(8), "connection": Wire()},
        }
        pieces = iter(asked.body or [b""])
        left = len(asked.body or [b""])
        sent: list[Message] = []

        async def receive() -> Message:
            nonlocal left
            left -= 1
            return {"type": "http.request", "body": next(pieces), "more_body": left > 0}

        async def send(message: Message) -> None:
            sent.append(message)

        with suppress(RuntimeError):  # Starlette answers a defect, and then raises it once more for the server's log
            await app(scope, receive, send)
        ours = [header for header in sorted(sent[0]["headers"]) if header[0] != b"request-id"]
        assert len(ours) == len(sent[0]["headers"]) - 1
        return sent[0]["status"], ours, b"".join(one.get("body", b"") for one in sent[1:])


@pytest.fixture
async def ways(server: Opened) -> Both:
    fast, standard = create_app(server.switchboard), create_app(server.switchboard)
    set_gate(standard, standard.services, {})
    both = Both(fast, standard, server.token)
    for asked in (post(STORED), Asked("/v1/ingest", [MAIL], RFC822, "endpoint=me@example.org")):
        await both.answer(fast, asked)  # from here on a duplicate, which is answered with the same id
    return both


def post(*body: bytes, path: str = "/v1/ingest", query: str = "", **headers: str) -> Asked:
    return Asked(path, body, {**JSON, **{name.replace("_", "-"): value for name, value in headers.items()}}, query)


def batch(*items: bytes) -> Asked:
    return post(b'{"envelopes": [' + b", ".join(items) + b"]}", path="/v1/ingest/batch")


CASES: Final[dict[str, tuple[Asked, int]]] = {
    "a message": (post(STORED), 202),
    "in pieces": (post(STORED[:7], b"", STORED[7:]), 202),
    "with blanks around it": (post(b" " + STORED + b"\n"), 202),
    "with a charset": (post(STORED, content_type="Application/JSON; charset=utf-8"), 202),
    "without a type": (post(STORED, content_type=""), 415),
    "of another type": (post(STORED, content_type="text/plain"), 415),
    "no JSON": (post(b"{"), 400),
    "no body": (post(), 400),
    "no UTF-8": (post(b"\xff"), 400),
    "deep": (post(b"[" * 100_000), 422),
    "a stranger": (post(STORED, authorization="Bearer nobody"), 401),
    "without a token": (post(STORED, authorization=""), 401),
    "a parameter": (post(STORED, query="endpont=x"), 422),
    "a parameter twice": (post(STORED, query="endpoint=x&endpoint=y"), 422),
    "too long by its head": (post(STORED, content_length="999999999"), 413),
    "too long by its body": (post(*[b"x" * 600_000] * 3), 413),
    "with a key": (post(STORED, idempotency_key="k" * 600), 422),
    "a mail": (Asked("/v1/ingest", [MAIL], RFC822, "endpoint=me@example.org"), 202),
    "a mail of nobody": (Asked("/v1/ingest", [MAIL], RFC822), 422),
    "a mail of another provider": (Asked("/v1/ingest", [MAIL], RFC822, "endpoint=x&provider=owl"), 422),
    "a mail with a parameter": (Asked("/v1/ingest", [MAIL], RFC822, "endpoint=x&providr=gmail"), 422),
    "an empty mail": (Asked("/v1/ingest", [b""], RFC822, "endpoint=x"), 422),
    "a batch": (batch(STORED, b"1", STORED), 200),
    "an empty batch": (batch(), 422),
    "a long batch": (batch(*[b"1"] * 201), 422),
    "a batch with a parameter": (post(b"{}", path="/v1/ingest/batch", query="a=b"), 422),
    "a batch with a key": (post(b"{}", path="/v1/ingest/batch", idempotency_key="k"), 422),
    "a batch of another type": (post(b"{}", path="/v1/ingest/batch", content_type="text/json"), 415),
    "a batch that is none": (post(b'{"envelopes": {}}', path="/v1/ingest/batch"), 422),
    "another method": (Asked("/v1/ingest", [STORED], JSON, method="PUT"), 405),
    "another path": (post(STORED, path="/v1/ingest/"), 404),
    "MCP, before the SDK is there": (post(b"{}", path="/v1/mcp"), 404),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_known_requests_are_answered_as_fastapi_would(ways: Both, case: tuple[Asked, int]) -> None:
    asked, status = case
    assert (await ways.alike(asked))[0] == status


def by_api(envelope: dict[str, Any]) -> dict[str, Any]:
    return envelope | {"source": {"channel": "api", "provider": "http", "endpoint_identity": "a"}}


async def test_made_up_envelopes_are_answered_as_fastapi_would(ways: Both) -> None:
    made: list[Asked] = []

    @settings(max_examples=wide(150, 100), suppress_health_check=list(HealthCheck), database=None)
    @given(st.one_of(broken_envelope_dicts(), envelope_dicts().map(by_api)), st.booleans())
    def collect(envelope: dict[str, Any], alone: bool) -> None:
        data = json.dumps(envelope).encode()
        made.append(post(data) if alone else batch(data, STORED, data))

    collect()
    statuses = set()
    for asked in made:
        await ways.answer(ways.fast, asked)  # what is valid is stored by now
        statuses.add((await ways.alike(asked))[0])
    assert statuses >= {200, 202, 422}


@pytest.mark.parametrize("principal", [CONNECTOR, AGENT, Principal("connector", "x", "api", "bot:house")])
async def test_refusals_are_the_same_on_both_paths(server: Opened, ways: Both, principal: Principal) -> None:
    token = (await server.token_for(principal))["authorization"]
    for body in (STORED, json.dumps(envelope_json("x", channel="slack")).encode()):
        for asked in (post(body, authorization=token), post(body, authorization=token, path="/v1/ingest/batch")):
            await ways.alike(asked)


async def test_a_defect_is_told_alike(ways: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    async def defect(*_: Any) -> Any:
        raise RuntimeError("secret")

    monkeypatch.setattr(Intake, "message", defect)
    status, _, body = await ways.alike(post(STORED))
    assert (status, b"secret" in body) == (500, False)


# Before FastAPI is there ----------------------------------------------------------------------------------------------

HELD: Final = {"channel": "telegram", "endpoint": "bot:house", "instance_id": "one", "restarted": False}
NEXT: Final = {"channel": "telegram", "endpoint": "bot:house"}
LEASE, POSTED = "/v1/connectors/lease", "/v1/connectors/posted/next"


def asks(path: str, body: object, query: str = "", **headers: str) -> Asked:
    return post(json.dumps(body).encode(), path=path, query=query, **headers)


AT_ONCE: Final[dict[str, tuple[Asked, int]]] = {
    "a lease": (asks(LEASE, HELD), 200),
    "a renewal": (asks(LEASE, HELD | {"answering": True, "recent_s": 60, "heard": None}), 200),
    "a lease of another": (asks(LEASE, HELD | {"instance_id": "two"}), 409),
    "an account of another": (asks(LEASE, HELD | {"endpoint": "bot:office"}), 403),
    "a stranger": (asks(LEASE, HELD, authorization="Bearer nobody"), 401),
    "too long": (post(*[b"x" * 600_000] * 3, path=LEASE), 413),
    "posted events": (asks(POSTED, NEXT), 200),
}
LATER: Final[dict[str, tuple[Asked, int]]] = {
    "an unknown field": (asks(LEASE, HELD | {"more": 1}), 422),
    "a wrong type": (asks(LEASE, HELD | {"restarted": "no"}), 422),
    "no JSON": (post(b"{", path=LEASE), 400),
    "in pieces": (post(b"{", b"}", path=POSTED), 422),
    "a parameter": (asks(LEASE, HELD, query="a=b"), 422),
    "another type": (asks(LEASE, HELD, content_type="application/json; charset=utf-8"), 200),
    "another method": (Asked(LEASE, [], JSON, method="GET"), 405),
    "another path": (asks("/v1/connectors/heartbeat", HELD), 422),
    "health": (Asked("/health", [], {}, method="GET"), 200),
    "a schema": (Asked("/schemas/ingest.v1.json", [], {"authorization": ""}, method="GET"), 200),
    "a message": (post(STORED), 403),
}


async def test_connectors_are_answered_before_fastapi_is_there_and_others_after(server: Opened) -> None:
    token = await server.token_of(CONNECTOR)
    entrance, api = Entrance(server.switchboard), create_app(server.switchboard)
    both = Both(entrance, api, token)
    await both.answer(api, asks(LEASE, HELD))
    waiting = {name: asyncio.create_task(both.answer(entrance, asked)) for name, (asked, _) in LATER.items()}
    for name, (asked, status) in AT_ONCE.items():
        told = both.alike if status != 409 else partial(both.answer, entrance)  # it tells how long it is held
        assert (await told(asked))[0] == status, name
    assert not any(task.done() for task in waiting.values())
    await entrance.open_api()
    for name, (asked, status) in LATER.items():
        answer = await waiting[name]
        assert answer[0] == status, name
        if name != "health":  # it tells how long the server has been up
            assert answer == await both.answer(api, asked), name
    for name, (asked, status) in AT_ONCE.items():
        told = both.alike if status != 409 else partial(both.answer, entrance)  # it tells how long it is held
        assert (await told(asked))[0] == status, name


async def test_a_server_that_cannot_open_its_api_ends_and_says_why(
    server: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_: Entrance) -> None:
        raise ConfigurationError("no API")

    def started(*_: object) -> None:
        raise AssertionError("it is not")

    monkeypatch.setattr(Entrance, "open_api", broken)
    async with asyncio.timeout(SOON):
        with pytest.raises(ConfigurationError, match="no API"):
            await run_server(server.switchboard, bind("127.0.0.1", 0), asyncio.Event(), started)


async def test_a_server_that_is_told_to_stop_before_its_api_is_there_ends(server: Opened) -> None:
    stop = asyncio.Event()
    stop.set()
    async with asyncio.timeout(SOON):
        await run_server(server.switchboard, bind("127.0.0.1", 0), stop, lambda *_: None)


def test_nothing_of_fastapi_is_imported_before_the_server_listens() -> None:
    code = "import sys, switchboard.server.serve; print([n for n in ('fastapi', 'mcp') if n in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


# Past uvicorn ---------------------------------------------------------------------------------------------------------


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Method, path, headers and body of the request, head and body apart, the latter in two pieces."""
    got = b""
    while (message := await receive())["type"] == "http.request":
        got += message.get("body", b"")
        if not message.get("more_body", False):
            break
    said = repr((scope["method"], scope["path"], scope["query_string"], scope["headers"], got)).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(said))]})
    await send({"type": "http.response.body", "body": said[:5], "more_body": True})
    await send({"type": "http.response.body", "body": said[5:]})


class Wire(asyncio.Transport):
    """A transport in memory: what is written to it until it is closed."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 5), "sockname": ("127.0.0.1", 8470)})
        self.written = b""
        self.closed = asyncio.Event()

    def write(self, data: Any) -> None:
        if not self.closed.is_set():
            self.written += data

    def close(self) -> None:
        self.closed.set()

    def abort(self) -> None:
        self.closed.set()

    def is_closing(self) -> bool:
        return self.closed.is_set()

    def pause_reading(self) -> None:
        """The pieces come when they come."""

    def resume_reading(self) -> None:
        """As before."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is no buffer."""


def unlimited_turns() -> StrangersTurns:
    return StrangersTurns(asyncio.get_running_loop(), per_second=1e9)


async def said(protocol: type[HttpToolsProtocol], pieces: Sequence[bytes]) -> bytes:
    """Everything that is written until the connection is closed; without the time of day."""
    config = uvicorn.Config(echo, http=protocol, log_config=None, lifespan="off", server_header=False)
    config.load()
    loop = asyncio.get_running_loop()
    wire, connection = (
        Wire(),
        protocol(config, ServerState(), {"connections": Connections(8), "turns": unlimited_turns()}, loop),
    )
    connection.connection_made(wire)
    for piece in pieces:
        if not wire.is_closing():
            connection.data_received(piece)
        await asyncio.sleep(0)
    await asyncio.wait_for(wire.closed.wait(), SOON)
    connection.connection_lost(None)
    return re.sub(rb"\r\ndate: [^\r]*", b"", wire.written)


LAST: Final = b"GET /last?q=1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
RAW: Final = {
    "a request": LAST,
    "several in a row": b"GET /a HTTP/1.1\r\nHost: x\r\n\r\nPOST /b HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc" + LAST,
    "chunks": b"POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n" + LAST,
    "an old version": b"GET / HTTP/1.0\r\n\r\n",
    "no body for HEAD": b"HEAD / HTTP/1.1\r\nConnection: close\r\n\r\n",
    "a body it asks for": b"PUT / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 1\r\nConnection: close\r\n\r\nz",
    "a method that is none": b"G@T / HTTP/1.1\r\n\r\n",
    "a version that is none": b"GET / HTTP/9.9\r\n\r\n",
    "a header without a colon": b"GET / HTTP/1.1\r\nHost x\r\n\r\n",
    "a length that is none": b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "a chunk that is none": b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n",
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "good, then bad": b"GET / HTTP/1.1\r\n\r\nnonsense\r\n\r\n",
}


def cut(data: bytes, every: int) -> Iterator[bytes]:
    return (data[at : at + every] for at in range(0, len(data), every))


async def test_every_connection_gets_the_bytes_that_uvicorn_would_send() -> None:
    made: list[tuple[bytes, int]] = [(data, every) for data in RAW.values() for every in (1, 7, len(data))]
    word = st.from_regex(rb"\A[a-zA-Z0-9-]{1,9}\Z")

    @settings(max_examples=wide(100, 30), database=None)
    @given(st.lists(st.tuples(word, word, st.binary(max_size=40), st.booleans()), max_size=4), st.integers(1, 60))
    def collect(requests: list[tuple[bytes, bytes, bytes, bool]], every: int) -> None:
        data = b"".join(
            b"POST /%b HTTP/1.1\r\nX-%b: %b\r\n" % (path, path, header)
            + (
                b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
                if chunked and body
                else b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
            )
            for path, header, body, chunked in requests
        )
        made.append((data + LAST, every))

    collect()
    for data, every in made:
        pieces = list(cut(data, every))
        standard = await said(HttpToolsProtocol, pieces)
        assert await said(BoundedHttp, pieces) == standard
        assert standard.startswith(b"HTTP/1.1 ")


_OFFER: Final = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"


@pytest.mark.parametrize("every", [1, 7, 1000])
async def test_who_offers_http2_is_understood_as_who_does_not(every: int) -> None:
    """Java's HttpClient does so with each request, `curl --http2` with the first. uvicorn would lose the body."""
    requests = b"POST /a HTTP/1.1\r\n%bContent-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\n%b\r\n" + LAST
    kept = re.sub(rb"Upgrade: h2c\r\n", b"", _OFFER)
    expected = await said(HttpToolsProtocol, [requests % (kept, kept)])
    assert await said(BoundedHttp, list(cut(requests % (_OFFER, _OFFER), every))) == expected
    assert expected.count(b"HTTP/1.1 200 OK") == 3
    assert b"b'abc'" in expected


async def test_connect_is_refused_as_uvicorn_would() -> None:
    for at in (b"x:443", b"/x"):
        asked = b"CONNECT %b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % at
        assert await said(BoundedHttp, [asked]) == await said(HttpToolsProtocol, [asked])


async def test_what_follows_a_body_in_chunks_is_no_header() -> None:
    """It came past every proxy that removes or sets headers."""
    chunks = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n1\r\na\r\n0\r\n%b\r\n"
    expected = await said(HttpToolsProtocol, [chunks % b""])
    assert await said(BoundedHttp, [chunks % b"Authorization: Bearer other\r\n"]) == expected
