"""A strict Discord on loopback, for tests: `async with DiscordServer() as discord`, and a bot pointed at it.

In: requests of the REST API at `discord.api_url`, sockets of the gateway, and people's actions through
`discord.people`; out: answers and events like Discord's, and a log of the requests. Next: `routes.py` for the routes,
`gateway.py` for sessions, `world.py` for the state.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from switchboard.domain.json_values import JsonObject
from switchboard.testing.discord.errors import Fault, FormError, RestError
from switchboard.testing.discord.gateway import (
    ALL_INTENTS,
    GUILDS,
    MESSAGE_CONTENT,
    PRIVILEGED_OTHERS,
    Link,
    Session,
    Sessions,
    as_ready,
)
from switchboard.testing.discord.limits import RouteLimits, major_of
from switchboard.testing.discord.people import People
from switchboard.testing.discord.routes import RestRequest, RestRoute, Routes
from switchboard.testing.discord.world import BOT, DiscordWorld, about_guild, sign_file
from switchboard.testing.platform_server import (
    BrokenOff,
    Cut,
    Endpoint,
    Hang,
    MovableClock,
    Page,
    SocketServer,
    Upload,
    connection_of,
    wait_gone,
)

TOKEN: Final = "OTAw.test.token"  # noqa: S105  of nobody
HEARTBEAT_S: Final = 41.25
_OVERDUE: Final = 1.5
"""After how many intervals without a heartbeat a socket is closed."""
_PREFIX: Final = "/api/v10"
_KNOWN_OPS: Final = frozenset({1, 2, 3, 4, 6, 8, 31})


class RestCall(Struct, frozen=True):
    """One request. `answer` is its effect, even if that was lost; None if it had none."""

    name: str
    request: RestRequest
    answer: Any = None
    error: str | None = None


class _Closed(Exception):
    """The server closes the socket, with this code."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


