"""The tool `web_fetch`: the text of one web page, from an address that the model cannot make up.

`registry.py` builds it. Text that a model has read may tell it to send what it knows to somebody, and an address is
enough to send it: `https://evil.example/?what-I-know`. So an address is fetched only if the person wrote exactly this
address, or if the settings name its host. Next: `urls.py`, when addresses are equal; `transport/signed_post.py`, which
network addresses may be connected to.

- A host is resolved once, checked, and connected to by number; private addresses are allowed only for hosts that the
  settings name as private. This holds for every redirect.
- A URL that the person wrote may redirect to anywhere: the model had no influence on it. A host of the settings may
  redirect only to what could be fetched directly, or an open redirect there could leak everything.
- No redirect leads from a public host into the private network, even to an allowed host.
- No cookies, no passwords, no referrer, no proxy, nothing but GET; a port below 1024 other than 80 and 443 only if the
  settings name it with its host.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

import httpx2
from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.text.outside import FOLLOWS
from switchboard.domain.json_values import JsonMapping
from switchboard.ports.tools import NamedTool, ToolOutcome, ToolScope, ToolSpec
from switchboard.tools.pages import Page, is_text, text_of
from switchboard.tools.results import told_as_data
from switchboard.tools.urls import canonical, hosts_of, place_of, port_of
from switchboard.tools.workspace import ToolRefusal
from switchboard.transport.signed_post import CheckedTransport, PostError, Resolve, body_of, limits, per_loop, resolve

MOST_REDIRECTS: Final = 5
MOST_BODY: Final = 2 * 1024**2
"""Maximum bytes of a page that are read."""
_OPEN_PORTS: Final = frozenset({80, 443})
_PASSING: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses of a server that may succeed a little later."""
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_HEADERS: Final = {
    "Accept": "text/html, text/*;q=0.9, application/json;q=0.9",
    "Accept-Encoding": "identity",  # an uncompressed body cannot grow beyond the limit
    "Connection": "close",
    "User-Agent": "switchboard",
}
_SAID: Final = f"A page of the web{FOLLOWS}"

WEB_FETCH: Final = ToolSpec(
    "web_fetch",
    "Fetch the text of a web page. Addresses that the person wrote, exactly as written, and those at the hosts of the "
    "settings are fetched at once; for any other, such as a link in a page, a person is asked first, which may take "
    "days.",
    {
        "type": "object",
        "properties": {"url": {"type": "string", "description": "http:// or https://, as the person wrote it"}},
        "required": ["url"],
        "additionalProperties": False,
    },
    "idempotent",
)


class WebOptions(Struct, frozen=True):
    """How pages are fetched; `seconds` is the limit for a whole fetch."""

    seconds: float = 30.0
    resolver: Resolve = resolve


_DEFAULTS: Final = WebOptions()


