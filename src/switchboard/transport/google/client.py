"""Requests to one account at Google, and what their answers mean.

All that is above it makes its requests here. In: a path, parameters, a body; out: JSON, or `GoogleError` with the state
of things. An access token goes to the address with which the client was opened and nowhere else: addresses in answers
are never followed. Next: `series.py`, `calendars.py`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import quote

import httpx2
import msgspec
from msgspec import Struct

from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.ports.collection_server import ServerError, ServerState
from switchboard.ports.connector import SignInRefused
from switchboard.transport.oauth.tokens import AccessTokens
from switchboard.transport.servers_http import open_http
from switchboard.transport.signed_post import SendTrace, body_of, retry_after

CALENDAR_API: Final = "https://www.googleapis.com/calendar/v3"
PEOPLE_API: Final = "https://people.googleapis.com/v1"
MOST_OF_ANSWER: Final = 32_000_000
"""Bytes of an answer."""
WHOLE_S: Final = 60.0
"""The limit of an exchange, in seconds."""
_CONNECT_S: Final = 10.0
_MOST_PAGES: Final = 500
_STATES: Final[Mapping[int, ServerState]] = {
    401: "login",
    403: "forbidden",
    404: "missing",
    408: "later",
    409: "changed",
    410: "missing",
    412: "changed",
    413: "too_large",
    429: "later",
}
_LIMITS: Final = frozenset(
    {
        "rateLimitExceeded",
        "userRateLimitExceeded",
        "quotaExceeded",
        "dailyLimitExceeded",
        "calendarUsageLimitsExceeded",
        "RATE_LIMIT_EXCEEDED",
    }
)
"""Reasons of a 403 that only means: not so often."""
_NARROW: Final = frozenset({"insufficientPermissions", "ACCESS_TOKEN_SCOPE_INSUFFICIENT"})
"""Reasons of a 403 that means: this was not consented to."""

Parameters = Mapping[str, str | int | bool]


class GoogleError(ServerError):
    """The same of an API of Google's. `status`: of its answer. `reason`: its word for it. `retry_after` in seconds.

    `later` are also limits of requests, which come as 403 and 429.
    """

    def __init__(
        self,
        state: ServerState,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(state, message)
        self.status = status
        self.reason = reason
        self.retry_after = retry_after


class GoogleRequest(Struct, frozen=True):
    """One request; `etag`: of the state that it replaces. `path` is below the API's address, and quoted already."""

    method: str
    path: str
    parameters: Parameters = {}
    body: JsonMapping | None = None
    etag: str = ""

    @property
    def asks(self) -> bool:
        """It changes nothing."""
        return self.method == "GET"


class GoogleClient:
    """One account at one API. Open it with `open_google`; it makes one request at a time."""

    def __init__(self, http: httpx2.AsyncClient, tokens: AccessTokens, api: str, whole: float = WHOLE_S) -> None:
        self.api = api.rstrip("/")
        self._http = http
        self._tokens = tokens
        self._whole = whole
        self._turn = asyncio.Lock()

    @property
    def host(self) -> str:
        """Which server it is."""
        return httpx2.URL(self.api).host

    async def get(self, path: str, parameters: Parameters | None = None) -> JsonObject:
        """What is there. Raises GoogleError."""
        return await self.send(GoogleRequest("GET", path, parameters or {}))

    async def pages(self, path: str, parameters: Parameters) -> AsyncIterator[JsonObject]:
        """All pages of a list, asked for with the same parameters. Raises GoogleError."""
        page: JsonObject = await self.get(path, parameters)
        yield page
        for _ in range(_MOST_PAGES):
            token = page.get("nextPageToken")
            if not token:
                return
            page = await self.get(path, {**parameters, "pageToken": token})
            yield page
        raise GoogleError("unreadable", f"{self.host} gives page after page of {path}")

    async def send(self, request: GoogleRequest) -> JsonObject:
        """Carry out a request; nothing comes of a deletion. Raises GoogleError.

        A token that is not accepted, though it should be, is replaced by another one once.
        """
        async with self._turn:
            token = await self._take_token()
            try:
                return await self._exchange_once(request, token)
            except GoogleError as error:
                if error.status != 401:
                    raise
            return await self._exchange_once(request, await self._take_token(token))

    async def _take_token(self, refused: str = "") -> str:
        try:
            return await self._tokens.access_token(refused)
        except SignInRefused as error:
            raise GoogleError("login", str(error)) from error
        except OSError as error:
            raise GoogleError("later", f"no access token can be had now: {error}") from error

    async def _exchange_once(self, request: GoogleRequest, token: str) -> JsonObject:
        sending = SendTrace()
        made = self._http.build_request(
            request.method,
            f"{self.api}/{request.path}",
            params={name: _as_parameter(value) for name, value in request.parameters.items()},
            content=None if request.body is None else msgspec.json.encode(request.body),
            headers=_headers_of(request, token),
            extensions={"trace": sending},
        )
        try:
            async with asyncio.timeout(self._whole):
                response, body = await self._receive(made)
        except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, OSError, UnicodeError) as error:
            state: ServerState = "unknown" if sending.begun and not request.asks else "later"
            raise GoogleError(state, f"{self.host}: {type(error).__name__} {error}".strip()) from error
        if response.status_code >= 300:
            raise _error_of(request, response, body, self.host)
        return _json_of(request, response, body, self.host)

    async def _receive(self, made: httpx2.Request) -> tuple[httpx2.Response, bytes]:
        response = await self._http.send(made, stream=True)
        try:
            body, cut = await body_of(response, MOST_OF_ANSWER)
        finally:
            await response.aclose()
        if cut:
            raise GoogleError("too_large", f"{self.host} answered with more than {MOST_OF_ANSWER:,} bytes")
        return response, body


