"""The engine `mcp` with a real remote butler: what it says, how it fails, and what the network may do to it."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx2
import pytest
from aiohttp import web
from msgspec.structs import replace

from switchboard.agents.mcp import Carried, McpEngine, route_request
from switchboard.core.remote_agents import route_schema
from switchboard.domain.envelope import Attachment
from switchboard.ports.engine import Answer, EngineFailure, NoReply, OutcomeUnknown, Refusal, TurnResult
from switchboard.testing.engines import MemoryJournal, Record, a_turn
from switchboard.transport.signed_post import CheckedTransport
from tests.engines import Book, failure, run
from tests.remotes import TOKEN, Remote, a_remote
from tests.waiting import SOON, eventually

# jsonschema has no type stubs.
Validator: Any = import_module("jsonschema").Draft202012Validator


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    with a_remote(tmp_path_factory.mktemp("remote")) as running:
        yield running


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMOTE_TOKEN", TOKEN)
    monkeypatch.setenv("ANOTHER_TOKEN", "wrong")


@pytest.fixture
def book() -> Book:
    return Book()


@pytest.fixture
def engine(book: Book) -> McpEngine:
    return McpEngine(book)


# What it says ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("good morning", Answer("heard: good morning")),
        ("decline", NoReply("only noise")),
        ("refuse", Refusal("not mine")),
    ],
)
async def test_what_a_remote_butler_says(
    remote: Remote, engine: McpEngine, book: Book, text: str, result: TurnResult
) -> None:
    assert await run(engine, remote.options(), text=text) == result
    assert book.answered == ["System1/tool"]


async def test_a_butler_that_keeps_sessions_and_streams(engine: McpEngine, tmp_path: Path) -> None:
    with a_remote(tmp_path, "stateful") as remote:
        assert await run(engine, remote.options(), text="hello") == Answer("heard: hello")
        error = await failure(engine, remote.options(timeout=1.0), text="hang")
        assert (error.error_class, error.retryable) == ("timeout", True)


async def test_a_response_may_come_as_text(remote: Remote, engine: McpEngine) -> None:
    assert await run(engine, remote.options(tool="as.text"), text="x") == Answer("text: x")


async def test_what_a_remote_butler_is_given(remote: Remote, engine: McpEngine) -> None:
    turn = a_turn(remote.options(), text="what am I given")
    record = Record()
    await engine.run(turn, MemoryJournal(record))
    call = remote.calls[-1]
    Validator(route_schema()).validate(route_request(turn, record.key("mcp"), "t", Carried()).model_dump(mode="json"))
    assert call["key"] == str(record.key("mcp"))
    assert call["request_context"]["request_id"] == str(turn.request_id)
    assert call["request_context"]["source_sender_identity"] == "alice"
    assert call["input"] == {"prompt": "what am I given", "attachments": []}
    assert TOKEN not in json.dumps(call)


async def test_a_remote_butler_is_told_of_attachments(remote: Remote, engine: McpEngine) -> None:
    files = (
        Attachment(media_type="image/png", filename="roof.png", size_bytes=7),
        Attachment(media_type="a", size_bytes=0),
    )
    turn = a_turn(remote.options(), text="two files")
    envelope = replace(turn.envelope, payload=replace(turn.envelope.payload, attachments=files))
    await engine.run(dataclasses.replace(turn, envelope=envelope), MemoryJournal())
    assert remote.calls[-1]["input"]["attachments"] == [
        {"media_type": "image/png", "filename": "roof.png", "size_bytes": 7},
        {"media_type": "a", "size_bytes": 0},
    ]


async def test_a_dead_letter_is_told_as_context(remote: Remote, engine: McpEngine) -> None:
    await run(engine, remote.options(), text="lost", notice=True)
    assert remote.calls[-1]["input"]["context"]["dead_letter"]["category"] == "no_route"


# How it fails ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("kind", ["validation", "routing", "target_unavailable", "timeout", "overload", "internal"])
async def test_each_class_of_error(remote: Remote, engine: McpEngine, book: Book, kind: str, again: bool) -> None:
    error = await failure(engine, remote.options(), text=f"fail {kind}{' again' if again else ''}")
    assert (error.error_class, error.retryable) == (kind, again)
    assert str(error) == f"{kind}: as you wish"
    assert book.answered == ["System1/tool"], "a server that complains is alive"


@pytest.mark.parametrize(
    ("text", "options", "kind", "told"),
    [
        ("x", {"tool": "chatter"}, ("internal", False), "not a route_response.v1: nice weather"),
        ("wrong", {}, ("internal", False), "status ok needs a result and no error"),
        ("fail nonsense", {}, ("internal", False), "error.class"),
        ("other", {}, ("internal", False), "another request"),
        ("raise", {}, ("internal", True), "the tool failed"),
        ("long", {}, ("internal", False), "longer than 1048576 bytes"),
        ("x", {"tool": "route.exekute"}, ("target_unavailable", False), "there are: route.execute, chatter, as.text"),
        ("hang", {"timeout": 1.0}, ("timeout", True), "took longer than 1 s"),
        ("x", {"token_env": "ANOTHER_TOKEN"}, ("target_unavailable", False), "does not take our token"),
        ("x", {"token_env": None}, ("target_unavailable", False), "401"),
    ],
)
async def test_how_it_fails(
    remote: Remote, engine: McpEngine, text: str, options: dict[str, Any], kind: tuple[str, bool], told: str
) -> None:
    error = await failure(engine, remote.options(**options), text=text)
    assert (error.error_class, error.retryable) == kind
    assert told in str(error)
    assert len(str(error)) < 700
    assert TOKEN not in str(error)


async def test_an_effectful_butler_is_only_called_again_if_it_was_not_reached(
    remote: Remote, engine: McpEngine, book: Book
) -> None:
    record = Record()
    options, hasty = remote.options(effect="effectful"), remote.options(effect="effectful", timeout=5.0)
    book.endpoint = "http://127.0.0.1:1/mcp"
    with pytest.raises(EngineFailure, match=r"127\.0\.0\.1"):
        await engine.run(a_turn(options), MemoryJournal(record))
    book.endpoint = None
    with pytest.raises(EngineFailure, match=r"longer than 5 s"):
        await engine.run(a_turn(hasty, text="hang", attempt=2), MemoryJournal(record))
    with pytest.raises(OutcomeUnknown):
        await engine.run(a_turn(options, attempt=3), MemoryJournal(record))


class Silent(CheckedTransport):
    """A network on which no answer comes in time."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ReadTimeout("", request=request)


