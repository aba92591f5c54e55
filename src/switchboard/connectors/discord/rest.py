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
from uuid import uuid4

import httpx2

from switchboard import __version__
from switchboard.connectors.discord.limits import RouteTimes, route_of, seconds_in
from switchboard.distribution import DISTRIBUTION
from switchboard.domain.json_values import JsonMapping
from switchboard.ports.connector import FileOut

_CONNECT_S: Final = 10.0
_ANSWER: Final = httpx2.Timeout(20.0, connect=_CONNECT_S)
_UPLOAD: Final = httpx2.Timeout(60.0, connect=_CONNECT_S)
_IDLE_S: Final = 10.0
"""A connection that was idle for longer is not used again: if it is closed just then, nobody knows what of."""
_NOT_WRITTEN: Final = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.WriteError,  # half a request has no effect
    httpx2.WriteTimeout,
    httpx2.LocalProtocolError,
)
_AGENT: Final = f"DiscordBot (https://pypi.org/project/{DISTRIBUTION}, {__version__})"
"""In the form that Discord requires."""
_CDN: Final = frozenset({"cdn.discordapp.com", "media.discordapp.net"})
_FOREIGN: Final = -1
"""The code of an answer that is not Discord's, such as a proxy's."""
_OF_PRESSES: Final = ("/webhooks/", "/interactions/")
"""What these paths refuse with 401 is the token of a press, which they contain."""
_MOST_TRIES: Final = 5
_AGAIN_S: Final = 1.0


class DiscordUnreached(OSError):
    """Discord cannot have received the request."""


class DiscordUnanswered(OSError):
    """The request was written, but no answer of Discord arrived."""


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
        more: Any = {
            "timeout": _ANSWER,
            "limits": httpx2.Limits(keepalive_expiry=_IDLE_S),
            "verify": not base.startswith("http://"),
        }
        about = {"user-agent": _AGENT, "accept-encoding": "identity"}
        self._client = httpx2.AsyncClient(headers={**about, "authorization": f"Bot {token}"}, **more)
        self._files = httpx2.AsyncClient(headers=about, **more)

    async def call(self, verb: str, path: str, body: JsonMapping | None = None, files: Sequence[FileOut] = ()) -> Any:
        """The answer of a route, None for an empty one; files go with the body, and are streamed.

        Raises DiscordError, RouteUsedUp, DiscordUnreached, DiscordUnanswered, and the errors of reading files.
        """
        route, clock = route_of(verb, path), asyncio.get_running_loop().time
        if self._refused is not None:
            raise self._refused
        if (seconds := self._times.wait(route, clock())) > 0:
            raise RouteUsedUp(seconds)
        response = await self._send_request(self._client, self._make_request(verb, path, body, files))
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
        raise DiscordUnanswered(f"GET {path} has no answer of Discord, which may be too busy")

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
            raise DiscordUnanswered(_told_of(error)) from None

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()
        await self._files.aclose()

    def _make_request(self, verb: str, path: str, body: JsonMapping | None, files: Sequence[FileOut]) -> httpx2.Request:
        url = f"{self._base}{path}"
        if not files:
            return self._client.build_request(verb, url, json=body)
        boundary = uuid4().hex
        heads = [_head_of(f"files[{n}]", one.filename, one.media_type, boundary) for n, one in enumerate(files)]
        first, end = _payload_of(body or {}, boundary), f"--{boundary}--\r\n".encode()

        async def content() -> AsyncIterator[bytes]:
            yield first
            for head, one in zip(heads, files, strict=True):
                yield head
                async for piece in one.read():
                    yield piece
                yield b"\r\n"
            yield end

        size = len(first) + len(end) + sum(len(head) + 2 for head in heads) + sum(one.size_bytes for one in files)
        headers = {"content-type": f"multipart/form-data; boundary={boundary}", "content-length": str(size)}
        return self._client.build_request(verb, url, content=content(), headers=headers, timeout=_UPLOAD)

    async def _send_request(self, client: httpx2.AsyncClient, request: httpx2.Request) -> httpx2.Response:
        try:
            return await client.send(request)
        except _NOT_WRITTEN as error:
            raise DiscordUnreached(_told_of(error)) from None
        except httpx2.HTTPError as error:
            raise DiscordUnanswered(_told_of(error)) from None


def _told_of(error: Exception) -> str:
    return f"{type(error).__name__} {error}".strip()


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
    return DiscordUnanswered(said)


def _payload_of(body: JsonMapping, boundary: str) -> bytes:
    about = 'Content-Disposition: form-data; name="payload_json"\r\nContent-Type: application/json'
    return f"--{boundary}\r\n{about}\r\n\r\n{json.dumps(body)}\r\n".encode()


def _head_of(name: str, filename: str, media_type: str, boundary: str) -> bytes:
    """Everything before the bytes of a file."""
    about = f'Content-Disposition: form-data; name="{name}"; filename="{_quoted(filename)}"'
    return f"--{boundary}\r\n{about}\r\nContent-Type: {_quoted(media_type)}\r\n\r\n".encode()


def _quoted(text: str) -> str:
    """Quote as browsers do, so that a name cannot end its line or its quotes."""
    return text.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