def quote_segment(text: str) -> str:
    """A calendar's or an event's id as one segment of a path."""
    return quote(text, safe="@")


def _as_parameter(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _headers_of(request: GoogleRequest, token: str) -> dict[str, str]:
    headers = {"authorization": f"Bearer {token}", "accept-encoding": "identity", "user-agent": "switchboard"}
    if request.body is not None:
        headers["content-type"] = "application/json; charset=utf-8"
    if request.etag:
        headers["if-match"] = request.etag
    return headers


def _json_of(request: GoogleRequest, response: httpx2.Response, body: bytes, host: str) -> JsonObject:
    if response.status_code == 204 and not body:
        return {}
    state: ServerState = "unreadable" if request.asks else "unknown"
    try:
        found = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        if "text/html" in response.headers.get("content-type", "").lower():
            raise GoogleError("login_page", f"{host} answered with a page for people") from None
        raise GoogleError(state, f"{host} answered {request.method} with no JSON") from None
    return found


def _error_of(request: GoogleRequest, response: httpx2.Response, body: bytes, host: str) -> GoogleError:
    status = response.status_code
    message, reasons = _told_reasons(body)
    reason = next(iter(reasons), "")
    if status < 400:
        state: ServerState = "elsewhere"
    elif status == 403 and _LIMITS.intersection(reasons):
        state = "later"
    elif status >= 500:  # whether a write was carried out, it does not say
        state = "later" if request.asks else "unknown"
    else:
        state = _STATES.get(status, "refused")
    told = f"{host} answered {request.method} with {status} {reason}".rstrip()
    if _NARROW.intersection(reasons):
        told += ": that was not consented to, so sign in again for writing"
    elif message:
        told += f": {message}"
    after = retry_after(response.headers.get("retry-after"), time.time())
    return GoogleError(state, told, status=status, reason=reason, retry_after=after)


def _told_reasons(body: bytes) -> tuple[str, tuple[str, ...]]:
    """The message of an error, bounded, and its reasons, the most exact first."""
    try:
        answer = msgspec.json.decode(body, type=_ErrorAnswer)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return "", ()
    said = answer.error
    reasons = [one.reason for one in (*said.details, *said.errors) if one.reason]
    return " ".join(said.message.split())[:300], (*reasons, said.status)


class _Reason(Struct, frozen=True):
    reason: str = ""


class _SaidError(Struct, frozen=True):
    message: str = ""
    status: str = ""
    errors: tuple[_Reason, ...] = ()
    details: tuple[_Reason, ...] = ()


class _ErrorAnswer(Struct, frozen=True):
    error: _SaidError


@asynccontextmanager
async def open_google(
    tokens: AccessTokens, api: str, *, whole: float = WHOLE_S, make: Callable[[], httpx2.AsyncClient] | None = None
) -> AsyncIterator[GoogleClient]:
    """A client of an account at the API with this address. `whole`: the limit of an exchange in seconds."""
    timeout = httpx2.Timeout(whole, connect=min(_CONNECT_S, whole))
    async with make() if make else open_http(timeout) as http:
        yield GoogleClient(http, tokens, api, whole)
