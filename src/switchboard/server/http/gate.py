"""Authenticates and limits requests before every route, so that no route can forget to.

A plain ASGI middleware that `app.py` puts before all routes, MCP included. In: the request; out: the same with
`state.principal` set and a `receive` that stops at the size limit, or 401/413 at once. Every answer has a `Request-Id`,
which also appears in the logs of the request. Next: `fastpath/direct.py`, then the routers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from secrets import token_hex
from typing import Final

from msgspec import Struct, field
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bind_contextvars

from switchboard.app.access import Access, AnyRole, Principal
from switchboard.app.connectors.quarantine import MAX_RAW, QUARANTINE
from switchboard.app.messages.blobs import OUTBOX
from switchboard.app.messages.intake import INGEST
from switchboard.app.settings import Settings
from switchboard.domain.errors import TooLarge, Unauthenticated
from switchboard.server.connections import Connections
from switchboard.server.http.errors import response_to
from switchboard.server.http.hosts import Hosts, UnknownHost
from switchboard.server.paths import BLOBS, HOOKS, LINKS, WEB_FILES, is_public

_HEALTH: Final = "/health"
"""What looks here may call us anything: a load balancer does."""
_PUBLIC_BYTES: Final = 65_536
_FIELDS_BYTES: Final = 2_097_152
"""What a form with files has besides them: a text of any length that a message may have."""
_SESSION_BYTES: Final = 65_536
"""A session calls one tool, with a name and some text."""
_DRAIN_BYTES, _DRAIN_S = 33_554_432, 3.0
"""What is read of a body that was refused. A client that is cut off while it sends does not get the answer: it takes us
for unreachable, and tries forever. So it is twice the size of the largest batch."""
_OPERATORS: Final[frozenset[AnyRole]] = frozenset({"operator"})
_LARGE: Final[Mapping[str, frozenset[AnyRole]]] = {
    "/v1/ingest/batch": INGEST.roles,
    "/v1/quarantine": QUARANTINE.roles,
    "/v1/connectors/posted": OUTBOX.roles,
    "/mcp": INGEST.roles,
    "/v1/rules/import": _OPERATORS,
    "/v1/rules/test": _OPERATORS,
    "/v1/rules/backtest": _OPERATORS,
}
"""Where a body may be as large as a whole batch, and whose."""
_BY_PATH: Final = {"/v1/quarantine": MAX_RAW * 3 // 2}
"""Where it may be larger: an event in base64."""
_ARRIVING: Final = 8
"""Most large bodies that are held in memory."""


class GateLimits(Struct, frozen=True):
    """Bytes of a body: `large` on the named paths, for the roles listed there; otherwise `other`.

    `by_path` takes precedence over `large`. Bodies that are `streamed` are never whole in memory, nor are those by
    `links`, each of which is verified before it is read.
    """

    paths: Mapping[str, frozenset[AnyRole]]
    large: int
    other: int
    by_path: Mapping[str, int] = field(default_factory=dict)
    streamed: Mapping[str, int] = field(default_factory=dict)
    links: int = _PUBLIC_BYTES

    def streams(self, path: str) -> bool:
        """Whether its route reads the body as it arrives."""
        return path in self.streamed or path.startswith(LINKS)

    def of(self, path: str, role: AnyRole | None) -> int:
        """The limit for a caller; None: a stranger."""
        if path.startswith(LINKS):
            return self.links
        if role is None:
            return self.streamed.get(path, MAX_RAW if path.startswith(HOOKS) else _PUBLIC_BYTES)
        if role == "session":
            return _SESSION_BYTES
        if path in self.streamed:
            return self.streamed[path]
        return self.by_path.get(path, self.large) if role in self.paths.get(path, ()) else self.other


def limits_of(settings: Settings) -> GateLimits:
    """The limits as the settings have them."""
    return GateLimits(
        *(_LARGE, settings.accept.batch_bytes, settings.accept.message_bytes, _BY_PATH),
        streamed={BLOBS: settings.blobs.file_bytes, WEB_FILES: settings.blobs.file_bytes + _FIELDS_BYTES},
        links=settings.turn.reply_file_bytes,
    )


class LargeBodies:
    """Large bodies arrive one per token, and are processed one after the other: each costs time and memory."""

    def __init__(self, above: int) -> None:
        self.above = above
        self._arriving = asyncio.Semaphore(_ARRIVING)
        self._by_token: dict[str, asyncio.Lock] = {}
        self.working = asyncio.Lock()
        """Held by the only one that is worked on."""

    @asynccontextmanager
    async def arriving(self, token: str) -> AsyncIterator[None]:
        """Within this block, it is one of the few that may arrive."""
        lock = self._by_token.setdefault(token, asyncio.Lock())
        async with lock, self._arriving:
            yield


class RequestGate:
    """Requires a token, limits bodies, and answers only by its own names."""

    def __init__(self, app: ASGIApp, access: Access, limits: GateLimits, hosts: Hosts) -> None:
        self._app = app
        self._hosts = hosts
        self._access = access
        self._limits = limits
        self._large, self._of_strangers = LargeBodies(limits.other), LargeBodies(limits.other)
        self._process = token_hex(6)
        self._requests = count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._admit_socket(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # Unique across all processes, and cheaper than a UUID, as every message pays for it.
        request_id = f"{self._process}-{next(self._requests)}"
        bind_contextvars(http_request=request_id)  # never reset: every request has its own task
        scope, send = _as_get(scope), _identify_answer(send, request_id)
        try:
            caller, limit, announced = await self._admit_request(scope)
        except Exception as error:
            await _send_refusal(error, scope, receive, send)
        else:
            if self._limits.streams(scope["path"]) or (announced is not None and announced <= self._large.above):
                await self._app(scope, receive, send)  # the server passes on no more than was announced
            else:
                await self._answer_limited(scope, receive, send, caller, limit)

    async def _admit_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Its token comes in the first frame, which the gateway reads."""
        bind_contextvars(http_request=f"{self._process}-{next(self._requests)}")
        try:
            for host in (value for name, value in scope["headers"] if name == b"host"):
                self._hosts.check(host)
        except UnknownHost as error:
            await response_to(error)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _answer_limited(self, scope: Scope, receive: Receive, send: Send, caller: str, limit: int) -> None:
        async with AsyncExitStack() as until_answered:
            # Requests without a token take no places of others.
            large = self._of_strangers if is_public(scope["path"]) else self._large
            body = _Body(receive, limit, caller, large, until_answered)
            await self._app(scope, body.receive, send)

    def _read_head(self, scope: Scope) -> tuple[str | None, int | None, bool]:
        """Authorization, announced length, and whether the body is chunked. Raises UnknownHost."""
        authorization = announced = None
        chunked = False
        for name, value in scope["headers"]:
            if name == b"authorization":
                authorization = value.decode("latin-1")
            elif name == b"content-length":
                announced = int(value) if value.isdigit() else None
            elif name == b"transfer-encoding":
                chunked = True
            elif name == b"host" and scope["path"] != _HEALTH:
                self._hosts.check(value)
        return authorization, announced, chunked

    async def _authenticate_request(self, scope: Scope, authorization: str | None) -> Principal:
        try:
            return await self._access.authenticate(authorization)
        except Unauthenticated:
            connections: Connections = scope["state"]["connections"]
            connections.forget_token(authorization)
            raise

    async def _admit_request(self, scope: Scope) -> tuple[str, int, int | None]:
        """The token's name, otherwise the path; the permitted and the announced number of bytes.

        Raises the errors of `authenticate`, UnknownHost and TooLarge.
        """
        authorization, announced, chunked = self._read_head(scope)
        principal = None if is_public(scope["path"]) else await self._authenticate_request(scope, authorization)
        if principal is not None:
            _count_connection(scope, principal, authorization)
        limit = self._limits.of(scope["path"], principal.role if principal else None)
        if announced is not None and announced > limit:
            raise _too_large(limit)
        return principal.name if principal else scope["path"], limit, None if chunked else announced


