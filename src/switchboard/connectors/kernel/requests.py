"""Requests to the API of a platform over HTTP; tells apart those that were not sent from those without an answer.

Used by the connectors whose platforms have such an API. Nothing here follows a redirect, as no token may.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final
from uuid import uuid4

import httpx2

from switchboard.ports.connector import FileOut

CONNECT_S: Final = 10.0
ANSWER_S: Final = 20.0
UPLOAD: Final = httpx2.Timeout(60.0, connect=CONNECT_S)
"""Platforms look at a large file before they answer."""
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


class NotWritten(OSError):
    """The platform cannot have received the request."""


class NotAnswered(OSError):
    """The request was written, but no answer of the platform arrived."""


def platform_client(base: str, headers: Mapping[str, str] | None = None) -> httpx2.AsyncClient:
    """A client for an API at this URL."""
    return httpx2.AsyncClient(
        timeout=httpx2.Timeout(ANSWER_S, connect=CONNECT_S),
        limits=httpx2.Limits(keepalive_expiry=_IDLE_S),
        headers={"accept-encoding": "identity", **(headers or {})},
        verify=not base.startswith("http://"),
        follow_redirects=False,
    )


async def send_request(client: httpx2.AsyncClient, request: httpx2.Request, secret: str = "") -> httpx2.Response:
    """The response. Raises NotWritten and NotAnswered, whose texts do not contain the secret."""
    try:
        return await client.send(request)
    except _NOT_WRITTEN as error:
        raise NotWritten(describe_error(error, secret)) from None  # its cause may contain the secret
    except httpx2.HTTPError as error:
        raise NotAnswered(describe_error(error, secret)) from None


def describe_error(error: Exception, secret: str = "") -> str:
    """An error of the transport in words."""
    said = f"{type(error).__name__} {error}".strip()
    return said.replace(secret, "…") if secret else said


def multipart_request(
    texts: Mapping[str, str], files: Sequence[tuple[str, FileOut]]
) -> tuple[Mapping[str, str], AsyncIterator[bytes]]:
    """Headers and content of a form with files, each under its name. They are streamed; reading one may raise."""
    boundary = uuid4().hex
    first = "".join(f"{_begin_field(boundary, name)}\r\n\r\n{text}\r\n" for name, text in texts.items()).encode()
    heads = [_begin_file(boundary, name, file) for name, file in files]
    end = f"--{boundary}--\r\n".encode()

    async def stream_form() -> AsyncIterator[bytes]:
        yield first
        for head, (_, file) in zip(heads, files, strict=True):
            yield head
            async for piece in file.read():
                yield piece
            yield b"\r\n"
        yield end

    size = len(first) + len(end) + sum(len(head) + 2 for head in heads) + sum(file.size_bytes for _, file in files)
    return {"content-type": f"multipart/form-data; boundary={boundary}", "content-length": str(size)}, stream_form()


def _begin_field(boundary: str, name: str) -> str:
    return f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"'


def _begin_file(boundary: str, name: str, file: FileOut) -> bytes:
    """Everything before the file's bytes."""
    about = f'; filename="{_quote_value(file.filename)}"\r\nContent-Type: {_quote_value(file.media_type)}\r\n\r\n'
    return f"{_begin_field(boundary, name)}{about}".encode()


def _quote_value(text: str) -> str:
    """Quote as browsers do, so that a name cannot end its line or its quotes."""
    return text.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