async def test_a_timeout_is_told_in_one_way_wherever_it_was_noticed(
    remote: Remote, engine: McpEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("switchboard.transport.mcp_session._network", Silent)
    with pytest.raises(EngineFailure, match="took longer than 60 s") as caught:
        await engine.run(a_turn(remote.options(timeout=60.0)), MemoryJournal())
    assert caught.value.error_class == "timeout"


class OnlyTheSession(CheckedTransport):
    """A network that carries what opens a session, but not the call.

    The other side seems to be older than discovery, so there is a session to be opened; the last message for that
    leaves when the tool is being called already.
    """

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if b"server/discover" in request.content:
            return httpx2.Response(400, json={"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "no"}})
        if b"tools/call" in request.content:
            raise httpx2.ConnectTimeout("no connection")
        return await super().handle_async_request(request)


async def test_a_session_that_was_opened_is_no_call(
    engine: McpEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = Record()
    with a_remote(tmp_path, "stateful") as remote, monkeypatch.context() as patch:
        options = remote.options(effect="effectful")
        patch.setattr("switchboard.transport.mcp_session._network", OnlyTheSession)
        with pytest.raises(EngineFailure, match="no connection"):
            await engine.run(a_turn(options), MemoryJournal(record))
        patch.undo()
        assert await engine.run(a_turn(options, text="hello", attempt=2), MemoryJournal(record)) == Answer(
            "heard: hello"
        )


@pytest.mark.parametrize("kind", ["stateless", "stateful"])
async def test_an_effectful_butler_that_died_of_the_call_is_not_called_again(
    engine: McpEngine, tmp_path: Path, kind: str
) -> None:
    record = Record()
    with a_remote(tmp_path, kind) as remote:
        options = remote.options(effect="effectful")
        calling = asyncio.create_task(engine.run(a_turn(options, text="hang"), MemoryJournal(record)))

        async def called() -> bool:
            return len(remote.calls) == 1

        await eventually(called)
        remote.kill()
        with pytest.raises(EngineFailure, match=r"127\.0\.0\.1"):
            await calling
    with pytest.raises(OutcomeUnknown):
        await engine.run(a_turn(options, attempt=2), MemoryJournal(record))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"url": None}, "url is needed, or announces_endpoint"),
        ({"url": "ftp://example.org"}, "http:// or https://"),
        ({"token_env": "NO_SUCH_TOKEN"}, "NO_SUCH_TOKEN"),
        ({"token": "in the file"}, "token"),
        ({"max_response": 0}, "max_response"),
        ({"beats": 7}, "beats"),
    ],
)
def test_wrong_options_are_named_before_the_first_message(
    remote: Remote, engine: McpEngine, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(EngineFailure) as caught:
        engine.check(a_turn(remote.options(**options)).member)
    assert (caught.value.error_class, caught.value.retryable) == ("validation", False)
    assert told in str(caught.value)


async def test_a_butler_without_an_endpoint_may_still_announce_one(engine: McpEngine, remote: Remote) -> None:
    error = await failure(engine, remote.options(url=None, announces_endpoint=True))
    assert (error.error_class, error.retryable) == ("target_unavailable", True)


async def test_a_private_address_is_not_called(remote: Remote, engine: McpEngine, book: Book) -> None:
    before = len(remote.calls)
    for host in ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]"):
        error = await failure(engine, remote.options(url=f"http://{host}:{remote.port}/mcp", allow_private=False))
        assert (error.error_class, error.retryable) == ("target_unavailable", False)
        assert "not a public address" in str(error)
    book.endpoint = remote.url
    assert not (await failure(engine, remote.options(url="https://example.org", allow_private=False))).retryable
    assert len(remote.calls) == before