class DiscordServer(SocketServer[Fault]):
    """Discord's side of a bot. `discord.people` are those who write to it, `discord.calls` are the requests of the bot.

    `limits`: 429 as from Discord, the headers that say how much is left, and one sign-in in five seconds. `tokens` are
    valid; remove one to revoke it. `message_content`: the intent is switched on. `is_bricked`: sockets that resume are
    broken, without a word. `more` are routes in addition to Discord's.
    """

    def __init__(
        self,
        token: str = TOKEN,
        *,
        limits: bool = False,
        clock: MovableClock | None = None,
        port: int = 0,
        more: Sequence[Route] = (),
    ) -> None:
        clock = clock or MovableClock()
        self.tokens, self.message_content, self.is_bricked = {token}, True, False
        self.calls: list[RestCall] = []
        self.leaks: list[str] = []
        """The paths of files that were asked for with an Authorization header: the token went where it must not."""
        self.links: list[Link] = []
        """The sockets that are open, in order."""
        self.sessions = Sessions(clock)
        self.world = DiscordWorld(clock, lambda: self.url)
        self.people = People(self.world, self.sessions, self.wake_waiting)
        self._routes = Routes(self.world, self.people, self.sessions, lambda: self.message_content)
        self._limits = RouteLimits(clock) if limits else None
        self._refused_until = 0.0
        super().__init__(
            *map(self._make_route, self._routes.table),
            Route(f"{_PREFIX}/{{path:path}}", _refuse_route, methods=["GET", "POST", "PUT", "PATCH", "DELETE"]),
            Route("/attachments/{channel}/{file}/{name}", Endpoint(self._answer_download)),
            WebSocketRoute("/gateway", self._serve_socket),
            WebSocketRoute("/gateway/", self._serve_socket),
            *more,
            clock=clock,
            port=port,
        )

    @property
    def api_url(self) -> str:
        """The beginning of the URLs of routes."""
        return f"{self.url}{_PREFIX}"

    @property
    def gateway_url(self) -> str:
        """Where the gateway is."""
        return f"{self.url.replace('http', 'ws', 1)}/gateway"

    @property
    def sent(self) -> list[JsonObject]:
        """The messages of the bot that have not been deleted, in order."""
        found = [one for channel in self.world.channels.values() for one in channel.messages.values()]
        return sorted((one for one in found if one["author"]["id"] == BOT["id"]), key=lambda one: int(one["id"]))

    @property
    def texts(self) -> list[str]:
        """Their texts."""
        return [one["content"] for one in self.sent]

    @property
    def pings(self) -> list[str]:
        """Whom the messages of the bot have notified: users by id, roles as `&id`, and `everyone`."""
        return self._routes.pings

    @property
    def typing(self) -> list[str]:
        """The channels in which the bot was shown to type, in order."""
        return self._routes.typing

    @property
    def whispers(self) -> list[JsonObject]:
        """What the bot has shown to those alone who pressed a button."""
        return self.world.whispers

    @property
    def hasty(self) -> int:
        """How many messages came while the account was limited, later than a second after the first refusal."""
        return self._routes.account.hasty

    def limit_account(self, seconds: float) -> None:
        """Refuse the next message of the bot, and all others for so many seconds after it (429, global)."""
        self._routes.account.begin(seconds)

    def calls_of(self, name: str) -> list[RestCall]:
        """The requests to one route, such as `POST /channels/{channel}/messages`."""
        return [call for call in self.calls if call.name == name]

    def put(self, name: str, data: JsonObject, intent: int = GUILDS) -> None:
        """Send the sessions with this intent any event, however odd."""
        self.sessions.add(name, intent, lambda _: data)
        self.wake_waiting()

    async def ask_reconnect(self) -> None:
        """Tell all sockets to reconnect and to resume (op 7)."""
        for link in list(self.links):
            await link.send({"op": 7, "d": None})

    async def invalidate_sessions(self, *, resumable: bool = False) -> None:
        """Tell all sockets that their sessions are over (op 9), or may be resumed."""
        if not resumable:
            self.sessions.clear()
        for link in list(self.links):
            await link.send({"op": 9, "d": resumable})

    async def close_links(self, code: int) -> None:
        """Close all sockets; with 4004, 4007, 4009 and 4014, their sessions are over."""
        for link in list(self.links):
            await self._close_link(link, code)

    def cut_links(self) -> None:
        """Break all sockets, without a word."""
        for link in self.links:
            connection_of(link.web.scope).transport.abort()

    def refuse_links(self, seconds: float) -> None:
        """Break all sockets, and let none be opened for so long."""
        self._refused_until = self.clock() + seconds
        self.cut_links()

    def deafen_links(self) -> None:
        """The present sockets get no events from now on, though their heartbeats are acknowledged."""
        for link in self.links:
            link.is_deaf = True

    def mute_links(self) -> None:
        """Heartbeats of the present sockets are not acknowledged from now on, and they get no events."""
        for link in self.links:
            link.is_deaf, link.acks = True, False

    # Gateway ----------------------------------------------------------------------------------------------------------

    async def _send_events(self) -> None:
        """Give each socket its events, and close those whose heartbeats are overdue."""
        while True:
            news, given = self.news, False
            for link in list(self.links):
                given |= await link.give_events()
                if link.heard_at + _OVERDUE * HEARTBEAT_S <= self.clock():
                    await self._close_link(link, 4000)
            if given:
                self.wake_waiting()
            due = min((link.heard_at + _OVERDUE * HEARTBEAT_S for link in self.links), default=None)
            await self._wait_for_news(news, due)

    async def _serve_socket(self, web: WebSocket) -> None:
        if self.clock() < self._refused_until:
            await web.close()  # before it is accepted: 403
            return
        await web.accept()
        if web.query_params.get("encoding", "json") != "json" or web.query_params.get("v") != "10":
            await web.close(4012, "Invalid API version")
            return
        compressor = zlib.compressobj() if web.query_params.get("compress") == "zlib-stream" else None
        link = Link(web, compressor, self.clock())
        self.links.append(link)
        code = 1006
        try:
            await link.send({"op": 10, "d": {"heartbeat_interval": int(HEARTBEAT_S * 1000)}, "s": None, "t": None})
            while True:
                await self._take_frame(link, await web.receive())
                self.wake_waiting()
        except WebSocketDisconnect as closed:
            code = closed.code
        except _Closed as closed:
            await self._close_link(link, closed.code, closed.reason)
        finally:
            self._forget_link(link, code)

    async def _close_link(self, link: Link, code: int, reason: str = "") -> None:
        self._forget_link(link, code)
        await link.web.close(code, reason)

    def _forget_link(self, link: Link, code: int) -> None:
        if link in self.links:
            self.links.remove(link)
        if link.session is not None:
            self.sessions.leave(link.session, code)
            link.session = None
        self.wake_waiting()

    async def _take_frame(self, link: Link, message: Any) -> None:
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code") or 1006)
        try:
            frame = json.loads(message.get("text") or message.get("bytes") or b"")
            op, data = frame["op"], frame.get("d")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise _Closed(4002, "Error while decoding payload.") from None
        if op not in _KNOWN_OPS:
            raise _Closed(4001, "Unknown opcode")
        if op == 1:
            link.heard_at = self.clock()
            if link.acks:
                await link.send({"op": 11, "d": None})
        elif op == 2 and self._limits is not None and self.sessions.is_too_soon():
            await link.send({"op": 9, "d": False})
        elif op == 2:
            self._begin_session(link, data)
        elif op == 6:
            await self._resume_session(link, data)
        elif link.session is None:
            raise _Closed(4003, "Not authenticated.")

    def _begin_session(self, link: Link, data: Any) -> None:
        if link.session is not None:
            raise _Closed(4005, "Already authenticated.")
        self._check_token(data)
        intents = data.get("intents")
        if not isinstance(intents, int) or intents & ~ALL_INTENTS:
            raise _Closed(4013, "Invalid intent(s).")
        if intents & PRIVILEGED_OTHERS or (intents & MESSAGE_CONTENT and not self.message_content):
            raise _Closed(4014, "Disallowed intent(s).")
        if self.sessions.left <= 0:
            self._reset_token()
            raise _Closed(4004, "Authentication failed.")
        link.session = self.sessions.begin(intents)
        flags = self._routes.about_application()["flags"]
        link.session.add("READY", as_ready(link.session, self.gateway_url, BOT, flags, self.world.guilds))
        for guild in self.world.guilds if intents & GUILDS else ():
            link.session.add("GUILD_CREATE", about_guild(self.world, guild))

    def _check_token(self, data: Any) -> None:
        if not isinstance(data, dict) or str(data.get("token")).removeprefix("Bot ") not in self.tokens:
            raise _Closed(4004, "Authentication failed.")

    def _reset_token(self) -> None:
        """More sign-ins than Discord allows in a day: no token is valid any more, and no session."""
        self.tokens.clear()
        self.sessions.clear()

    async def _resume_session(self, link: Link, data: Any) -> None:
        if self.is_bricked:
            connection_of(link.web.scope).transport.abort()
            return
        self._check_token(data)
        session, number = self.sessions.find(str(data.get("session_id"))), data.get("seq")
        if session is None:
            await link.send({"op": 9, "d": False})
            return
        if not isinstance(number, int) or number > session.number:
            raise _Closed(4007, "Invalid seq.")
        for other in [one for one in self.links if one.session is session]:
            other.session = None
            await self._close_link(other, 4000)
        await self._replay_events(link, session, number)

    async def _replay_events(self, link: Link, session: Session, number: int) -> None:
        """Everything after the number, and then RESUMED."""
        session.left_at = None
        link.session, link.given = session, number
        await link.give_events()
        session.number += 1
        link.given = session.number
        await link.send({"op": 0, "t": "RESUMED", "s": session.number, "d": {"_trace": []}})

    # REST -------------------------------------------------------------------------------------------------------------

    def _make_route(self, route: RestRoute) -> BaseRoute:
        verb, path = route.name.split(" ")

        async def answer(request: Request) -> Response:
            return await self._answer_route(route, request)

        return Route(f"{_PREFIX}{path}", Endpoint(answer), methods=[verb])

    async def _answer_route(self, route: RestRoute, request: Request) -> Response:
        asked = await _read_request(request)
        fault = self.next_fault(route.name)
        match fault:
            case RestError():
                return self._answer_failure(route, asked, fault)
            case Page(code, text):
                return Response(text, code, media_type="text/html")
            case Hang(taken) | Cut(taken):
                if taken:
                    self._answer_call(route, asked, request)
                else:
                    self._note_call(RestCall(route.name, asked))
                if isinstance(fault, Hang):
                    await wait_gone(request)
                raise BrokenOff
        return self._answer_call(route, asked, request)

    def _answer_call(self, route: RestRoute, asked: RestRequest, request: Request) -> Response:
        try:
            self._check_request(route, asked, request)
            answer = route.run(asked)
        except RestError as error:
            return self._answer_failure(route, asked, error)
        self._note_call(RestCall(route.name, asked, answer))
        if answer is None:
            return Response(status_code=204, headers=self._limit_headers(route, asked))
        return _as_json(answer, 200, self._limit_headers(route, asked))

    def _check_request(self, route: RestRoute, asked: RestRequest, request: Request) -> None:
        by_path = "token" in asked.path  # it is that of a press
        if not by_path and request.headers.get("authorization", "").removeprefix("Bot ") not in self.tokens:
            raise RestError(401, 0, "401: Unauthorized")
        if self._limits is not None:
            self._limits.spend(route.name, major_of(asked.path))

    def _answer_failure(self, route: RestRoute, asked: RestRequest, error: RestError) -> Response:
        self._note_call(RestCall(route.name, asked, error=error.message))
        body: JsonObject = {"message": error.message, "code": error.code}
        if isinstance(error, FormError):
            body["errors"] = error.errors
        headers = self._limit_headers(route, asked)
        if error.retry_after is not None:
            body |= {"retry_after": error.retry_after, "global": error.is_global}
            headers |= {"Retry-After": str(math.ceil(error.retry_after)), "Via": "1.1 google"}
            headers["X-RateLimit-Scope"] = "global" if error.is_global else "user"
            if error.is_global:
                headers["X-RateLimit-Global"] = "true"
        return _as_json(body, error.status, headers)

    def _limit_headers(self, route: RestRoute, asked: RestRequest) -> dict[str, str]:
        return {} if self._limits is None else self._limits.headers(route.name, major_of(asked.path))

    def _note_call(self, call: RestCall) -> None:
        self.calls.append(call)
        self.wake_waiting()

    async def _answer_download(self, request: Request) -> Response:
        """A file, if its URL is signed and has not expired."""
        if isinstance(self.next_fault("download"), Cut):
            raise BrokenOff
        if "authorization" in request.headers:
            self.leaks.append(request.url.path)
        file_id, query = request.path_params["file"], request.query_params
        expiry = query.get("ex", "0")
        if file_id not in self.world.files or query.get("hm") != sign_file(file_id, expiry):
            return PlainTextResponse("This content is no longer available.", 404)
        if int(expiry, 16) <= self.clock():
            return PlainTextResponse("This content is no longer available.", 404)
        media_type, data = self.world.files[file_id]
        return Response(data, media_type=media_type)


