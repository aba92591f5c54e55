"""What a message brought with it, for people who look at it: its HTML, made harmless, and its attachments.

`server/web` calls it. In: a caller who may read the message; out: values to show or download. Next:
`core/mail/shown_html.py`, `blobs.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final
from uuid import UUID

from msgspec import Struct

from switchboard.app.access import Principal
from switchboard.app.messages.blobs import BlobService, Download
from switchboard.app.messages.intake import MAIL
from switchboard.app.messages.views import Views
from switchboard.core.files.blobs import PREFIX
from switchboard.core.mail.files import attached_to, file_of
from switchboard.domain.errors import NotFound

if TYPE_CHECKING:
    from switchboard.core.mail.shown_html import ShownHtml

PICTURES: Final = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"RIFF": "image/webp",
}
"""What may be shown as a picture, by its first bytes."""


class NamedDownload(Struct, frozen=True):
    """An attachment, and what its sender called it."""

    filename: str
    file: Download


class MessageContents:
    """Reads the originals of messages."""

    def __init__(self, views: Views, blobs: BlobService) -> None:
        self._views = views
        self._blobs = blobs

    async def html(self, caller: Principal, request_id: UUID) -> ShownHtml | None:
        """The HTML of a mail; None: it is no mail, or has none. Raises NotFound."""
        raw, media_type = await self._views.raw(caller, request_id)
        return await asyncio.to_thread(_read_html, raw) if media_type == MAIL else None

    async def attachment(self, caller: Principal, request_id: UUID, n: int) -> NamedDownload:
        """The attachment at this place, from 0. Raises NotFound, also if its bytes are not here."""
        message = await self._views.message(caller, request_id)
        listed = message.envelope["payload"].get("attachments", ())
        if not 0 <= n < len(listed):
            raise NotFound(f"message {request_id} has {len(listed)} attachments, counted from 0")
        told = listed[n]
        name = told.get("filename") or f"attachment-{n}"
        stored = told.get("storage_ref") or ""
        if stored.startswith(PREFIX):
            return NamedDownload(name, await self._blobs.download(caller, stored.removeprefix(PREFIX)))
        raw, media_type = await self._views.raw(caller, request_id)
        data = await asyncio.to_thread(_read_attachment, raw, n) if media_type == MAIL else None
        if data is None:
            raise NotFound("the bytes of this attachment are not here: they stayed with the platform")
        return NamedDownload(name, Download(len(data), told["media_type"], _in_one_piece(data)))


async def _in_one_piece(data: bytes) -> AsyncIterator[bytes]:
    yield data


def _read_html(raw: bytes) -> ShownHtml | None:
    from switchboard.core.mail.shown_html import html_of_mail

    return html_of_mail(raw)


def _read_attachment(raw: bytes, n: int) -> bytes | None:
    return file_of(attached_to(raw), n)


def picture_type(beginning: bytes) -> str | None:
    """The media type of a picture that browsers only paint; None: it is something else, whatever it says it is."""
    found = next((kind for mark, kind in PICTURES.items() if beginning.startswith(mark)), None)
    return None if found == "image/webp" and beginning[8:12] != b"WEBP" else found
