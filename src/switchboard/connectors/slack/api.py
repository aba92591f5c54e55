"""Calls of Slack's Web API over HTTP, for the other modules; tells apart what was refused, not sent, and not answered.

The tokens go to the host of the API, and to that of its files, and to no other: `download` and `upload` see to it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

import httpx2

from switchboard.connectors.kernel.requests import (
    UPLOAD,
    NotAnswered,
    describe_error,
    platform_client,
    send_request,
)
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.ports.connector import FileOut
from switchboard.ports.raw import at, word

_BUSY_S: Final = 5.0
_PATIENCE_S: Final = 10.0
_REST_S: Final = 60.0
_FILES: Final = ("https", "files.slack.com", 443)


class SlackRefusal(Exception):
    """Slack refused: the code of its error, and the scope that is missing, if it is that.

    `retry_after`: the seconds after which the same may be asked again; None: never.
    """

    def __init__(self, code: str, needed: str = "", retry_after: float | None = None) -> None:
        super().__init__(f"{code}: {needed}" if needed else code)
        self.code, self.needed, self.retry_after = code, needed, retry_after


class SlackApi:
    """The methods of one app. Close it with `close`."""

    def __init__(self, base: str, app_token: str, bot_token: str) -> None:
        self._base, self._app_token, self._bot_token = f"{base.rstrip('/')}/", app_token, bot_token
        self._client = platform_client(base)
        self.scopes: frozenset[str] = frozenset()
        """What the bot may do, as Slack said last."""
        self._rests = dict[str, float]()
        """By method, until when it is not asked for what may be left out."""

    async def call(self, method: str, arguments: JsonMapping | None = None) -> JsonObject:
        """The answer to a method. Raises SlackRefusal, NotWritten, NotAnswered."""
        response = await self._post_form(method, self._bot_token, arguments or {})
        if granted := response.headers.get("x-oauth-scopes"):
            self.scopes = frozenset(one.strip() for one in granted.split(","))
        return _answer_in(response)

    async def read(self, method: str, arguments: JsonMapping) -> JsonObject:
        """The same for what changes nothing, and may wait as long as Slack asks."""
        while True:
            try:
                return await self.call(method, arguments)
            except SlackRefusal as error:
                if error.retry_after is None:
                    raise
                await asyncio.sleep(error.retry_after)

    async def read_now(self, method: str, arguments: JsonMapping) -> JsonObject:
        """The same for what may be left out: it waits for no limit, and a method that has one then rests.

        Raises SlackRefusal if asking again is of no use, OSError.
        """
        if time.monotonic() < self._rests.get(method, 0.0):
            raise OSError(f"{method} rests")
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return await self.call(method, arguments)
        except SlackRefusal as error:
            if error.retry_after is None:
                raise
            self._rests[method] = time.monotonic() + error.retry_after
            raise OSError(str(error)) from None
        except OSError:
            self._rests[method] = time.monotonic() + _REST_S
            raise

    async def pages(self, method: str, arguments: JsonMapping, name: str, most: int) -> AsyncIterator[list[object]]:
        """At most so many pages of what a method lists under this name."""
        cursor = ""
        for _ in range(most):
            answer = await self.read(method, {**arguments, **({"cursor": cursor} if cursor else {})})
            found = answer.get(name)
            yield found if isinstance(found, list) else []
            cursor = word(at(answer, "response_metadata", "next_cursor")) or ""
            if not cursor:
                return

    async def open_socket(self) -> str:
        """The URL of a web socket, for 30 s. Raises like `call`."""
        answer = _answer_in(await self._post_form("apps.connections.open", self._app_token, {}))
        url = answer.get("url")
        if not isinstance(url, str):
            raise NotAnswered("Slack names no socket")
        return url

    async def upload(self, url: str, file: FileOut) -> None:
        """Send the bytes of a file where Slack wants them. Raises like `call`, and the errors of reading the file."""
        headers = {"content-type": "application/octet-stream", "content-length": str(file.size_bytes)}
        request = self._client.build_request("POST", url, content=file.read(), headers=headers, timeout=UPLOAD)
        response = await self._send(request)
        if not response.is_success:
            raise _refusal_of(response)

    @asynccontextmanager
    async def download(self, url: str) -> AsyncIterator[httpx2.Response]:
        """A file. Raises ValueError if it is on another host than Slack's; OSError."""
        if _origin_of(url) not in (_FILES, _origin_of(self._base)):
            raise ValueError(f"the file is not in Slack, but at {urlsplit(url).hostname}")
        headers = {"authorization": f"Bearer {self._bot_token}", "accept-encoding": "identity"}
        try:
            async with self._client.stream("GET", url, headers=headers) as response:
                yield response
        except httpx2.HTTPError as error:
            raise NotAnswered(describe_error(error)) from error

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def _post_form(self, method: str, token: str, arguments: JsonMapping) -> httpx2.Response:
        form = {name: one if isinstance(one, str) else json.dumps(one) for name, one in arguments.items()}
        headers = {"authorization": f"Bearer {token}"}
        return await self._send(self._client.build_request("POST", self._base + method, data=form, headers=headers))

    async def _send(self, request: httpx2.Request) -> httpx2.Response:
        return await send_request(self._client, request)


def _answer_in(response: httpx2.Response) -> JsonObject:
    try:
        answer = json.loads(response.content)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict) or "ok" not in answer or response.status_code == 429:
        raise _refusal_of(response)
    if answer["ok"] is True:
        return answer
    limited = answer.get("error") == "ratelimited"
    raise SlackRefusal(
        word(answer.get("error")) or "no reason is given",
        word(answer.get("needed")) or "",
        _seconds_in(response) if limited else None,
    )


def _refusal_of(response: httpx2.Response) -> Exception:
    """The error for an answer that is not Slack's, such as that of a proxy."""
    if response.status_code == 429:
        return SlackRefusal("ratelimited", retry_after=_seconds_in(response))
    said = f"HTTP {response.status_code} without an answer of Slack"
    return SlackRefusal(said) if 400 <= response.status_code < 500 else NotAnswered(said)


def _seconds_in(response: httpx2.Response) -> float:
    try:
        return min(max(float(response.headers["retry-after"]), 0.1), 3600.0)
    except (KeyError, ValueError):
        return _BUSY_S


def _origin_of(url: str) -> tuple[str, str | None, int | None]:
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname, parts.port or {"https": 443, "http": 80}.get(parts.scheme)
    except ValueError:
        return "", None, None