async def _read_request(request: Request) -> RestRequest:
    """The request, with its body as JSON, or as a form of `payload_json` and `files[n]`."""
    path = {name: str(value) for name, value in request.path_params.items()}
    query, media_type = dict(request.query_params), request.headers.get("content-type", "").partition(";")[0]
    if media_type != "multipart/form-data":
        return RestRequest(path, query, _as_object(await request.body()))
    async with request.form(max_part_size=1 << 30) as form:
        body = form.get("payload_json", "{}")
        text = (await body.read()).decode() if isinstance(body, UploadFile) else body
        files = [
            (name, one) for name, one in form.multi_items() if isinstance(one, UploadFile) and name != "payload_json"
        ]
        uploads = [
            Upload(one.filename or "file", one.content_type or "application/octet-stream", await one.read())
            for name, one in sorted(files, key=lambda pair: pair[0])
        ]
    return RestRequest(path, query, _as_object(text.encode()), tuple(uploads))


def _as_object(body: bytes) -> JsonObject:
    try:
        found = json.loads(body or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _as_json(body: object, status: int, headers: dict[str, str]) -> Response:
    """An answer whose type is exactly `application/json`, without a charset, as clients compare it."""
    return Response(json.dumps(body), status, {**headers, "Content-Type": "application/json"})


async def _refuse_route(_: Request) -> Response:
    return _as_json({"message": "404: Not Found", "code": 0}, 404, {})
