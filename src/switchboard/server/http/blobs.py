"""`/v1/blobs` and the other files of messages and replies, streamed in and out.

Next: `app/messages/blobs.py`.
"""

from __future__ import annotations

from typing import Annotated, Final
from urllib.parse import quote
from uuid import UUID

from fastapi import Depends, Request, Response
from starlette.responses import StreamingResponse

from switchboard.app.access import Principal
from switchboard.app.messages.blobs import OUTBOX, RAW, UPLOAD_BLOBS, Download, Uploaded
from switchboard.server.http.parameters import router_of
from switchboard.server.http.services import Parts, Responses, answer, needs, operation
from switchboard.server.paths import BLOBS

router = router_of("blobs")

Uploader = Annotated[Principal, Depends(needs(UPLOAD_BLOBS))]
Fetcher = Annotated[Principal, Depends(needs(OUTBOX))]
Reader = Annotated[Principal, Depends(needs(RAW))]
_KEPT: Final = "Stored, now or before."
_BYTES = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_FILE: Responses = {200: {"description": "The bytes, with their media type.", "content": _BYTES}}


@router.post(
    BLOBS,
    openapi_extra={"requestBody": {"required": True, "content": _BYTES}},
    **operation("upload_blob", "Upload a file", Uploaded, 429, status=201, description=_KEPT),
)
async def upload(request: Request, caller: Uploader, parts: Parts) -> Response:
    """The body is the file as it is. What no message names as `blob:` and this `blob` is removed after a day."""
    length = request.headers.get("content-length", "")
    announced = int(length) if length.isdigit() else None
    claimed = request.headers.get("content-type", "")
    return answer(await parts.blobs.upload(caller, request.stream(), claimed, announced), 201)


@router.get(
    f"{BLOBS}/{{blob}}",
    response_class=Response,  # no type of its own: errors are JSON
    **operation("get_blob", "Get a file", None, 404, more=_FILE),
)
async def download(caller: Reader, parts: Parts, blob: str) -> Response:
    """Anyone who may read a message may read its files; a connector also what its endpoint uploaded."""
    return _stream_blob(await parts.blobs.download(caller, blob))


@router.get(
    "/v1/files/{link}",
    response_class=Response,
    **operation("get_linked_file", "Get a file by its link", None, 404, more=_FILE),
)
async def open_blob_link(parts: Parts, link: str) -> Response:
    """The link itself is the permission: a butler was handed it with a message, and it is good for an hour."""
    return _stream_blob(await parts.blobs.open_link(link))


@router.post(
    "/v1/files/{link}",
    openapi_extra={"requestBody": {"required": True, "content": _BYTES}},
    **operation("upload_file_of_reply", "Upload a file for a reply", Uploaded, 404, 429, status=201, description=_KEPT),
)
async def upload_by_link(request: Request, parts: Parts, link: str) -> Response:
    """The link is the `upload_url` of a delivery, good for an hour of its turn; the answer then names the `blob`."""
    claimed = request.headers.get("content-type", "")
    return answer(await parts.blobs.upload_by_link(link, request.stream(), claimed), 201)


@router.get(
    "/v1/outbox/{outbox_id}/files/{n}",
    response_class=Response,
    **operation("get_file_of_reply", "Get a file of a reply", None, 404, more=_FILE),
)
async def of_reply(caller: Fetcher, parts: Parts, outbox_id: UUID, n: int) -> Response:
    """`n` is its place in `files`, from 0. For connectors: only of replies of their endpoint."""
    found, name = await parts.blobs.download_of_reply(caller, outbox_id, n)
    return _stream_blob(found, name)


def _stream_blob(found: Download, name: str | None = None) -> Response:
    # Others wrote it: browsers must neither display it nor guess that it is executable.
    named = "" if name is None else f"; filename*=UTF-8''{quote(name, safe='')}"
    headers = {
        "content-type": found.media_type,
        "content-length": str(found.size_bytes),
        "content-disposition": f"attachment{named}",
        "x-content-type-options": "nosniff",
        "content-security-policy": "sandbox",
    }
    return StreamingResponse(found.pieces, headers=headers)
