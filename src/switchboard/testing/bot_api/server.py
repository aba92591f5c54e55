"""A strict Bot API server on loopback, for tests: `async with BotApi() as api`, and a client pointed at `api.url`.

In: calls of a bot over HTTP, and people's actions through `api.people`; out: answers like Telegram's, and a log of the
calls. Next: `methods.py` for the methods, `world.py` for the state.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import httpx2
from msgspec import Struct
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.tasks import cancel_tasks, unless, wait_at_most
from switchboard.testing.bot_api.checks import Params, check_webhook
from switchboard.testing.bot_api.faults import ApiError, Fault, Status
from switchboard.testing.bot_api.methods import Limits, Methods
from switchboard.testing.bot_api.people import People
from switchboard.testing.bot_api.world import World
from switchboard.testing.platform_server import BrokenOff, Cut, Endpoint, Hang, Page, PlatformServer, Upload, wait_gone

TOKEN: Final = "123456:TEST-TOKEN"  # noqa: S105  of nobody
_MAX_POLL_S: Final = 50
_PUSH_AGAIN_S: Final = 0.5
_OTHER_POLLER: Final = (
    "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"
)
_WEBHOOK_SET: Final = (
    "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first"
)


class Call(Struct, frozen=True):
    """One call of a method. `result` is its effect, even if the answer was lost; None if it had none."""

    method: str
    params: Params
    result: Any = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Webhook:
    """Where updates are sent."""

    url: str
    secret: str = field(default="", repr=False)
    connections: int = 40


class BotApi(PlatformServer[Fault]):
    """Telegram's side of a bot. `api.people` are those who write to it, `api.calls` are the bot's calls.

    `limits`: 429 as from Telegram, by `clock` (seconds since 1970). `tokens` are valid; remove one to revoke it. `more`
    are routes in addition to Telegram's.
    """

    def __init__(
        self,
        token: str = TOKEN,
        *,
        bot: JsonObject | None = None,
        limits: bool = False,
        clock: Callable[[], float] = time.time,
        port: int = 0,
        more: Sequence[Route] = (),
    ) -> None:
        methods = ["GET", "POST"]
        super().__init__(
            Route("/bot{token}/{method}", Endpoint(self._answer_method), methods=methods),
            Route("/file/bot{token}/{path:path}", self._answer_download),
            *more,
            port=port,
        )
        self.world = World(clock)
        if bot is not None:
            self.world.bot = bot
        self.tokens = {token}
        self.people = People(self.world, self.wake_waiting)
        self.calls: list[Call] = []
        self.webhook: Webhook | None = None
        self.refused: tuple[int, str] | None = None
        """When the webhook last refused an update (seconds since 1970), and why, in Telegram's words."""
        self._methods = Methods(self.world, Limits(clock) if limits else None)
        self._waiting = 0
        self._poller = 0
        self._pusher: asyncio.Task[None] | None = None

    @property
    def sent(self) -> list[JsonObject]:
        """The bot's messages that have arrived, in order."""
        results = [call.result for call in self.calls if call.method.lower().startswith("send")]
        return [
            one
            for result in results
            for one in (result if isinstance(result, list) else [result])
            if isinstance(one, dict)
        ]

    @property
    def texts(self) -> list[str]:
        """Their texts and captions."""
        return [one.get("text") or one.get("caption") or "" for one in self.sent]

    @property
    def polling(self) -> bool:
        """Whether a long poll is waiting for updates."""
        return self._waiting > 0

    def called(self, method: str) -> list[Call]:
        """The calls of one method."""
        return [call for call in self.calls if call.method == method]

    def forget(self) -> None:
        """Drop updates that were never fetched, as Telegram does after 24 hours."""
        self.world.updates.clear()

    def put(self, kind: str, payload: object) -> None:
        """Queue any update, however odd."""
        self.world.tell(kind, payload)
        self.wake_waiting()

    async def _close(self) -> None:
        await self._stop_pushing()
        await super()._close()

    async def _answer_method(self, request: Request) -> Response:
        name = str(request.path_params["method"])
        if request.path_params["token"] not in self.tokens:
            return _error_response(ApiError(401, "Unauthorized"))
        params = await _read_params(request)
        fault = self.next_fault(name)
        match fault:
            case Status(code, description, parameters):
                return self._answer_failure(name, params, ApiError(code, description, **parameters))
            case Page(code, text):
                return Response(text, code, media_type="text/html")
            case Hang(taken) | Cut(taken):
                if taken:
                    await self._answer_call(request, name, params)
                else:
                    self._note_call(Call(name, params))
                if isinstance(fault, Hang):
                    await wait_gone(request)
                raise BrokenOff
        return await self._answer_call(request, name, params)

    async def _answer_call(self, request: Request, name: str, params: Params) -> Response:
        try:
            result = await self._result_of(request, name, params)
        except ApiError as error:
            return self._answer_failure(name, params, error)
        self._note_call(Call(name, params, result))
        return JSONResponse({"ok": True, "result": result})

    async def _result_of(self, request: Request, name: str, params: Params) -> object:
        match name.lower():
            case "getupdates":
                found = await unless(wait_gone(request), self._poll_updates(params))
                if found is None:
                    raise BrokenOff
                return found
            case "setwebhook" | "deletewebhook":
                url = params.word("url") if name.lower() == "setwebhook" else None
                return await self._set_webhook(url, params)
            case "getwebhookinfo":
                return self._webhook_info()
        return self._methods.call(name, params)

    def _answer_failure(self, name: str, params: Params, error: ApiError) -> Response:
        self._note_call(Call(name, params, error=error.description))
        return _error_response(error)

    def _note_call(self, call: Call) -> None:
        self.calls.append(call)
        self.wake_waiting()

    async def _poll_updates(self, params: Params) -> list[JsonObject]:
        """Long polling; a new poll ends an earlier one."""
        if self.webhook is not None:
            raise ApiError(409, _WEBHOOK_SET)
        self._poller += 1
        clock = asyncio.get_running_loop().time
        mine, end = self._poller, clock() + min(params.number("timeout"), _MAX_POLL_S)
        self._allow_updates(params)
        self._waiting += 1
        self.wake_waiting()
        try:
            while not (found := self.world.pending(params.number("offset"), params.number("limit"))):
                if (left := end - clock()) <= 0:
                    break
                await wait_at_most(left, self.news)
                if mine != self._poller:
                    raise ApiError(409, _OTHER_POLLER)
            return found
        finally:
            self._waiting -= 1
            self.wake_waiting()

    def _allow_updates(self, params: Params) -> None:
        allowed = params.tree("allowed_updates")
        if isinstance(allowed, list):  # otherwise the earlier choice stays
            self.world.allowed = frozenset(map(str, allowed)) or None

    async def _set_webhook(self, url: str | None, params: Params) -> bool:
        secret = params.word("secret_token") or ""
        if url:
            check_webhook(url, secret)
        await self._stop_pushing()
        if params.word("drop_pending_updates") in ("true", "True"):
            self.forget()
        self.webhook = Webhook(url, secret, params.number("max_connections", 40)) if url else None
        self.refused = None
        if self.webhook is not None:
            self._allow_updates(params)
            self._pusher = asyncio.create_task(self._push_updates(self.webhook))
        return True

    async def _push_updates(self, webhook: Webhook) -> None:
        """Send updates one after the other; one that is not accepted is sent again."""
        headers = {"X-Telegram-Bot-Api-Secret-Token": webhook.secret} if webhook.secret else {}
        async with httpx2.AsyncClient(trust_env=False) as client:
            while True:
                await self.until(lambda: bool(self.world.updates))
                update = self.world.updates[0]
                if (why := await _why_not_taken(client, webhook.url, update, headers)) is None:
                    self.world.confirmed([update["update_id"]])
                    self.wake_waiting()
                    continue
                self.refused = (int(self.world.clock()), why)
                self.wake_waiting()
                await asyncio.sleep(_PUSH_AGAIN_S)

    def _webhook_info(self) -> JsonObject:
        about: JsonObject = {"url": self.webhook.url if self.webhook else "", "has_custom_certificate": False}
        about["pending_update_count"] = len(self.world.updates)
        if self.webhook is not None:
            about["max_connections"] = self.webhook.connections
            if self.world.allowed is not None:
                about["allowed_updates"] = sorted(self.world.allowed)
        if self.refused is not None:
            about["last_error_date"], about["last_error_message"] = self.refused
        return about

    async def _stop_pushing(self) -> None:
        if self._pusher is not None:
            await cancel_tasks(self._pusher)
            self._pusher = None

    async def _answer_download(self, request: Request) -> Response:
        found = self.world.files.get(request.path_params["path"].rpartition("/")[2])
        if request.path_params["token"] not in self.tokens:
            return _error_response(ApiError(401, "Unauthorized"))
        return _error_response(ApiError(404, "Not Found")) if found is None else Response(found)