class WebFetch(NamedTool):
    """web_fetch."""

    spec: Final = WEB_FETCH

    def __init__(self, options: WebOptions = _DEFAULTS) -> None:
        self._seconds = options.seconds
        # As in `signed_post.py`: loading certificates costs 25 ms. No connection is kept, so nothing needs closing.
        self._network = per_loop(partial(CheckedTransport, options.resolver))

    async def call(self, arguments: JsonMapping, scope: ToolScope) -> ToolOutcome:
        """The page as JSON; or why there is none, in a sentence. Raises `ConfigurationError` for invalid hosts."""
        scope = _read(scope)
        if scope.approved and (url := canonical(str(arguments["url"]))) is not None:
            # As if the settings named its host: redirects to other hosts were not approved.
            scope = replace(scope, hosts=scope.hosts | {place_of(url)})
        try:
            async with asyncio.timeout(self._seconds):
                page = await self._fetch_page(str(arguments["url"]), scope)
            told = await _page_as_data(page, await text_of(page), scope)
        except (ToolRefusal, PostError, TimeoutError, OSError, httpx2.HTTPError) as error:
            why = self._why(error)
            return ToolOutcome(f"the page was not fetched: {why}", ok=False, why=why, passing=_is_passing(error))
        if 200 <= page.status < 300:
            return ToolOutcome(told)
        return ToolOutcome(told, ok=False, why=f"status {page.status}", passing=page.status in _PASSING)

    def asks_first(self, arguments: JsonMapping, scope: ToolScope) -> str | None:
        """Why an address that only the model chose needs an approval; None if none. Raises `ConfigurationError`."""
        url, scope = canonical(str(arguments["url"])), _read(scope)
        if url is None or _is_permitted_url(url, scope) or not _open(url, scope):
            return None
        return "the person has not written this address, and the settings do not name its host"

    def _why(self, error: Exception) -> str:
        """The reason in words, without network addresses, which must not be disclosed."""
        if isinstance(error, ToolRefusal):
            return str(error)
        if isinstance(error, PostError) and error.kind == "forbidden":
            return "it is at an address that is not public, which only the settings can allow"
        if isinstance(error, TimeoutError | httpx2.TimeoutException):
            return f"the server took too long; all of it may take {self._seconds:g} s"
        return "the server cannot be reached, or its answer broke off"

    async def _fetch_page(self, wanted: str, scope: ToolScope) -> Page:
        url = canonical(wanted)
        if url is None:
            raise ToolRefusal("that is not an address that begins with http:// or https://, without a password")
        if not _is_permitted_url(url, scope):
            raise ToolRefusal(_only(scope))
        free, came_from = url in scope.urls, url
        for _ in range(MOST_REDIRECTS + 1):
            answer = await self._request_page(url, came_from, scope)
            if isinstance(answer, Page):
                return answer
            url, came_from = answer, url
            if not free and not _is_permitted_url(url, scope):
                raise ToolRefusal("it redirects to an address that may not be fetched; the person can send that one")
        raise ToolRefusal(f"it redirects more than {MOST_REDIRECTS} times")

    async def _request_page(self, url: str, came_from: str, scope: ToolScope) -> Page | str:
        """The answer of one server: a page, or the URL to continue with."""
        place, private = place_of(url), scope.private_hosts
        if not _open(url, scope):
            raise ToolRefusal(f"port {port_of(url)} is not one of web pages")
        extensions = {
            "allow_private": place in private and place_of(came_from) in private,
            "timeout": limits(self._seconds).as_dict(),
        }
        request = httpx2.Request("GET", url, headers=_HEADERS, extensions=extensions)
        response = await self._network().handle_async_request(request)
        try:
            return _target(url, response) or await _page(url, response)
        finally:
            await response.aclose()


def _is_passing(error: Exception) -> bool:
    return not isinstance(error, ToolRefusal) and not (isinstance(error, PostError) and error.kind == "forbidden")


def _read(scope: ToolScope) -> ToolScope:
    """The scope with canonical hosts."""
    return replace(scope, hosts=hosts_of(scope.hosts), private_hosts=hosts_of(scope.private_hosts))


def _open(url: str, scope: ToolScope) -> bool:
    """Whether pages may be fetched from its port."""
    port = port_of(url)
    return port in _OPEN_PORTS or port >= 1024 or place_of(url) in scope.hosts | scope.private_hosts


def _is_permitted_url(url: str, scope: ToolScope) -> bool:
    return url in scope.urls or place_of(url) in scope.hosts


def _only(scope: ToolScope) -> str:
    hosts = f", or is at {', '.join(sorted(scope.hosts)[:20])}" if scope.hosts else ""
    return f"an address can be fetched if the person wrote exactly that one{hosts}; ask the person to send it"


def _target(url: str, response: httpx2.Response) -> str | None:
    """The URL that it redirects to; None if it does not. Raises `ToolRefusal`."""
    location = response.headers.get("location")
    if response.status_code not in _REDIRECTS or location is None:
        return None
    try:
        target = canonical(str(httpx2.URL(url).join(location)))
    except (httpx2.InvalidURL, UnicodeError, ValueError):
        target = None
    if target is None:
        raise ToolRefusal("it redirects to something that is not the address of a web page")
    return target


async def _page(url: str, response: httpx2.Response) -> Page:
    media_type, _, parameters = response.headers.get("content-type", "").partition(";")
    media_type = media_type.strip().lower()
    if not is_text(media_type):
        raise ToolRefusal(f"it is {media_type[:100]}, and only text can be fetched")
    if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise ToolRefusal("the server compresses it, though asked not to")
    body, cut = await body_of(response, MOST_BODY)
    charset = parameters.lower().partition("charset=")[2].partition(";")[0].strip(" \"'")[:40]
    return Page(url, response.status_code, media_type, charset, body, not cut)


async def _page_as_data(page: Page, text: str, scope: ToolScope) -> str:
    about: dict[str, object] = {"url": page.url, "status": page.status, "content_type": page.media_type}
    if not page.whole:
        about["note"] = f"only the first {MOST_BODY} bytes were read"
    return await told_as_data(_SAID, about, text, scope, WEB_FETCH.name)
