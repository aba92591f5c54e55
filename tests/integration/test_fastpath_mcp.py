"""The fast path of MCP for messages against the SDK itself: the same bytes, and when it is not taken."""

from __future__ import annotations

import asyncio
import json
import re
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from starlette.requests import Request
from starlette.types import ASGIApp, Message

from switchboard.app.access import Principal
from switchboard.app.messages.intake import Intake
from switchboard.server.fastpath.mcp_ingest import FastIngest
from switchboard.server.mcp.tools import session_manager
from switchboard.server.services import Services
from tests.lab import envelope_json
from tests.servers import AGENT, CONNECTOR, Opened
from tests.strategies import broken_envelope_dicts

VERSION: Final = "2026-07-28"
OPERATOR: Final = Principal("operator", "test")
_PREFIX: Final = "io.modelcontextprotocol/"
META: Final = {
    f"{_PREFIX}protocolVersion": VERSION,
    f"{_PREFIX}clientInfo": {"name": "test", "version": "1"},
    f"{_PREFIX}clientCapabilities": {},
}
HEADERS: Final = {
    "host": "127.0.0.1:8470",
    "accept": "application/json, text/event-stream",
    "content-type": "application/json",
    "mcp-protocol-version": VERSION,
    "mcp-method": "tools/call",
    "mcp-name": "ingest_batch",
}
Answer = tuple[int, dict[str, str], bytes]


@dataclass(frozen=True, slots=True)
class Posted:
    """One request to /mcp, after the gate."""

    body: bytes
    headers: tuple[tuple[str, str], ...]
    caller: Principal = OPERATOR

    def scope(self) -> dict[str, Any]:
        return {
            "type": "http",
            "method": "POST",
            "path": "/mcp",
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in self.headers],
            "state": {"principal": self.caller, "gone": asyncio.Event()},
        }


@dataclass(frozen=True, slots=True)
class Both:
    """The SDK's way and the fast one over the same services."""

    sdk: ASGIApp
    fast: FastIngest

    async def sdk_way(self, posted: Posted) -> Answer:
        given: list[Message] = [{"type": "http.request", "body": posted.body, "more_body": False}]

        async def receive() -> Message:
            return given.pop()

        return await _answered(lambda send: self.sdk(posted.scope(), receive, send))

    async def fast_way(self, posted: Posted) -> Answer | None:
        request = Request(posted.scope())
        response = await self.fast.take(request, posted.body) if self.fast.may_take(request) else None
        if response is None:
            return None
        made = response
        return await _answered(lambda send: made(posted.scope(), request.receive, send))


async def _answered(serve: Callable[[Any], Any]) -> Answer:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    await serve(send)
    head = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], head, b"".join(message.get("body", b"") for message in sent[1:])


@asynccontextmanager
async def both_ways(server: Opened) -> AsyncIterator[Both]:
    manager, fast = session_manager(Services(server.switchboard))
    async with manager.run():
        yield Both(manager.asgi_app, fast)


def call(arguments: Any, **more: Any) -> dict[str, Any]:
    params = {"name": "ingest_batch", "arguments": arguments, "_meta": META}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params} | more


def posted(body: Any, caller: Principal = OPERATOR, **headers: str | None) -> Posted:
    """`body` is bytes, or what is to be encoded; a header that is None is left out."""
    wanted = HEADERS | {name.replace("_", "-"): value for name, value in headers.items()}
    kept = tuple((name, value) for name, value in wanted.items() if value is not None)
    return Posted(body if isinstance(body, bytes) else json.dumps(body).encode(), kept, caller)


def envelopes(*given: Any) -> Posted:
    return posted(call({"envelopes": list(given)}))


def one(envelope: Any) -> Posted:
    params = {"name": "ingest", "arguments": {"envelope": envelope}, "_meta": META}
    return posted(call(None, params=params), mcp_name="ingest")


def with_meta(**changed: Any) -> Posted:
    meta = META | {name if "." in name else f"{_PREFIX}{name}": value for name, value in changed.items()}
    kept = {name.removeprefix("bare."): value for name, value in meta.items() if value is not ...}
    return posted(call(None, params={"name": "ingest_batch", "arguments": {"envelopes": [STORED]}, "_meta": kept}))


STORED: Final = envelope_json("stored", event="stored")
GOOD: Final = call({"envelopes": [STORED]})
TEXT: Final = json.dumps(GOOD)