async def _why_not_taken(client: httpx2.AsyncClient, url: str, update: JsonObject, headers: JsonMapping) -> str | None:
    """The reason as in getWebhookInfo; None if it was accepted."""
    try:
        answer = await client.post(url, json=update, headers=dict(headers))
    except httpx2.HTTPError:
        return "Connection refused"
    reason = answer.reason_phrase
    return None if answer.is_success else f"Wrong response from the webhook: {answer.status_code} {reason}"


async def _read_params(request: Request) -> Params:
    """The parameters from the query, and from a body of any of the three types that Telegram accepts."""
    given: JsonObject = dict(request.query_params)
    media_type = request.headers.get("content-type", "").partition(";")[0]
    if media_type == "application/json":
        body = await request.json()
        return Params(given | body, {})
    uploads = {}
    async with request.form(max_part_size=1 << 30) as form:
        for name, value in form.items():
            if isinstance(value, UploadFile):
                kind = value.content_type or "application/octet-stream"
                uploads[name] = Upload(value.filename or "", kind, await value.read())
            else:
                given[name] = value
    return Params(given, uploads)


def _error_response(error: ApiError) -> Response:
    body: JsonObject = {"ok": False, "error_code": error.code, "description": error.description}
    if error.parameters:
        body["parameters"] = error.parameters
    return JSONResponse(body, error.code)
