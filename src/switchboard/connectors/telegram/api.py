"""Bot API calls over HTTP, for `channel.py`; tells apart requests refused, not sent, and not answered.

The token is part of every URL, so no error of this module contains one.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

import httpx2

from switchboard.domain.json_values import JsonMapping
from switchboard.ports.connector import FileOut

_CONNECT_S: Final = 10.0
ANSWER_S: Final = 20.0
_UPLOAD: Final = httpx2.Timeout(60.0, connect=_CONNECT_S)
"""Telegram looks at a large file before it answers."""
_IDLE_S: Final = 10.0
"""A connection that was idle for longer is not used again: if Telegram closes it just then, nobody knows what of."""
_NOT_WRITTEN: Final = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.WriteError,  # half a request has no effect
    httpx2.WriteTimeout,
    httpx2.LocalProtocolError,
)


class NotWritten(OSError):
    """Telegram cannot have received the request."""


class NotAnswered(OSError):
    """The request was written, but no Bot API answer arrived."""


@dataclass(eq=False)
class BotApiError(Exception):
    """Telegram refused: its code, its description and `parameters`."""

    code: int
    description: str
    parameters: JsonMapping = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.code} {self.description}"


class BotApiClient:
    """The methods of one bot. Close it with `close`."""

    def __init__(self, base: str, token: str) -> None:
        self._base, self._token = base.rstrip("/"), token
        self._client = httpx2.AsyncClient(
            timeout=httpx2.Timeout(ANSWER_S, connect=_CONNECT_S),
            limits=httpx2.Limits(keepalive_expiry=_IDLE_S),
            headers={"accept-encoding": "identity"},
            verify=not base.startswith("http://"),
        )

    async def call(self, method: str, params: JsonMapping, *, wait_s: float = 0.0) -> Any:
        """The result of a method, which may take `wait_s` longer. Raises BotApiError, NotWritten, NotAnswered."""
        timeout = httpx2.Timeout(ANSWER_S + wait_s, connect=_CONNECT_S)
        return await self._answer(self._client.build_request("POST", self._url(method), json=params, timeout=timeout))

    async def upload(self, method: str, params: Mapping[str, object], name: str, file: FileOut) -> Any:
        """The same with a file, which is streamed. Also raises the errors of reading it."""
        boundary = uuid4().hex
        head, tail = _head(params, name, file, boundary), f"\r\n--{boundary}--\r\n".encode()

        async def body() -> AsyncIterator[bytes]:
            yield head
            async for piece in file.read():
                yield piece
            yield tail

        headers = {
            "content-type": f"multipart/form-data; boundary={boundary}",
            "content-length": str(len(head) + file.size_bytes + len(tail)),
        }
        return await self._answer(
            self._client.build_request("POST", self._url(method), content=body(), headers=headers, timeout=_UPLOAD)
        )

    @asynccontextmanager
    async def download(self, path: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """The bytes of a file. Raises BotApiError, OSError."""
        try:
            async with self._client.stream("GET", f"{self._base}/file/bot{self._token}/{path}") as response:
                if not response.is_success:
                    raise BotApiError(response.status_code, "the file cannot be downloaded")
                yield response.aiter_bytes()
        except httpx2.HTTPError as error:
            raise NotAnswered(self._redact_error(error)) from None

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    def _url(self, method: str) -> str:
        return f"{self._base}/bot{self._token}/{method}"

    async def _answer(self, request: httpx2.Request) -> Any:
        try:
            response = await self._client.send(request)
        except _NOT_WRITTEN as error:
            raise NotWritten(self._redact_error(error)) from None  # its cause may contain the URL
        except httpx2.HTTPError as error:
            raise NotAnswered(self._redact_error(error)) from None
        return _result(response)

    def _redact_error(self, error: Exception) -> str:
        return f"{type(error).__name__} {error}".replace(self._token, "…").strip()


def _result(response: httpx2.Response) -> Any:
    try:
        answer = json.loads(response.content)  # not msgspec: text with a lone surrogate must not hide the other fields
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict) or "ok" not in answer:
        raise _not_json(response.status_code)
    if answer["ok"] is True and "result" in answer:
        return answer["result"]
    code, parameters = answer.get("error_code"), answer.get("parameters")
    raise BotApiError(
        code if isinstance(code, int) else response.status_code,
        str(answer.get("description", "no reason is given")),
        parameters if isinstance(parameters, dict) else {},
    )


def _not_json(status: int) -> Exception:
    """The error for an answer that is not JSON, such as a proxy's: of its statuses only 413 and 429 are trusted."""
    said = f"HTTP {status} without an answer of the Bot API"
    return BotApiError(status, said) if 400 <= status < 500 else NotAnswered(said)


def _head(params: Mapping[str, object], name: str, file: FileOut, boundary: str) -> bytes:
    """Everything before the file's bytes."""
    fields = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n'
        f"{value if isinstance(value, str) else json.dumps(value)}\r\n"
        for key, value in params.items()
    )
    filename, kind = _quoted(file.filename), _quoted(file.media_type)
    about = f'Content-Disposition: form-data; name="{name}"; filename="{filename}"\r\nContent-Type: {kind}'
    return f"{''.join(fields)}--{boundary}\r\n{about}\r\n\r\n".encode()


def _quoted(text: str) -> str:
    """Quote as browsers do, so that a name cannot end its line or its quotes."""
    return text.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
