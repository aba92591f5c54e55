"""Searches with a SearXNG server: `GET /search?q=…&format=json`.

`app/ops/engines.py` makes a `Searxng` of the settings, `web_search.py` asks it. Its address is the operator's, so it
may be a private one, unlike those of pages. Redirects are not followed: they would send the key to another server.
Next: `transport/signed_post.py`, which connects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final
from urllib.parse import urlencode

import httpx2

from switchboard.core.text.lenient import items, json_value, mapping, sanitize_error, string
from switchboard.domain.errors import ConfigurationError
from switchboard.domain.json_values import JsonMapping
from switchboard.ports.search import FoundPage, SearchFailure
from switchboard.tools.search_spec import SearchPlace
from switchboard.transport.signed_post import (
    CheckedTransport,
    PostError,
    Resolve,
    body_of,
    check_url,
    header_with_key,
    limits,
    per_loop,
    resolve,
)

MOST_BODY: Final = 2 * 1024**2
"""Maximum bytes of an answer."""
_MOST_TITLE: Final = 200
_MOST_URL: Final = 500
"""Longer addresses are left out: cut, they would lead elsewhere."""
_MOST_TEXT: Final = 500
_MOST_WHY: Final = 200
_HEADERS: Final = {
    "Accept": "application/json",
    "Accept-Encoding": "identity",  # an uncompressed body cannot grow beyond the limit
    "Connection": "close",
    "User-Agent": "switchboard",
}
_MEANINGS: Final = {
    401: "the search server does not accept the key",
    403: "the search server refuses: add json to search.formats in its settings.yml, or look at its limiter",
    429: "the search server is asked too often; its limiter can be told about this address",
}


class Searxng:
    """One server: that of a `place` with a URL."""

    def __init__(self, place: SearchPlace, resolver: Resolve = resolve) -> None:
        self._place, self._url = place, place.url or ""
        # As in `web_fetch.py`: no connection is kept, so nothing needs closing.
        self._network = per_loop(partial(CheckedTransport, resolver))

    async def search(self, query: str, n: int) -> Sequence[FoundPage]:
        """As in the port."""
        document = await self._query_server(query)
        found: dict[str, FoundPage] = {}
        for page in map(_page, items(document.get("results"))):
            if page is not None:
                found.setdefault(page.url, page)
        if not found and (silent := list(_silent(document))):
            raise SearchFailure(f"no search engine has answered: {'; '.join(silent)[:_MOST_WHY]}", passing=True)
        return tuple(found.values())[:n]

    async def _query_server(self, query: str) -> JsonMapping:
        seconds = self._place.timeout
        try:
            async with asyncio.timeout(seconds):
                return await self._answer(self._request(query))
        except ConfigurationError as error:
            raise SearchFailure(error.message) from error
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise SearchFailure(f"the search server took longer than {seconds:g} s", passing=True) from error
        except (PostError, OSError, httpx2.HTTPError) as error:
            why = "the search server cannot be reached, or its answer broke off"
            raise SearchFailure(why, passing=True) from error

    def _request(self, query: str) -> httpx2.Request:
        """Raises `ConfigurationError`."""
        place = self._place
        check_url(self._url)
        asked = urlencode({"q": query, "format": "json"}, errors="replace")
        headers = {**_HEADERS, **_key(place)}
        extensions = {"allow_private": True, "timeout": limits(place.timeout).as_dict()}
        return httpx2.Request("GET", f"{self._url.rstrip('/')}/search?{asked}", headers=headers, extensions=extensions)

    async def _answer(self, request: httpx2.Request) -> JsonMapping:
        response = await self._network().handle_async_request(request)
        try:
            _check(response)
            body, cut = await body_of(response, MOST_BODY)
        finally:
            await response.aclose()
        document = None if cut else json_value(body.decode("utf-8", "replace"))
        if not isinstance(document, dict) or not isinstance(document.get("results"), list):
            raise SearchFailure("the search server answers with something else than results as JSON")
        return document


def _key(place: SearchPlace) -> dict[str, str]:
    """The header with the key, if there is one. Raises `ConfigurationError`."""
    return header_with_key(place.key_env, place.key_header, hint=", as the operator of the search server gives it")


def _check(response: httpx2.Response) -> None:
    """Raises `SearchFailure` if it is no answer."""
    status = response.status_code
    if 300 <= status < 400:
        raise SearchFailure("the search server redirects, which is not followed: write its final address")
    if status != 200:
        why = _MEANINGS.get(status, f"the search server answers with status {status}")
        raise SearchFailure(why, passing=status == 429 or status >= 500)
    if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise SearchFailure("the search server compresses its answer, though asked not to")


def _page(result: object) -> FoundPage | None:
    """One result, each field as one line; None if it names no page."""
    about = mapping(result)
    url = string(about.get("url")).strip()
    if not url.lower().startswith(("http://", "https://")) or len(url) > _MOST_URL or len(url.split()) != 1:
        return None
    title, text = (_line(about.get(name), most) for name, most in (("title", _MOST_TITLE), ("content", _MOST_TEXT)))
    return FoundPage(title, url, text)


def _line(value: object, most: int) -> str:
    return " ".join(string(value)[: 4 * most].split())[:most]


def _silent(document: JsonMapping) -> Iterator[str]:
    """The search engines that have not answered, with their reasons."""
    engines = document.get("unresponsive_engines")
    for one in engines if isinstance(engines, list) else ():
        if isinstance(one, list):
            yield sanitize_error(": ".join(map(string, one)))
