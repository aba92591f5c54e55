"""Files that others wrote, as answers: to be saved, or as pictures that browsers only paint. Called by `pages/`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import quote

from starlette.responses import Response, StreamingResponse

from switchboard.app.messages.blobs import Download
from switchboard.app.messages.contents import picture_type
from switchboard.domain.errors import NotFound
from switchboard.server.web.headers import foreign_headers


def attachment_header(filename: str) -> dict[str, str]:
    """The header by which a browser saves an answer, and does not open it."""
    return {"content-disposition": f"attachment; filename*=UTF-8''{quote(filename, safe='')}"}


def answer_file(filename: str, file: Download) -> Response:
    """A file, to be saved and never opened here."""
    headers = foreign_headers() | attachment_header(filename) | {"content-length": str(file.size_bytes)}
    return StreamingResponse(file.pieces, headers=headers, media_type="application/octet-stream")


async def answer_picture(file: Download) -> Response:
    """A file whose bytes are those of a picture. Raises NotFound for any other."""
    pieces = aiter(file.pieces)
    first = await anext(pieces, b"")
    kind = picture_type(first)
    if kind is None:
        raise NotFound("this attachment is no picture that can be shown")
    return StreamingResponse(_all_pieces(first, pieces), headers=foreign_headers(), media_type=kind)


async def _all_pieces(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in rest:
        yield piece