async def _send_refusal(error: Exception, scope: Scope, receive: Receive, send: Send) -> None:
    response = response_to(error)
    if not await _drain_body(scope, receive):
        response.headers["connection"] = "close"
    await response(scope, receive, send)


def _as_get(scope: Scope) -> Scope:
    """HEAD is GET whose body the server omits; `state.head` tells routes whose body never ends."""
    if scope["method"] != "HEAD":
        return scope
    return {**scope, "method": "GET", "state": {**scope["state"], "head": True}}


def _identify_answer(send: Send, request_id: str) -> Send:
    header = (b"request-id", request_id.encode())

    def with_id(message: Message) -> Awaitable[None]:  # another coroutine would cost every message more than the header
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), header]
        return send(message)

    return with_id


def _count_connection(scope: Scope, principal: Principal, authorization: str | None) -> None:
    state = scope["state"]
    state["principal"] = principal
    connections: Connections = state["connections"]
    connections.admit_connection(state["connection"], operator=principal.role == "operator", shown=authorization)


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body exceeds the limit of {limit} bytes; nothing was stored")


class _Body:
    """`receive` for a body of at most `limit` bytes (Content-Length may be missing); large ones take turns."""

    def __init__(
        self, receive: Receive, limit: int, token: str, large: LargeBodies, until_answered: AsyncExitStack
    ) -> None:
        self._receive = receive
        self._limit = limit
        self._token = token
        self._large = large
        self._until_answered = until_answered
        self._got = 0

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            await self._take(len(message.get("body", b"")))
            if self._got > self._large.above and not message.get("more_body", False):
                await self._until_answered.enter_async_context(self._large.working)
        return message

    async def _take(self, size: int) -> None:
        before, self._got = self._got, self._got + size
        if self._got > self._limit:
            raise _too_large(self._limit)
        if before <= self._large.above < self._got:
            await self._until_answered.enter_async_context(self._large.arriving(self._token))


async def _drain_body(scope: Scope, receive: Receive) -> bool:
    """Read the rest of a body, so that the answer is not lost with the connection; returns whether it ended."""
    if not any(name in {b"content-length", b"transfer-encoding"} for name, _ in scope["headers"]):
        return True
    got = 0
    try:
        async with asyncio.timeout(_DRAIN_S):
            while got <= _DRAIN_BYTES:
                message = await receive()
                got += len(message.get("body", b""))
                if not message.get("more_body", False):
                    return True
    except TimeoutError:
        pass
    return False
