"""The engine `http` and the callbacks of `api` endpoints: a real server on loopback, signatures, private addresses."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from aiohttp import web

from switchboard.agents.callback import callbacks_from
from switchboard.agents.http import HttpEngine
from switchboard.domain.errors import ConfigurationError
from switchboard.domain.ledger import LaneKey, OutboxRow
from switchboard.domain.message import Conversation, RequestId
from switchboard.domain.routing import SystemId
from switchboard.ports.channel import Receipt
from switchboard.ports.engine import Answer, EngineFailure, NoReply, OutcomeUnknown, Refusal, TurnResult
from switchboard.testing.engines import MemoryJournal, Record, a_turn
from switchboard.transport.signed_post import MAX_RESPONSE, PostDestination, PostError, post, verify
from switchboard.transport.webhook_spec import CallbackSpec
from tests.engines import Hook, a_hook, failure, run
from tests.ports import free_port
from tests.waiting import SOON

# http -------------------------------------------------------------------------------------------------------------

SECRET = "canary-secret"


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
        (200, "{", "application/json", ("internal", False), "invalid"),
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
    record = Record()
    await HttpEngine().run(a_turn(options_for(hook)), MemoryJournal(record))
    [body], [headers] = hook.bodies, hook.headers
    key = str(record.key("http"))
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
    async with asyncio.timeout(SOON):
        await ended.wait()


async def test_an_effectful_webhook_is_only_called_again_if_it_did_nothing(hook: Hook) -> None:
    record = Record()
    hook.says(429)
    options = options_for(hook, effect="effectful")
    with pytest.raises(EngineFailure, match="429"):
        await HttpEngine().run(a_turn(options), MemoryJournal(record))
    hook.says(500)
    with pytest.raises(EngineFailure, match="500"):
        await HttpEngine().run(a_turn(options, attempt=2), MemoryJournal(record))
    hook.says(200, '{"reply": "hi"}')
    with pytest.raises(OutcomeUnknown):
        await HttpEngine().run(a_turn(options, attempt=3), MemoryJournal(record))
    assert len(hook.bodies) == 2


@contextmanager
def a_host_that_takes_no_connection(host: str = "127.0.0.1", port: int = 0) -> Iterator[int]:
    """Its port; connecting to it neither succeeds nor fails."""
    with socket.create_server((host, port), backlog=0) as server, ExitStack() as stack:
        for _ in range(4):  # they fill the queue; those that come after get no answer
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(server.getsockname())
        yield server.getsockname()[1]


async def test_an_effectful_webhook_not_reached_in_time_is_called_again(hook: Hook) -> None:
    record = Record()
    with a_host_that_takes_no_connection() as port:
        away = options_for(hook, effect="effectful", url=f"http://127.0.0.1:{port}/", timeout=1.0)
        with pytest.raises(EngineFailure) as caught:
            await HttpEngine().run(a_turn(away), MemoryJournal(record))
        assert (caught.value.error_class, caught.value.retryable) == ("timeout", True)
    hook.says(200, '{"reply": "hi"}')
    options = options_for(hook, effect="effectful")
    assert await HttpEngine().run(a_turn(options, attempt=2), MemoryJournal(record)) == Answer("hi")


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


def to_name(hook: Hook, *, allow_private: bool) -> PostDestination:
    return PostDestination(f"http://rebind.test:{hook.port}/hook", b"s", 5.0, allow_private)


async def test_a_name_that_is_not_resolved_in_time_was_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    async def getaddrinfo(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    with monkeypatch.context() as patch:
        patch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
        with pytest.raises(PostError, match="longer") as caught:
            await post(PostDestination("http://slow.test/", b"s", 0.4), b"{}", uuid4())
    assert (caught.value.kind, caught.value.sent) == ("timeout", False)


async def test_an_address_that_takes_no_connection_leaves_time_for_the_next(
    hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook.says(204)
    to = replace(to_name(hook, allow_private=True), timeout=8.0)
    with a_host_that_takes_no_connection("127.0.0.2", hook.port):
        async with names(monkeypatch, [["127.0.0.2", "127.0.0.1"]]):
            assert (await post(to, b"{}", uuid4())).status == 204


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


def callback(url: str, **more: Any) -> CallbackSpec:
    """The callback of `shop`."""
    usual: dict[str, Any] = {"endpoint": "shop", "secret_env": "HOOK_SECRET", "allow_private": True}
    return CallbackSpec(url=url, **usual | more)


REPLY = OutboxRow(
    outbox_id=UUID(int=7),
    lane=LaneKey(UUID(int=1)),
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
    files=(),
    state="sending",
    attempts=1,
    lease=1,
    platform_message_id=None,
    error=None,
    created_at=datetime(2026, 11, 21, 12, tzinfo=UTC),
    settled_at=None,
)


async def send(hook: Hook, **setting: Any) -> Receipt:
    return await callbacks_from([callback(**{"url": hook.url, **setting})])["shop"].send(REPLY)


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
        "files": [],
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
        callbacks_from([callback(**{"url": "https://example.org/", **setting})])


def test_an_endpoint_has_one_callback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    with pytest.raises(ConfigurationError, match="two callbacks"):
        callbacks_from([callback("https://a.example/"), callback("https://b.example/")])
