"""Requests to the Graph API, for `channel.py`; tells apart requests refused, not sent, and not answered.

The token goes to the Graph API, and to the host of Meta's files, alone.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx2

from switchboard.connectors.kernel.requests import (
    CONNECT_S,
    NotAnswered,
    describe_error,
    multipart_request,
    platform_client,
    send_request,
)
from switchboard.connectors.whatsapp.settings import GRAPH_URL, MEDIA_HOST, WhatsAppAccountSettings
from switchboard.domain.json_values import JsonMapping
from switchboard.ports.connector import FileOut
from switchboard.ports.raw import Raw, at, child, integer, word


@dataclass(eq=False)
class GraphRefusal(Exception):
    """The Graph API refused: the code of its error, the subcode, and what it says; 0: an answer of somebody else."""

    code: int
    told: str
    subcode: int = 0
    status: int = 400

    def __str__(self) -> str:
        return f"{self.code} {self.told}" if self.code else self.told


class GraphClient:
    """The Graph API, with the token of one number. Close it with `close`."""

    def __init__(self, settings: WhatsAppAccountSettings, token: str) -> None:
        self._base = f"{settings.api_url.rstrip('/')}/{settings.graph_version}"
        self._hosts = {_host_of(settings.api_url)}
        if _host_of(settings.api_url) == _host_of(GRAPH_URL):
            self._hosts.add(("https", MEDIA_HOST, None))
        self._number = settings.phone_number_id
        self._token = token
        self._client = platform_client(self._base, {"authorization": f"Bearer {token}"})

    async def read(self, node: str, **query: str) -> Raw:
        """An object, or what belongs to it. Raises GraphRefusal, NotWritten, NotAnswered."""
        return await self._answer_to(self._client.build_request("GET", f"{self._base}/{node}", params=query))

    async def post(self, path: str, body: JsonMapping) -> Raw:
        """The answer to a change; an empty path: of the number itself. Raises as `read` does."""
        return await self._answer_to(self._client.build_request("POST", f"{self._base}/{path}", json=body))

    async def post_to_number(self, edge: str, body: JsonMapping) -> Raw:
        """The answer to what the number does. Raises as `read` does."""
        return await self.post(f"{self._number}/{edge}", body)

    async def upload(self, file: FileOut, patience_s: float) -> str:
        """The id of a file that is streamed to Meta. Raises as `read` does, and the errors of reading it."""
        about = {"messaging_product": "whatsapp", "type": file.media_type}
        headers, body = multipart_request(about, [("file", file)])
        url, timeout = f"{self._base}/{self._number}/media", httpx2.Timeout(patience_s, connect=CONNECT_S)
        request = self._client.build_request("POST", url, content=body, headers=headers, timeout=timeout)
        found = word((await self._answer_to(request)).get("id"))
        if found is None:
            raise NotAnswered("Meta gave a file no id")
        return found

    def may_get_token(self, url: str) -> bool:
        """Whether a URL is of the Graph API or of Meta's files."""
        return _host_of(url) in self._hosts

    @asynccontextmanager
    async def download(self, url: str) -> AsyncIterator[httpx2.Response]:
        """A file at the URL that Meta gave. Raises GraphRefusal, OSError; ValueError if the token may not go there."""
        if not self.may_get_token(url):
            raise ValueError(f"the file is kept at {_host_of(url)[1] or 'no host'}, which gets no token")
        try:
            async with self._client.stream("GET", url) as response:
                if not response.is_success:
                    raise GraphRefusal(
                        0, f"the file is not given: HTTP {response.status_code}", 0, response.status_code
                    )
                yield response
        except httpx2.HTTPError as error:
            raise NotAnswered(describe_error(error, self._token)) from None

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def _answer_to(self, request: httpx2.Request) -> Raw:
        return _read_answer(await send_request(self._client, request, self._token), self._token)


def _read_answer(response: httpx2.Response, token: str) -> Raw:
    """The answer. Raises what it says instead, without the token, which Meta repeats if it does not like it."""
    try:
        answer = json.loads(response.content)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise _not_json(response.status_code)
    error = child(answer, "error")
    if not error and response.is_success:
        return answer
    code, subcode = (int(integer(error.get(name)) or 0) for name in ("code", "error_subcode"))
    details = word(at(error, "error_data", "details"))
    said = (str(error.get("message") or f"HTTP {response.status_code}"), details)
    told = ": ".join(dict.fromkeys(one.replace(token, "…")[:500] for one in said if one))
    raise GraphRefusal(code, told, subcode, response.status_code)


def _not_json(status: int) -> Exception:
    """The error for an answer that is not JSON, such as a proxy's: of its statuses only 413 and 429 are trusted."""
    told = f"HTTP {status} without an answer of the Graph API"
    return GraphRefusal(0, told, 0, status) if status in (413, 429) else NotAnswered(told)


def _host_of(url: str) -> tuple[str, str | None, int | None]:
    with suppress(ValueError):
        found = urlsplit(url)
        return found.scheme, found.hostname, found.port
    return "", None, None
