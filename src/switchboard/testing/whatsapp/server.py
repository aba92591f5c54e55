"""A strict WhatsApp on loopback, for tests: `async with WhatsAppServer() as whatsapp`, and a business pointed at it.

In: requests of the Graph API at `whatsapp.url`, and people's actions through `whatsapp.people`; out: answers like
Meta's, signed webhooks, and a log of the requests. Next: `graph.py` for the requests, `posting.py` for webhooks.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Sequence
from typing import Final

import httpx2
from msgspec import Struct
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from switchboard.domain.json_values import JsonObject
from switchboard.testing.platform_server import (
    BrokenOff,
    Cut,
    Endpoint,
    Hang,
    MovableClock,
    Page,
    SendingServer,
    Upload,
    wait_gone,
)
from switchboard.testing.whatsapp.business import BusinessMessage, BusinessNumber, WhatsAppBusiness
from switchboard.testing.whatsapp.errors import Fault, GraphError
from switchboard.testing.whatsapp.graph import MANAGEMENT, MESSAGING, Graph, GraphRequest, GraphRoute
from switchboard.testing.whatsapp.limits import MessageLimits
from switchboard.testing.whatsapp.people import WhatsAppPeople
from switchboard.testing.whatsapp.posting import WebhookPoster
from switchboard.testing.whatsapp.webhooks import NUMBER, OTHER_NUMBER, WebhookSender, display_of

TOKEN: Final = "EAATestToken0"  # noqa: S105  of nobody
APP_SECRET: Final = "0123456789abcdef0123456789abcdef"  # noqa: S105  of nobody
ACCOUNT: Final = "102290129340398"
_VERSION: Final = re.compile(r"v\d{1,2}\.\d")
_ANSWER_S: Final = 20.0


class GraphCall(Struct, frozen=True):
    """One request. `answer` is its effect, even if that was lost; None if it had none. `error`: a code."""

    name: str
    request: GraphRequest
    answer: JsonObject | None = None
    error: int | None = None


class WhatsAppServer(SendingServer[Fault]):
    """Meta's side of a business with two numbers. `whatsapp.people` write to it, `whatsapp.calls` are its requests.

    `limits`: of messages, as at Meta. To `tokens` and `permissions` may be added, and from them removed. `hooks` posts
    the webhooks, and `graph` says how it behaves. `more` are routes in addition to Meta's.
    """

    def __init__(
        self,
        *,
        limits: bool = False,
        clock: MovableClock | None = None,
        port: int = 0,
        more: Sequence[Route] = (),
    ) -> None:
        clock = clock or MovableClock()
        super().__init__(
            Route("/whatsapp_business/attachments/", Endpoint(self._answer_download)),
            *more,
            Route("/{version}/{path:path}", Endpoint(self._answer_request), methods=["GET", "POST", "DELETE"]),
            clock=clock,
            port=port,
        )
        self.tokens, self.permissions = {TOKEN}, {MANAGEMENT, MESSAGING}
        self.calls: list[GraphCall] = []
        self.business = WhatsAppBusiness(clock, lambda: self.url, ACCOUNT)
        for number_id in (NUMBER, OTHER_NUMBER):
            self.business.numbers[number_id] = BusinessNumber(number_id, f"+{display_of(number_id)}")
        sender = WebhookSender(APP_SECRET, ACCOUNT, clock)
        self.hooks = WebhookPoster(self.business, sender, self.wake_waiting)
        self.people = WhatsAppPeople(self.business, sender, self.hooks)
        counted = MessageLimits(clock) if limits else None
        self.graph = Graph(self.business, sender, self.hooks, self.people, counted)

    @property
    def sent(self) -> list[BusinessMessage]:
        """The messages of the business that did not fail at once, in order."""
        return [one for one in self.business.sent if one.person is not None and one.failed is None]

    @property
    def texts(self) -> list[str]:
        """Their texts and captions."""
        return [one.text for one in self.sent]

    def calls_of(self, name: str) -> list[GraphCall]:
        """The requests of one kind, such as `POST messages`."""
        return [call for call in self.calls if call.name == name]

    async def _send_events(self) -> None:
        async with httpx2.AsyncClient(trust_env=False, timeout=_ANSWER_S) as client:
            while True:
                news = self.news
                await self.hooks.post_due(client)
                if news is self.news:
                    await self._wait_for_news(news, self.hooks.next_due)

    # Requests ---------------------------------------------------------------------------------------------------------

    async def _answer_request(self, request: Request) -> Response:
        node, _, edge = str(request.path_params["path"]).strip("/").partition("/")
        try:
            self._check_token(request)
            route = self.graph.find(request.method, node, edge)
        except GraphError as error:
            return _error_response(error)
        asked = await _read_request(request, node)
        fault = self.next_fault(route.name)
        match fault:
            case GraphError():
                return self._answer_failure(route.name, asked, fault)
            case Page(code, text):
                return Response(text, code, media_type="text/html")
            case Hang(taken) | Cut(taken):
                if taken:
                    await self._answer_call(route, asked)
                else:
                    self._note_call(GraphCall(route.name, asked))
                if isinstance(fault, Hang):
                    await wait_gone(request)
                raise BrokenOff
        return await self._answer_call(route, asked)

    def _check_token(self, request: Request) -> None:
        if not _VERSION.fullmatch(str(request.path_params["version"])):
            raise GraphError(2500, title="Unknown path components")
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if (token or request.query_params.get("access_token")) not in self.tokens:
            raise GraphError(190)
        proof = request.query_params.get("appsecret_proof")
        if proof is not None and proof != hmac.digest(APP_SECRET.encode(), token.encode(), "sha256").hex():
            raise GraphError(100, title="Invalid appsecret_proof provided in the API argument")

    def _check_permission(self, route: GraphRoute) -> None:
        if route.permission not in self.permissions:
            raise GraphError(200 if route.permission == MESSAGING else 10)

    async def _answer_call(self, route: GraphRoute, asked: GraphRequest) -> Response:
        try:
            self._check_permission(route)
            answer = await route.run(asked)
        except GraphError as error:
            return self._answer_failure(route.name, asked, error)
        self._note_call(GraphCall(route.name, asked, answer))
        return JSONResponse(answer)

    def _answer_failure(self, name: str, asked: GraphRequest, error: GraphError) -> Response:
        self._note_call(GraphCall(name, asked, error=error.code))
        return _error_response(error)

    def _note_call(self, call: GraphCall) -> None:
        self.calls.append(call)
        self.wake_waiting()

    async def _answer_download(self, request: Request) -> Response:
        """A file, if the token is given and the URL is still valid."""
        fault = self.next_fault("download")
        if isinstance(fault, Cut):
            raise BrokenOff
        if isinstance(fault, Page):
            return Response(fault.text, fault.code, media_type="text/html")
        if request.headers.get("authorization", "").removeprefix("Bearer ") not in self.tokens:
            return PlainTextResponse("", 401)
        query = request.query_params
        media, expiry = self.business.find_media(query.get("mid", "")), int(query.get("ext", "0"))
        right = media is not None and query.get("hash") == self.business.url_hash(media.media_id, expiry)
        if media is None or not right or expiry <= self.clock():
            return PlainTextResponse("", 404)
        return Response(media.data, media_type=media.media_type)


async def _read_request(request: Request, node: str) -> GraphRequest:
    """The request, with its body as JSON or as a form."""
    query, media_type = dict(request.query_params), request.headers.get("content-type", "").partition(";")[0]
    if media_type not in ("multipart/form-data", "application/x-www-form-urlencoded"):
        return GraphRequest(node, query, _as_object(await request.body()))
    given, upload = JsonObject(), None
    async with request.form(max_part_size=1 << 30) as form:
        for name, value in form.items():
            if isinstance(value, UploadFile):
                kind = value.content_type or "application/octet-stream"
                upload = Upload(value.filename or "", kind, await value.read())
            else:
                given[name] = value
    return GraphRequest(node, query, given, upload)


def _as_object(body: bytes) -> JsonObject:
    try:
        found = json.loads(body or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _error_response(error: GraphError) -> Response:
    return JSONResponse(error.as_json(), error.status)
