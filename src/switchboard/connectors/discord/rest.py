"""The REST API of Discord and its files, for `channel.py`; tells apart what was refused, not sent, and not answered.

The token goes to the REST API alone: files are fetched by a client that does not know it. Once the token was refused,
nothing is asked any more, since Discord bans addresses that go on. Presses have tokens of their own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2

from switchboard import __version__
from switchboard.connectors.discord.limits import RouteTimes, route_of, seconds_in
from switchboard.connectors.kernel.requests import (
    UPLOAD,
    NotAnswered,
    describe_error,
    multipart_request,
    platform_client,
    send_request,
)
from switchboard.distribution import DISTRIBUTION
from switchboard.domain.json_values import JsonMapping
from switchboard.ports.connector import FileOut

_AGENT: Final = f"DiscordBot (https://pypi.org/project/{DISTRIBUTION}, {__version__})"
"""In the form that Discord requires."""
_CDN: Final = frozenset({"cdn.discordapp.com", "media.discordapp.net"})
_FOREIGN: Final = -1
"""The code of an answer that is not Discord's, such as a proxy's."""
_OF_PRESSES: Final = ("/webhooks/", "/interactions/")
"""What these paths refuse with 401 is the token of a press, which they contain."""
_MOST_TRIES: Final = 5
_AGAIN_S: Final = 1.0


class RouteUsedUp(OSError):
    """The limit of the route is used up, so that nothing was sent."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"its limit is used up for {seconds:.1f} s")
        self.seconds = seconds


@dataclass(eq=False)
class DiscordError(Exception):
    """Discord refused: the status, its own code, and why; `fields`: what of the body was wrong."""

    status: int
    code: int
    message: str
    retry_after: float | None = None
    is_global: bool = False
    fields: JsonMapping = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.status} {self.message}" + (f" ({self.code})" if self.code > 0 else "")

    @property
    def is_foreign(self) -> bool:
        """Whether something between us and Discord answered."""
        return self.code == _FOREIGN


class RestClient:
    """The routes of one bot. Close it with `close`."""

    def __init__(self, base: str, token: str) -> None:
        self._base, self._token = base.rstrip("/"), token
        self._hosts = _CDN | {urlsplit(base).hostname}
        self._times = RouteTimes()
        self._refused: DiscordError | None = None
        about = {"user-agent": _AGENT}
        self._client = platform_client(base, {**about, "authorization": f"Bot {token}"})
        self._files = platform_client(base, about)

    async def call(self, verb: str, path: str, body: JsonMapping | None = None, files: Sequence[FileOut] = ()) -> Any:
        """The answer of a route, None for an empty one; files go with the body, and are streamed.

        Raises DiscordError, RouteUsedUp, NotWritten, NotAnswered, and the errors of reading files.
        """
        route, clock = route_of(verb, path), asyncio.get_running_loop().time
        if self._refused is not None:
            raise self._refused
        if (seconds := self._times.wait(route, clock())) > 0:
            raise RouteUsedUp(seconds)
        response = await send_request(self._client, self._make_request(verb, path, body, files))
        self._times.learn(route, response.headers, clock())
        try:
            return _answer_in(response)
        except DiscordError as error:
            if error.status == 401 and not error.is_foreign and not path.startswith(_OF_PRESSES):
                self._refused = error
            raise

    async def read(self, path: str) -> Any:
        """The answer to a GET, which is tried again while Discord is slow or busy, or a proxy answers in its place.

        Raises DiscordError, OSError.
        """
        for number in range(_MOST_TRIES):
            try:
                return await self.call("GET", path)
            except RouteUsedUp as error:
                pause = error.seconds
            except DiscordError as error:
                if error.status != 429 and not error.is_foreign:
                    raise
                pause = error.retry_after or _AGAIN_S
            except OSError:
                if number == _MOST_TRIES - 1:
                    raise
                pause = _AGAIN_S * 2**number
            await asyncio.sleep(pause)
        raise NotAnswered(f"GET {path} has no answer of Discord, which may be too busy")

    @asynccontextmanager
    async def download(self, url: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """The bytes of a file. Raises DiscordError, OSError; ValueError if it is not a file of Discord."""
        if urlsplit(url).hostname not in self._hosts:
            raise ValueError("the file is not at Discord")
        try:
            async with self._files.stream("GET", url) as response:
                if not response.is_success:
                    raise DiscordError(response.status_code, _FOREIGN, "the file cannot be downloaded")
                yield response.aiter_bytes()
        except httpx2.HTTPError as error:
            raise NotAnswered(describe_error(error)) from None

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()
        await self._files.aclose()

    def _make_request(self, verb: str, path: str, body: JsonMapping | None, files: Sequence[FileOut]) -> httpx2.Request:
        url = f"{self._base}{path}"
        if not files:
            return self._client.build_request(verb, url, json=body)
        about = {"payload_json": json.dumps(body or {})}
        headers, content = multipart_request(about, [(f"files[{n}]", one) for n, one in enumerate(files)])
        return self._client.build_request(verb, url, content=content, headers=headers, timeout=UPLOAD)


def _answer_in(response: httpx2.Response) -> Any:
    if response.status_code == 204:
        return None
    try:
        answer = json.loads(response.content)  # not msgspec: text with a lone surrogate must not hide the other fields
    except (ValueError, RecursionError):
        raise _not_json(response) from None
    if response.is_success:
        return answer
    if response.status_code >= 500 or not isinstance(answer, dict) or "message" not in answer:
        raise _not_json(response)
    code, after = answer.get("code"), seconds_in(answer.get("retry_after"))
    raise DiscordError(
        response.status_code,
        code if isinstance(code, int) else 0,
        str(answer["message"])[:500],
        after if after is not None else seconds_in(response.headers.get("retry-after")),
        answer.get("global") is True or response.headers.get("x-ratelimit-global") == "true",
        answer["errors"] if isinstance(answer.get("errors"), dict) else {},
    )


def _not_json(response: httpx2.Response) -> Exception:
    """The error for an answer that is not Discord's, such as a proxy's: it may have let a request through."""
    said = f"HTTP {response.status_code} without an answer of Discord"
    if 400 <= response.status_code < 500:
        return DiscordError(response.status_code, _FOREIGN, said, seconds_in(response.headers.get("retry-after")))
    return NotAnswered(said)