PLAIN: Final = [
    envelopes(STORED),
    envelopes(STORED, STORED, {"schema_version": "ingest.v1"}, 7, None, [], "text"),
    envelopes(envelope_json("x", channel="näher\x7f\u2028\"'\\/\b\f\n\r\t\x01")),
    envelopes({**STORED, "schéma": 1}),
    envelopes({**STORED, "payload": {"normalized_text": "x", "raw": {"big": 12345678901234567890123, "f": 1e300}}}),
    envelopes(*[STORED] * 201),
    envelopes(),
    posted(call({"envelopes": [STORED]}, id="näme \"'\\ \x7f")),
    posted(call({"envelopes": [STORED]}, id=-(10**30))),
    posted(call({"envelopes": [STORED]}), accept="*/*"),
    posted(call({"envelopes": [STORED]}), accept="application/json;q=0.5"),
    posted(call({"envelopes": [STORED]}), content_type="application/json; charset=utf-8"),
    posted(call({"envelopes": [STORED]}), origin="http://localhost:3000"),
    posted(call({"envelopes": [STORED]}), CONNECTOR),
    posted(json.dumps(GOOD, indent=2).encode()),
    posted(TEXT.replace('"id": 1', '"id": 1, "id": 2').encode()),
    with_meta(clientInfo=...),
    with_meta(clientCapabilities={"sampling": {}, "elicitation": {}, "experimental": {"x": {}}}),
    with_meta(**{"bare.progressToken": "p"}),
    with_meta(**{"bare.traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}),
    one(STORED),
    one({}),
    one(envelope_json("x", channel="nowhere")),
    one({**STORED, "payload": {"normalized_text": "x", "raw": {"half": "\ud83d\ude00", "é": "\x7f"}}}),
    posted(TEXT.replace('"stored"', '"other", "external_event_id": "stored"').encode()),
]
"""Requests that the fast path must take."""

LONG: Final = [
    posted(call({"envelopes": [STORED]}), AGENT),
    posted(call({"envelopes": [STORED]}), accept="text/html"),
    posted(call({"envelopes": [STORED]}), accept=None),
    posted(call({"envelopes": [STORED]}), content_type="text/plain"),
    posted(call({"envelopes": [STORED]}), host="evil.example"),
    posted(call({"envelopes": [STORED]}), host=None),
    posted(call({"envelopes": [STORED]}), origin="http://evil.example"),
    posted(call({"envelopes": [STORED]}), mcp_protocol_version="2026-07-29"),
    posted(call({"envelopes": [STORED]}), mcp_method=None),
    posted(call({"envelopes": [STORED]}), mcp_method="tools/list"),
    posted(call({"envelopes": [STORED]}), mcp_name=None),
    posted(call({"envelopes": [STORED]}), mcp_name="ingest"),
    posted(call({"envelopes": [STORED]}), mcp_name="=?base64?aW5nZXN0X2JhdGNo?="),
    Posted(TEXT.encode(), (*HEADERS.items(), ("mcp-name", "ingest_batch"))),
    *(posted(call({"envelopes": [STORED]}, **wrong)) for wrong in ({"jsonrpc": "1.0"}, {"id": None}, {"id": True})),
    posted(call({"envelopes": [STORED]}, id=1.5)),
    posted(call({"envelopes": [STORED]}, method="tools/list")),
    posted(call({"envelopes": [STORED]}, params=[])),
    posted(call(None)),
    posted(call([])),
    posted(call({})),
    posted(call({"envelopes": {}})),
    posted(call({"envelopes": [], "more": 1})),
    one("text"),
    one(None),
    posted(TEXT.encode().replace(b"stored", b"\xff")),
    posted({name: value for name, value in GOOD.items() if name != "id"}),
    posted([GOOD]),
    posted(TEXT.replace("_meta", "_mate").encode()),
    posted(TEXT.replace('"name": "ingest_batch"', '"name": "ingest_batch", "task": {"ttl": 1}').encode()),
    posted(TEXT.replace('"name": "ingest_batch"', '"name": 7').encode()),
    posted(TEXT.replace('"stored"', '"\\ud800"').encode()),
    posted(TEXT.replace('"stored"', "NaN").encode()),
    posted(TEXT.replace('"stored"', '"a\tb"').encode()),
    posted(TEXT.encode("utf-16")),
    posted(TEXT.encode("utf-8-sig")),
    posted(TEXT.encode() + b"x"),
    posted(TEXT.replace('"stored"', "[" * 100_000).encode()),
    posted(b""),
    with_meta(protocolVersion="2025-11-25"),
    with_meta(protocolVersion=7),
    with_meta(clientInfo="me"),
    with_meta(clientInfo={"name": "x"}),
    with_meta(clientCapabilities=[]),
    with_meta(clientCapabilities=...),
]
"""Requests that only the SDK may answer."""


@pytest.mark.slow
@pytest.mark.parametrize("request_", PLAIN)
async def test_plain_calls_are_answered_as_the_sdk_would_byte_for_byte(server: Opened, request_: Posted) -> None:
    await server.submit(STORED)
    async with both_ways(server) as ways:
        await ways.sdk_way(request_)  # now nothing in it is new, and the answers may be compared to the byte
        expected = await ways.sdk_way(request_)
        assert await ways.fast_way(request_) == expected
        assert expected[0] == 200


async def test_what_is_refused_or_unusual_is_left_to_the_sdk(server: Opened) -> None:
    async with both_ways(server) as ways:
        for request in LONG:
            assert await ways.fast_way(request) is None, request.body[:300]
        assert await server.lab.count("select count(*) from message_inbox") == 0
        assert await server.lab.count("select count(*) from audit where action like 'refused:%'") == 0


@pytest.mark.slow
async def test_made_up_envelopes_are_answered_as_the_sdk_would(server: Opened) -> None:
    batches: list[list[Any]] = [[]]

    @settings(max_examples=300, database=None, suppress_health_check=list(HealthCheck))
    @given(broken_envelope_dicts())
    def collect(fields: dict[str, Any]) -> None:
        if len(batches[-1]) == 20:
            batches.append([])
        batches[-1].append(fields)

    collect()
    assert len(batches) > 10
    async with both_ways(server) as ways:
        for batch in batches:
            asked = envelopes(*batch)
            await ways.sdk_way(asked)
            expected = await ways.sdk_way(asked)
            fast = await ways.fast_way(asked)
            assert fast is None or fast == expected
            assert fast is not None or b"\\ud" in asked.body or b"NaN" in asked.body or b"Infinity" in asked.body


async def test_what_is_new_is_stored_and_answered_alike(server: Opened) -> None:
    def masked(answer: Answer | None) -> tuple[int, bytes]:
        assert answer is not None
        return answer[0], re.sub(rb"[0-9a-f]{8}-[0-9a-f-]{27}", b"ID", answer[2])

    def new(mark: str) -> Posted:
        channels = ("telegram", "email", "api", "cli")
        given = [envelope_json("hé", channel=c, event=f"{c}-{mark}", raw={"z": 1, "a": [1.5, None]}) for c in channels]
        return envelopes(*given)

    async with both_ways(server) as ways:
        assert masked(await ways.fast_way(new("fast"))) == masked(await ways.sdk_way(new("sdk")))
    rows = await server.lab.database.rows("select raw from message_raw")
    stored = [zlib.decompress(row["raw"]).decode() for row in rows]
    # The SDK decodes what it is given; the fast path keeps every byte.
    assert sum('"z":1,"a":[1.5,null]' in raw for raw in stored) == 4
    assert sum('"z": 1, "a": [1.5, null]' in raw for raw in stored) == 4


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "Infinity"])
async def test_a_number_that_is_none_is_refused_and_not_made_null(server: Opened, number: str) -> None:
    text = json.dumps(call({"envelopes": [envelope_json("x", raw={"n": "N"})]})).replace('"N"', number)
    async with both_ways(server) as ways:
        sdk, fast = await ways.sdk_way(posted(text.encode())), await ways.fast_way(posted(text.encode()))
    assert b"not_a_json_number" in sdk[2]
    assert fast == (sdk if "1" in number else None)
    assert await server.lab.count("select count(*) from message_inbox") == 0


