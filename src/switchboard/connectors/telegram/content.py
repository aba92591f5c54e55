"""The files of a Telegram message, and what stands for speech. Pure; called by `updates.py` and `passages.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypedDict

from switchboard.core.text.lenient import count
from switchboard.core.voice.recordings import stand_in
from switchboard.domain.envelope import Attachment
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import FileIn
from switchboard.ports.raw import Raw, child, word

_FILES: Final = {
    "animation": "video/mp4",
    "audio": "audio/mpeg",
    "document": "application/octet-stream",
    "video": "video/mp4",
    "video_note": "video/mp4",
    "voice": "audio/ogg",
}
"""By field, the media type where none is given."""
_SPOKEN: Final = frozenset({"voice", "video_note"})
_TIMED: Final = _SPOKEN | {"audio", "video"}
"""Of these Telegram says how long they are."""
_MOST_SECONDS: Final = 2**31


class _Recorded(TypedDict):
    voice: bool | None
    seconds: int | None


def files_of(message: Raw) -> Iterator[tuple[Attachment, FileIn]]:
    """The file of a message; Telegram sends at most one, and repeats an animation as a document."""
    found = _file_kind(message)
    about = _largest(message) if found == "photo" else child(message, found or "")
    file_id = word(about.get("file_id"))
    if found is None or file_id is None:
        return
    size = count(about.get("file_size"))
    attachment = Attachment(
        media_type=_media_type(found, about),
        filename=word(about.get("file_name")),
        size_bytes=size,
        source_attachment_id=word(about.get("file_unique_id")) or file_id,  # the same file may have another file_id
        **_recording_fields(found, about),
    )
    handle: JsonObject = {"file_id": file_id, "size": size}
    yield attachment, FileIn(0, handle)


def has_file(message: Raw) -> bool:
    """Whether there is a file, even if it cannot be fetched."""
    return _file_kind(message) is not None


def _file_kind(message: Raw) -> str | None:
    return next((kind for kind in (*_FILES, "sticker", "photo") if message.get(kind)), None)


def _media_type(kind: str, about: Raw) -> str:
    if kind == "photo":
        return "image/jpeg"
    if kind == "sticker":
        moving = "application/x-tgsticker" if about.get("is_animated") is True else "image/webp"
        return "video/webm" if about.get("is_video") is True else moving
    return word(about.get("mime_type")) or _FILES[kind]


def _largest(message: Raw) -> Raw:
    sizes = message.get("photo")
    return child(sizes[-1]) if isinstance(sizes, list) and sizes else {}


def speech_in(message: Raw) -> str:
    """What stands for speech where there is no text to belong to: the server says what is said in it, or why not."""
    kind = next((one for one in _SPOKEN if one in message), None)
    if kind is None:
        return ""
    about = child(message, kind)
    return stand_in(Attachment(media_type=_media_type(kind, about), size_bytes=0, **_recording_fields(kind, about)))


def _recording_fields(kind: str, about: Raw) -> _Recorded:
    """How long a recording is, and whether it was recorded to be heard as the message."""
    seconds = count(about.get("duration")) if kind in _TIMED else 0
    return {"voice": True if kind in _SPOKEN else None, "seconds": min(seconds, _MOST_SECONDS) or None}