# Servers that are none ------------------------------------------------------------------------------------------------

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def something_else(handler: Handler) -> AsyncIterator[tuple[str, list[str]]]:
    """A server on a free port that answers every request with `handler`; its URL, and what was asked of it."""
    came: list[str] = []

    async def serve(request: web.Request) -> web.StreamResponse:
        came.append(f"{request.method} {request.path}")
        return await handler(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/mcp", came
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_not_followed(remote: Remote, engine: McpEngine, status: int) -> None:
    async def elsewhere(request: web.Request) -> web.StreamResponse:
        # To its own origin as well: the SDK would follow that one.
        return web.Response(status=status, headers={"Location": str(request.url.with_path("/other"))})

    async with something_else(elsewhere) as (url, came):
        error = await failure(engine, remote.options(url=url))
    assert (error.error_class, error.retryable) == ("target_unavailable", False)
    assert f"{status}, a redirect" in str(error)
    assert set(came) == {"POST /mcp"}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ("target_unavailable", False)),
        (404, ("target_unavailable", False)),
        (429, ("overload", True)),
        (500, ("target_unavailable", True)),
        (503, ("overload", True)),
        (504, ("timeout", True)),
    ],
)
async def test_statuses(remote: Remote, engine: McpEngine, status: int, kind: tuple[str, bool]) -> None:
    async def says(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text="no")

    async with something_else(says) as (url, _):
        error = await failure(engine, remote.options(url=url))
    assert (error.error_class, error.retryable) == kind
    assert str(status) in str(error)


class Old:
    """A server of the older protocol: a handshake, a session with an id, and no idea of `server/discover`."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        if request.method != "POST":
            self.asked.append(request.method)
            return web.Response(status=200)
        asked = await request.json()
        self.asked.append(asked["method"])
        match asked["method"]:
            case "initialize":
                info = {"name": "old", "version": "1"}
                result: Any = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
            case "tools/call":
                assert request.headers["Mcp-Session-Id"] == "s-1"
                said = {"schema_version": "route_response.v1", "status": "ok", "result": {"reply": "as of old"}}
                result = {"content": [{"type": "text", "text": json.dumps(said)}], "isError": False}
            case method if method.startswith("notifications/"):
                return web.Response(status=202)
            case _:
                return web.Response(status=400, text="Bad Request: Missing session ID")
        answer = {"jsonrpc": "2.0", "id": asked["id"], "result": result}
        return web.json_response(answer, headers={"Mcp-Session-Id": "s-1"})


async def test_a_server_of_the_older_protocol(remote: Remote, engine: McpEngine) -> None:
    old = Old()
    async with something_else(old) as (url, _):
        assert await run(engine, remote.options(url=url)) == Answer("as of old")
    assert old.asked == ["server/discover", "initialize", "notifications/initialized", "tools/call", "DELETE"]


@pytest.mark.parametrize(
    ("body", "media_type"),
    [
        (b"<html>hello</html>", "text/html"),
        (b"{", "application/json"),
        (b'{"jsonrpc": "2.0", "id": 1, "result": 7}', "application/json"),
        (b"[" * 100_000, "application/json"),
        (b"\x1f\x8b\x08 not compressed", "application/json"),
        (b"data: nonsense\n\n", "text/event-stream"),
    ],
)
async def test_what_is_no_mcp_at_all(remote: Remote, engine: McpEngine, body: bytes, media_type: str) -> None:
    async def says(_: web.Request) -> web.StreamResponse:
        return web.Response(body=body, headers={"Content-Type": media_type, "Content-Encoding": "identity"})

    async with something_else(says) as (url, _):
        error = await failure(engine, remote.options(url=url))
    assert (error.error_class, error.retryable) == ("internal", False)
    assert "does not answer as an MCP server does" in str(error)


async def test_an_endless_answer_is_cut_off(remote: Remote, engine: McpEngine) -> None:
    ended = asyncio.Event()

    async def pours(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            while True:
                await response.write(b": nothing\n" * 5000)
        finally:
            ended.set()

    async with something_else(pours) as (url, _):
        error = await failure(engine, remote.options(url=url))
        assert "longer than 1048576 bytes" in str(error)
        async with asyncio.timeout(SOON):
            await ended.wait()


async def test_nobody_is_there(remote: Remote, engine: McpEngine, tmp_path: Path) -> None:
    with a_remote(tmp_path) as other:
        other.kill()
        error = await failure(engine, remote.options(url=other.url))
    assert (error.error_class, error.retryable) == ("target_unavailable", True)
    error = await failure(engine, remote.options(url="http://no-such-host.invalid/mcp"))
    assert (error.error_class, error.retryable) == ("target_unavailable", True)