async def test_a_defect_is_told_alike(server: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    async def defect(*_: Any) -> Any:
        raise RuntimeError("secret")

    monkeypatch.setattr(Intake, "batch", defect)
    async with both_ways(server) as ways:
        expected = await ways.sdk_way(envelopes(STORED))
        assert await ways.fast_way(envelopes(STORED)) == expected
        assert b"see the server's log" in expected[2]


async def test_it_is_taken_from_the_first_call_on(server: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[bytes] = []
    take = FastIngest.take

    async def noted(fast: FastIngest, request: Request, body: bytes) -> Any:
        taken.append(body)
        return await take(fast, request, body)

    monkeypatch.setattr(FastIngest, "take", noted)
    headers = {name: value for name, value in HEADERS.items() if name != "host"}
    first, second = [await server.http.post("/mcp", content=TEXT.encode(), headers=headers) for _ in range(2)]
    assert taken == [TEXT.encode()] * 2
    first_result, second_result = (a.json()["result"]["structuredContent"]["results"][0] for a in (first, second))
    assert (first_result["duplicate"], second_result["duplicate"]) == (False, True)
    # What the fast path leaves alone has been read already, and still gets its answer.
    unusual = await server.http.post("/mcp", content=TEXT.replace("_meta", "_mate").encode(), headers=headers)
    assert (unusual.status_code, len(taken)) == (400, 3)
