"""Requests to one account on a server of calendars or contacts, and what their answers mean.

`discovery.py`, `reading.py` and `writing.py` make the requests. In: an address, a method, a body; out: a `DavAnswer`,
or `DavError` with the state of things. Redirects are followed within the site of the account (`places.py`), and by
questions alone. Next: `discovery.py`.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Final

import httpx2
from msgspec import Struct

from switchboard.ports.collection_server import ServerState
from switchboard.transport.dav.kinds import DavError, DavKind, DavLogin
from switchboard.transport.dav.multistatus import Multistatus, multistatus_of, propfind_body
from switchboard.transport.dav.places import next_of, start_of
from switchboard.transport.servers_http import open_http
from switchboard.transport.signed_post import SendTrace, body_of, retry_after

MOST_OF_ANSWER: Final = 32_000_000
"""Bytes of an answer about a whole collection."""
MOST_OF_OBJECT: Final = 1_000_000
WHOLE_S: Final = 60.0
"""The limit of an exchange, in seconds."""
LISTING_S: Final = 300.0
"""The same where whole collections are listed. Radicale reads all objects before it answers for the
first time: ten seconds for 2,000 events, some minutes on a machine that is busy.
"""
_SILENT_S: Final = 120.0
_CONNECT_S: Final = 10.0
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_MOST_REDIRECTS: Final = 5
_PAGE: Final = re.compile(rb"\s*(?:<!doctype html|<html)", re.IGNORECASE)
_DONE: Final[Mapping[str, tuple[int, ...]]] = {"GET": (200,), "PUT": (200, 201, 204), "DELETE": (200, 202, 204)}
"""Statuses below 300 that mean what was asked for; 207 may be a failure."""
_STATES: Final[Mapping[int, ServerState]] = {
    401: "login",
    402: "quota",
    403: "forbidden",
    404: "missing",
    408: "later",
    409: "changed",
    410: "missing",
    412: "changed",
    413: "too_large",
    423: "later",
    425: "later",
    429: "later",
    501: "refused",
    507: "quota",
}


class DavRequest(Struct, frozen=True):
    """One request. `asks`: it changes nothing, and may be sent again where the server refers to."""

    method: str
    url: httpx2.URL
    body: bytes = b""
    headers: Mapping[str, str] = {}
    most: int = MOST_OF_ANSWER

    @property
    def asks(self) -> bool:
        return self.method in ("PROPFIND", "REPORT", "GET", "OPTIONS")


class DavAnswer(Struct, frozen=True):
    """An answer of a status below 300; `url` is where it came from in the end."""

    status: int
    url: httpx2.URL
    headers: Mapping[str, str]
    body: bytes

    @property
    def etag(self) -> str:
        """The ETag, as it stands; empty without one."""
        return self.headers.get("etag", "").strip()


class DavClient:
    """One account of one kind. Open it with `open_dav`; it makes one request at a time."""

    def __init__(self, http: httpx2.AsyncClient, login: DavLogin, kind: DavKind, whole: float = WHOLE_S) -> None:
        self.kind = kind
        self.start = start_of(login.url)
        self._http = http
        self._auth = httpx2.BasicAuth(login.user.encode(), login.password.encode())
        self._whole = whole
        self._turn = asyncio.Lock()

    async def properties(self, url: httpx2.URL, names: Iterable[str], depth: int) -> tuple[httpx2.URL, Multistatus]:
        """The properties of a resource, or with depth 1 also of what is in it; and where the answer came from."""
        headers = {"depth": str(depth), "content-type": "application/xml; charset=utf-8"}
        return await self._ask(DavRequest("PROPFIND", url, propfind_body(self.kind, names), headers))

    async def report(self, url: httpx2.URL, body: bytes, depth: int, most: int = MOST_OF_ANSWER) -> Multistatus:
        """The answer to a report about a collection."""
        headers = {"depth": str(depth), "content-type": "application/xml; charset=utf-8"}
        return (await self._ask(DavRequest("REPORT", url, body, headers, most)))[1]

    async def _ask(self, request: DavRequest) -> tuple[httpx2.URL, Multistatus]:
        answer = await self.send(request)
        if answer.status != 207:
            raise DavError("unreadable", f"{answer.url.host} answered {answer.status} where 207 is due: no DAV server?")
        return answer.url, await asyncio.to_thread(multistatus_of, answer.body)  # of a large collection: seconds

    async def send(self, request: DavRequest) -> DavAnswer:
        """Carry out a request. Raises DavError: `elsewhere` for what is not on the site of the account.

        Addresses come from mirrors, too, and an account may have moved since.
        """
        next_of(self.start, str(request.url), self.start)
        async with self._turn:
            for _ in range(_MOST_REDIRECTS):
                response, body = await self._exchange_once(request)
                if response.status_code not in _REDIRECTS:
                    return _answer_of(request, response, body)
                request = self._follow_redirect(request, response)
            raise DavError("unreadable", f"{request.url.host} redirects again and again")

    def _follow_redirect(self, request: DavRequest, response: httpx2.Response) -> DavRequest:
        place = next_of(request.url, response.headers.get("location", ""), self.start)
        if not request.asks:
            raise DavError("elsewhere", f"{request.url.host} redirects what should be written: log in there instead")
        return DavRequest(request.method, place, request.body, request.headers, request.most)

    async def _exchange_once(self, request: DavRequest) -> tuple[httpx2.Response, bytes]:
        sending = SendTrace()
        made = self._http.build_request(
            request.method,
            request.url,
            content=request.body,
            headers={"accept-encoding": "identity", "user-agent": "switchboard", **request.headers},
            extensions={"trace": sending},
        )
        try:
            async with asyncio.timeout(self._whole):
                return await self._receive(made, request.most)
        except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, OSError, UnicodeError) as error:
            state: ServerState = "unknown" if sending.begun and not request.asks else "later"
            what = f"{request.url.host}: {type(error).__name__} {error}".strip()
            raise DavError(state, what) from error

    async def _receive(self, made: httpx2.Request, most: int) -> tuple[httpx2.Response, bytes]:
        response = await self._http.send(made, auth=self._auth, stream=True)
        try:
            body, cut = await body_of(response, most)
        finally:
            await response.aclose()
        if cut:
            raise DavError("too_large", f"{made.url.host} answered with more than {most:,} bytes")
        return response, body


def _answer_of(request: DavRequest, response: httpx2.Response, body: bytes) -> DavAnswer:
    """Raises DavError for what is no success."""
    status, host = response.status_code, request.url.host
    if status >= 300:
        state = _STATES.get(status, "later" if status >= 500 else "refused")
        after = retry_after(response.headers.get("retry-after"), time.time())
        raise DavError(state, f"{host} answered {request.method} with {status}", status=status, retry_after=after)
    said_page = "text/html" in response.headers.get("content-type", "").lower() and request.method != "OPTIONS"
    page = said_page or _PAGE.match(body)
    if page and (request.asks or status == 200):  # Apache says in HTML that something was created
        raise DavError("login_page", f"{host} answered with a page for people, such as one to log in")
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise DavError("unreadable", f"{host} compressed an answer that should not be")
    if status not in _DONE.get(request.method, (status,)):
        raise DavError("unreadable" if request.asks else "unknown", f"{host} answered {request.method} with {status}")
    return DavAnswer(status, request.url, dict(response.headers), body)


@asynccontextmanager
async def open_dav(
    login: DavLogin, kind: DavKind, *, whole: float = WHOLE_S, make: Callable[[], httpx2.AsyncClient] | None = None
) -> AsyncIterator[DavClient]:
    """A client of an account. Raises DavError for a wrong address.

    `whole` is the limit of an exchange in seconds; it ends also if nothing comes for two minutes.
    """
    start_of(login.url)
    timeout = httpx2.Timeout(min(_SILENT_S, whole), connect=min(_CONNECT_S, whole))
    async with make() if make else open_http(timeout) as http:
        yield DavClient(http, login, kind, whole)
