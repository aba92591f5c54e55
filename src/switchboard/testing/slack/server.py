"""A strict Slack on loopback, for tests: `async with SlackServer() as slack`, and an app pointed at `slack.api_url`.

In: calls of the Web API, sockets of Socket Mode, and people's actions through `slack.people`; out: answers and events
like Slack's, and a log of the calls. Next: `methods.py` for the methods, `socket_mode.py` for what is sent again,
`workspace.py` for the state.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from msgspec import Struct
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.testing.platform_server import (
    BrokenOff,
    Cut,
    Endpoint,
    Hang,
    MovableClock,
    Page,
    SocketServer,
    connection_of,
    wait_gone,
)
from switchboard.testing.slack.checks import Arguments, check_scope
from switchboard.testing.slack.errors import Fault, SlackError
from switchboard.testing.slack.events import Events
from switchboard.testing.slack.limits import Limits
from switchboard.testing.slack.methods import Method, Methods
from switchboard.testing.slack.people import People
from switchboard.testing.slack.socket_mode import (
    AGAIN_AFTER_S,
    Deliveries,
    Socket,
    as_disconnect,
    as_envelope,
    as_hello,
)
from switchboard.testing.slack.workspace import PREFIXES, TEAM, Workspace

BOT_TOKEN: Final = "xoxb-test-token"  # noqa: S105  of nobody
APP_TOKEN: Final = "xapp-test-token"  # noqa: S105  of nobody
SCOPES: Final = frozenset(
    {"app_mentions:read", "assistant:write", "chat:write", "files:read", "files:write", "reactions:read"}
    | {"reactions:write", "users:read"}
    | {f"{prefix}:{right}" for prefix in PREFIXES.values() for right in ("history", "read")}
)
_MAX_SOCKETS: Final = 10
_TICKET_S: Final = 30.0
_OPEN: Final = "apps.connections.open"
_LOGIN_PAGE: Final = "<!DOCTYPE html><html><head><title>Sign in | Slack</title></head><body></body></html>"


class WebCall(Struct, frozen=True):
    """One call of the Web API. `answer` is its effect, even if that was lost; None if it had none."""

    method: str
    arguments: Arguments
    answer: JsonObject | None = None
    error: str | None = None


class SlackServer(SocketServer[Fault]):
    """Slack's side of an app. `slack.people` are those who write to it, `slack.calls` are the calls of the app.

    `limits`: 429 as from Slack. To `scopes`, `bot_tokens` and `app_tokens` may be added, and from them removed.
    `refusals`: methods that always fail, by their name, with the code. `seed`: of the order of the two events of a
    mention, and of which socket is chosen. `again_after`: how long after a failed sending the next one is made, by
    default as Slack does. `more` are routes in addition to Slack's.
    """

    def __init__(
        self,
        *,
        limits: bool = False,
        clock: MovableClock | None = None,
        seed: int = 0,
        again_after: Sequence[float] = AGAIN_AFTER_S,
        port: int = 0,
        more: Sequence[Route] = (),
    ) -> None:
        verbs = ["GET", "POST"]
        super().__init__(
            Route("/api/{method}", Endpoint(self._answer_method), methods=verbs),
            Route("/upload/v1/{file_id}", Endpoint(self._answer_upload), methods=["POST"]),
            Route("/files-pri/{path:path}", Endpoint(self._answer_download)),
            WebSocketRoute("/link/", self._serve_socket),
            *more,
            clock=clock or MovableClock(),
            port=port,
        )
        self.scopes, self.app_scopes = set(SCOPES), {"connections:write"}
        self.bot_tokens, self.app_tokens = {BOT_TOKEN}, {APP_TOKEN}
        self.refusals: dict[str, str] = {}
        self.calls: list[WebCall] = []
        self.sockets: list[Socket] = []
        """Those that are open, in order."""
        self.deliveries = Deliveries(self.clock, again_after)
        self.workspace = Workspace(self.clock, lambda: self.url)
        self._rng = random.Random(seed)
        events = Events(self.workspace, self.scopes, self._rng, self._send_event, self._send_press)
        self.people = People(self.workspace, events)
        self._methods = Methods(self.workspace, events, self.scopes)
        self._limits = Limits(self.clock) if limits else None
        self._tickets: dict[str, float] = {}

    @property
    def api_url(self) -> str:
        """The beginning of the URLs of methods."""
        return f"{self.url}/api/"

    @property
    def sent(self) -> list[JsonObject]:
        """The messages of the app, in order, each with its channel."""
        return [{**message, "channel": place.id} for place, message in self.workspace.own_messages()]

    @property
    def texts(self) -> list[str]:
        """Their texts."""
        return [one["text"] for one in self.sent]

    @property
    def pings(self) -> list[str]:
        """Whom the messages of the app have notified: `@U…`, `!channel` and its like."""
        return self._methods.pings

    @property
    def whispers(self) -> list[JsonObject]:
        """What the app has shown to one person alone, in order, with the channel and the user."""
        return self._methods.whispers

    @property
    def statuses(self) -> list[JsonObject]:
        """What assistant.threads.setStatus was told, in order."""
        return self._methods.statuses

    def calls_of(self, method: str) -> list[WebCall]:
        """The calls of one method."""
        return [call for call in self.calls if call.method == method]

    def put(self, payload: JsonObject) -> None:
        """Send the app any event, however odd, with what surrounds it: its `payload` in the envelope."""
        self._send_event(payload)

    async def disconnect_sockets(self, reason: str = "refresh_requested") -> None:
        """Tell all sockets that they will be closed; with `link_disabled`, Socket Mode is off from now on."""
        if reason == "link_disabled":
            self.refusals[_OPEN] = "forbidden_team"
        for socket in list(self.sockets):
            await socket.web.send_json(as_disconnect(reason))

    async def close_sockets(self) -> None:
        """Close all sockets, as Slack does some seconds after it has told them."""
        for socket in list(self.sockets):
            await socket.web.close()

    def cut_sockets(self) -> None:
        """Break all sockets, without a word."""
        for socket in self.sockets:
            connection_of(socket.web.scope).transport.abort()

    def deafen_sockets(self) -> None:
        """The present sockets get no events from now on, though their pings are answered."""
        for socket in self.sockets:
            socket.is_deaf = True

    def freeze_sockets(self) -> None:
        """The present sockets neither answer pings nor hear acknowledgements from now on."""
        for socket in self.sockets:
            socket.is_deaf = True
            connection_of(socket.web.scope).transport.pause_reading()

    # Socket Mode ------------------------------------------------------------------------------------------------------

    def _send_event(self, payload: JsonObject) -> None:
        self.deliveries.add(payload)
        self.wake_waiting()

    def _send_press(self, payload: JsonObject) -> None:
        self.deliveries.add_press(payload)
        self.wake_waiting()

    async def _send_events(self) -> None:
        while True:
            news, lost = self.news, len(self.deliveries.lost)
            due = self.deliveries.take_due()
            for delivery in due:
                socket = self._rng.choice(self.sockets) if self.sockets else None
                envelope = as_envelope(delivery)
                self.deliveries.note_sent(delivery, on_socket=socket is not None)
                if socket is not None and not socket.is_deaf:  # Slack does not know that it is deaf
                    with suppress(WebSocketDisconnect, RuntimeError):  # nor that it has just been cut
                        await socket.web.send_json(envelope)
            if due or len(self.deliveries.lost) > lost:
                self.wake_waiting()
            await self._wait_for_news(news, self.deliveries.next_due())

    def _issue_ticket(self, _: Arguments) -> JsonObject:
        ticket = str(uuid.uuid4())
        self._tickets[ticket] = self.clock() + _TICKET_S
        return {"url": f"{self.url.replace('http', 'ws', 1)}/link/?ticket={ticket}&app_id=A0HOUSE"}

    async def _serve_socket(self, web: WebSocket) -> None:
        if self._tickets.pop(web.query_params.get("ticket", ""), 0.0) < self.clock():
            await web.close()  # before it is accepted: 403
            return
        await web.accept()
        if len(self.sockets) >= _MAX_SOCKETS:
            await web.send_json(as_disconnect("too_many_websockets"))
            await web.close()
            return
        socket = Socket(web)
        await web.send_json(as_hello(len(self.sockets) + 1))
        self.sockets.append(socket)
        self.wake_waiting()
        try:
            async for frame in web.iter_text():
                self.deliveries.acknowledge(_envelope_of(frame))
                self.wake_waiting()
        finally:
            self.sockets.remove(socket)
            self.wake_waiting()

    # Web API ----------------------------------------------------------------------------------------------------------

    async def _answer_method(self, request: Request) -> Response:
        name = str(request.path_params["method"])
        given = await _read_arguments(request, self._method_of(name))
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if name != _OPEN:  # which takes it in the header alone
            token = token or given.word("token")
        fault = self.next_fault(name)
        match fault:
            case SlackError():
                return self._answer_failure(name, given, fault)
            case Page(code, text):
                return Response(text, code, media_type="text/html")
            case Hang(taken) | Cut(taken):
                if taken:
                    self._answer_call(name, given, token)
                else:
                    self._note_call(WebCall(name, given))
                if isinstance(fault, Hang):
                    await wait_gone(request)
                raise BrokenOff
        return self._answer_call(name, given, token)

    def _method_of(self, name: str) -> Method:
        if name == _OPEN:
            return Method(self._issue_ticket, is_read=False)
        return self._methods.table.get(name, Method(_refuse_method))

    def _answer_call(self, name: str, given: Arguments, token: str) -> Response:
        method = self._method_of(name)
        try:
            self._check_call(name, method, token)
            self._spend_limit(name, method, given)
            answer = {"ok": True, **method.run(given)}
        except SlackError as error:
            return self._answer_failure(name, given, error)
        self._note_call(WebCall(name, given, answer))
        return JSONResponse(answer, headers=self._scope_headers(name))

    def _check_call(self, name: str, method: Method, token: str) -> None:
        tokens, others = (self.app_tokens, self.bot_tokens) if name == _OPEN else (self.bot_tokens, self.app_tokens)
        if not token:
            raise SlackError("not_authed")
        if token not in tokens:
            raise SlackError("not_allowed_token_type" if token in others else "invalid_auth")
        if name in self.refusals:
            raise SlackError(self.refusals[name])
        if name == _OPEN:
            check_scope(["connections:write"], self.app_scopes)
        check_scope(method.scopes, self.scopes)

    def _spend_limit(self, name: str, method: Method, given: Arguments) -> None:
        if self._limits is None:
            return
        if name == "chat.postMessage":
            self._limits.spend(f"{name} {given.word('channel')}", 1, 1.0)
        elif method.per_minute is not None:
            self._limits.spend(name, method.per_minute, 60.0)

    def _scope_headers(self, name: str) -> dict[str, str]:
        granted = self.app_scopes if name == _OPEN else self.scopes
        return {"x-oauth-scopes": ",".join(sorted(granted))}

    def _answer_failure(self, name: str, given: Arguments, error: SlackError) -> Response:
        self._note_call(WebCall(name, given, error=error.code))
        body = {"ok": False, "error": error.code, **error.fields}
        headers = self._scope_headers(name)
        if error.retry_after is None:
            return JSONResponse(body, headers=headers)
        return JSONResponse(body, 429, {**headers, "Retry-After": str(error.retry_after)})

    def _note_call(self, call: WebCall) -> None:
        self.calls.append(call)
        self.wake_waiting()

    # Files ------------------------------------------------------------------------------------------------------------

    async def _answer_upload(self, request: Request) -> Response:
        data = await _read_upload(request)
        fault = self.next_fault("upload")
        if isinstance(fault, Page):
            return Response(fault.text, fault.code, media_type="text/html")
        if isinstance(fault, Cut) and not fault.taken:
            raise BrokenOff
        if not self._methods.take_upload(str(request.path_params["file_id"]), data):
            return PlainTextResponse("the length is not the one that was announced", 400)
        self.wake_waiting()
        if isinstance(fault, Cut):
            raise BrokenOff
        return PlainTextResponse(f"OK - {len(data)}")

    async def _answer_download(self, request: Request) -> Response:
        """A file, if the token may read it; otherwise a page to sign in, with 200."""
        fault = self.next_fault("download")
        if isinstance(fault, Cut):
            raise BrokenOff
        if isinstance(fault, Page):
            return Response(fault.text, fault.code, media_type="text/html")
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in self.bot_tokens or "files:read" not in self.scopes:
            return HTMLResponse(_LOGIN_PAGE)
        file_id = request.path_params["path"].partition("/")[0].removeprefix(f"{TEAM}-")
        found = self.workspace.files.get(file_id)
        if found is None:
            return HTMLResponse(_LOGIN_PAGE, 404)
        return Response(found.data, media_type=found.about["mimetype"])


async def _read_arguments(request: Request, method: Method) -> Arguments:
    """The arguments from the query, and from a form or, for methods that write, from JSON."""
    given: JsonObject = dict(request.query_params)
    media_type = request.headers.get("content-type", "").partition(";")[0]
    if media_type == "application/json":
        body = await request.body()
        return Arguments(given if method.is_read else given | _as_object(body))
    async with request.form() as form:
        return Arguments(given | {name: value for name, value in form.items() if isinstance(value, str)})


def _as_object(body: bytes) -> JsonObject:
    try:
        found = json.loads(body or b"{}")
    except ValueError:
        raise BrokenOff from None
    return found if isinstance(found, dict) else {}


async def _read_upload(request: Request) -> bytes:
    """The content, as the whole body or as the file of a form."""
    if not request.headers.get("content-type", "").startswith("multipart/"):
        return await request.body()
    async with request.form(max_part_size=1 << 30) as form:
        files = [one for one in form.values() if isinstance(one, UploadFile)]
        return await files[0].read() if files else b""


def _envelope_of(frame: str) -> str:
    """The id of the envelope that a frame acknowledges; empty if it does not."""
    try:
        found: JsonMapping = json.loads(frame)
        return str(found["envelope_id"])
    except (ValueError, KeyError, TypeError):
        return ""


def _refuse_method(_: Arguments) -> JsonObject:
    raise SlackError("unknown_method")
