"""The files of a Discord message, also of one that it forwards. Pure; called by `events.py` and `passages.py`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from switchboard.core.text.lenient import count
from switchboard.domain.envelope import Attachment
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import FileIn
from switchboard.ports.raw import Raw, child, integer, number, word

_VOICE: Final = 1 << 13
_MOST_SECONDS: Final = 2**31
_MOST_FILES: Final = 20
_MAX_URL: Final = 2048


def files_of(message: Raw) -> Iterator[tuple[Attachment, FileIn]]:
    """Its attachments, and what is needed to fetch them."""
    for position, (about, speaks) in enumerate(_attachments_in(message)):
        yield _attachment_of(about, speaks=speaks), FileIn(position, _handle_of(message, about))


def snapshots_of(message: Raw) -> Sequence[Raw]:
    """The messages that it forwards."""
    found = message.get("message_snapshots")
    return [child(one, "message") for one in found[:1]] if isinstance(found, list) else ()


def url_of(message: Raw, attachment: str) -> str | None:
    """Where an attachment of a message is now."""
    return next((_url_in(one) for one, _ in _attachments_in(message) if integer(one.get("id")) == attachment), None)


def _attachments_in(message: Raw) -> list[tuple[Raw, bool]]:
    """Each, and whether it is what a voice message says."""
    found = list[tuple[Raw, bool]]()
    for one in (message, *snapshots_of(message)):
        flags, files = one.get("flags"), one.get("attachments")
        speaks = isinstance(flags, int) and bool(flags & _VOICE)
        found += [(child(file), speaks) for file in files] if isinstance(files, list) else []
    return [one for one in found if integer(one[0].get("id")) or number(one[0].get("id"))][:_MOST_FILES]


def _attachment_of(about: Raw, *, speaks: bool) -> Attachment:
    seconds = about.get("duration_secs")
    known = isinstance(seconds, int | float) and 0 <= seconds < _MOST_SECONDS
    return Attachment(
        media_type=(word(about.get("content_type")) or "application/octet-stream").partition(";")[0].strip(),
        filename=word(about.get("filename")),
        size_bytes=count(about.get("size")),
        source_attachment_id=integer(about.get("id")),
        voice=True if speaks else None,
        seconds=round(seconds) or None if known and isinstance(seconds, int | float) else None,
    )


def _handle_of(message: Raw, about: Raw) -> JsonObject:
    return {
        "channel": integer(message.get("channel_id")),
        "message": integer(message.get("id")),
        "attachment": integer(about.get("id")),
        "url": _url_in(about),
    }


def _url_in(about: Raw) -> str | None:
    url = about.get("url")
    return url if isinstance(url, str) and len(url) <= _MAX_URL else None
