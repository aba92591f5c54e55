"""Bot API calls over HTTP, for `channel.py`; tells apart requests refused, not sent, and not answered.

The token is part of every URL, so no error of this module contains one.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2

from switchboard.connectors.kernel.requests import (
    ANSWER_S,
    CONNECT_S,
    UPLOAD,
    NotAnswered,
    describe_error,
    multipart_request,
    platform_client,
    send_request,
)
from switchboard.domain.json_values import JsonMapping
from switchboard.ports.connector import FileOut


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
        self._client = platform_client(base)

    async def call(self, method: str, params: JsonMapping, *, wait_s: float = 0.0) -> Any:
        """The result of a method, which may take `wait_s` longer. Raises BotApiError, NotWritten, NotAnswered."""
        timeout = httpx2.Timeout(ANSWER_S + wait_s, connect=CONNECT_S)
        return await self._answer(self._client.build_request("POST", self._url(method), json=params, timeout=timeout))

    async def upload(self, method: str, params: Mapping[str, object], name: str, file: FileOut) -> Any:
        """The same with a file, which is streamed. Also raises the errors of reading it."""
        texts = {key: one if isinstance(one, str) else json.dumps(one) for key, one in params.items()}
        headers, body = multipart_request(texts, [(name, file)])
        return await self._answer(
            self._client.build_request("POST", self._url(method), content=body, headers=headers, timeout=UPLOAD)
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
            raise NotAnswered(describe_error(error, self._token)) from None

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    def _url(self, method: str) -> str:
        return f"{self._base}/bot{self._token}/{method}"

    async def _answer(self, request: httpx2.Request) -> Any:
        return _result(await send_request(self._client, request, self._token))


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
