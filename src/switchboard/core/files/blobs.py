"""Names of blobs in messages, and detection of file types by the first bytes. Pure.

`journey/accept.py` looks for names, `app/messages/blobs.py` for kinds. Next: `store/messages/blobs.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from switchboard.domain.envelope import Attachment
from switchboard.domain.errors import InvalidInput

PREFIX: Final = "blob:"
HEAD_BYTES: Final = 4096
"""How many bytes are examined."""
NOT_LET_IN: Final = "it was not fetched because its sender had not been approved"
"""The text in `unavailable` for files of strangers."""
UNKNOWN: Final = "application/octet-stream"
_NAME: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_ODD: Final = re.compile(r"[^\w.-]+")
_MOST_NAME: Final = 60
_MEDIA_TYPE: Final = re.compile(r"[\w!#$&^.+-]{1,100}/[\w!#$&^.+-]{1,100}", re.ASCII)

_SIGNS: Final[tuple[tuple[int, bytes, str, str], ...]] = (
    # position, bytes, media type, and other types that such a file may claim
    (0, b"\x89PNG\r\n\x1a\n", "image/png", r"image/(x-png|apng|vnd\.mozilla\.apng)"),
    (0, b"\xff\xd8\xff", "image/jpeg", r"image/(jpg|pjpeg)"),
    (0, b"GIF8", "image/gif", ""),
    (8, b"WEBP", "image/webp", ""),
    (0, b"BM", "image/bmp", r"image/x-ms-bmp|image/x-bmp"),
    (0, b"II*\0", "image/tiff", r"image/.*"),
    (0, b"MM\0*", "image/tiff", r"image/.*"),
    (0, b"%PDF-", "application/pdf", r"application/x-pdf"),
    (0, b"PK\x03\x04", "application/zip", r"application/(?!pdf$|gzip$|x-executable$)\S+"),
    (0, b"\x1f\x8b", "application/gzip", r"application/(x-gzip|x-tgz|x-compressed-tar|x-tgsticker)"),
    (0, b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed", ""),
    (0, b"Rar!\x1a\x07", "application/vnd.rar", r"application/x-rar(-compressed)?"),
    (0, b"\xd0\xcf\x11\xe0", "application/x-ole-storage", r"application/(msword|vnd\.ms-\S+|x-msi)"),
    (0, b"OggS", "audio/ogg", r"(audio|video|application)/(ogg|opus|x-opus\+ogg)"),
    (0, b"ID3", "audio/mpeg", r"audio/(mp3|x-mp3|x-mpeg)"),
    (0, b"fLaC", "audio/flac", r"audio/x-flac"),
    (8, b"WAVE", "audio/wav", r"audio/(x-wav|wave|vnd\.wave)"),
    (8, b"AVI ", "video/x-msvideo", r"video/(avi|msvideo)"),
    (4, b"ftyp", "video/mp4", r"(video|audio)/(mp4|x-m4[av]|m4a|quicktime|3gpp2?)|image/(heic|heif|avif)"),
    (0, b"\x1aE\xdf\xa3", "video/webm", r"(video|audio)/(webm|x-matroska|matroska)"),
    (0, b"\x7fELF", "application/x-executable", r"application/x-(elf|sharedlib|pie-executable)"),
    (0, b"MZ", "application/vnd.microsoft.portable-executable", r"application/x-(msdownload|dosexec|msdos-program)"),
)
_PAGE: Final = re.compile(
    rb"\s*+(?>(?><!--.*?-->)\s*+)*+<(!doctype\s+html|html|head|body|script|iframe)\b", re.I | re.S
)
_DRAWING: Final = re.compile(rb"\s*+(?>(?><\?xml.*?\?>)\s*+)?+(?>(?><!.*?>)\s*+)*+<svg\b", re.I | re.S)
_TEXT: Final = re.compile(
    r"text/(?!html$)\S+|message/\S+|application/(json|xml|yaml|x-yaml|toml|javascript|sql|rtf|x-sh|x-ndjson|pgp-\S+"
    r"|pkcs\S+|x-x509-\S+|x-pem-file|ics|x-subrip|\S+\+(json|xml))",
    re.ASCII,
)
_SIGNED: Final = frozenset(kind for _, _, kind, _ in _SIGNS)


class Sniffed(Struct, frozen=True):
    """The type of a file. `contradicted`: the claimed type that its bytes contradict."""

    media_type: str
    contradicted: str | None = None


class StoredBlob(Struct, frozen=True):
    """Metadata of a blob."""

    size_bytes: int
    media_type: str


def sniff(head: bytes, claimed: str) -> Sniffed:
    """The media type of a file by its first bytes; the claimed one counts unless they contradict it."""
    claim = bare_type(claimed)
    claim = "" if claim == UNKNOWN else claim
    kind, others = _kind(head)
    if not claim or claim == kind:
        return Sniffed(kind)
    if re.fullmatch(others, claim) and not (kind == UNKNOWN and claim in _SIGNED):
        return Sniffed(claim)
    return Sniffed(kind, claim)


def bare_type(claimed: str) -> str:
    """A media type in lower case and without parameters; empty if it is invalid."""
    kind = claimed.partition(";")[0].strip().lower()
    return kind if _MEDIA_TYPE.fullmatch(kind) else ""


def _kind(head: bytes) -> tuple[str, str]:
    """The media type, and a pattern of others that the same bytes may have."""
    for at, sign, kind, others in _SIGNS:
        if head.startswith(sign, at):
            return kind, others
    if not head:
        return UNKNOWN, r"\S+"
    if not _is_text(head):
        return UNKNOWN, r"(?!text/)\S+"
    if _DRAWING.match(head):
        return "image/svg+xml", ""
    if _PAGE.match(head):
        return "text/html", r"application/xhtml\+xml"
    return "text/plain", _TEXT.pattern


def _is_text(head: bytes) -> bool:
    """Whether it is UTF-8, perhaps cut within a character, without NUL and terminal control characters."""
    return not any(byte < 9 or 14 <= byte < 27 for byte in head)


def blob_of(text: str) -> bytes | None:
    """The blob with this name in hexadecimal; None if it is not such a name."""
    return bytes.fromhex(text) if _NAME.fullmatch(text) else None


def stored_blob(attachment: Attachment) -> bytes | None:
    """The blob with the bytes of an attachment; None if they are not stored here."""
    ref = attachment.storage_ref or ""
    return blob_of(ref.removeprefix(PREFIX)) if ref.startswith(PREFIX) else None


def safe_name(attachment: Attachment) -> str:
    """The last part of the file name, without anything that a shell or a file system could misread."""
    name = re.split(r"[/\\]", attachment.filename or "")[-1]
    return _ODD.sub("_", name).lstrip(".-")[-_MOST_NAME:] or "file"


def named_blobs(attachments: Iterable[Attachment]) -> dict[bytes, str]:
    """The blobs that a message names, with the field of each. Raises InvalidInput for an impossible name."""
    found: dict[bytes, str] = {}
    for n, one in enumerate(attachments):
        if one.storage_ref is not None and one.storage_ref.startswith(PREFIX):
            field = f"payload.attachments.{n}.storage_ref"
            blob = blob_of(one.storage_ref.removeprefix(PREFIX))
            if blob is None:
                raise unknown_blob(field)
            found.setdefault(blob, field)
    return found


def unknown_blob(field: str) -> InvalidInput:
    """The error for a message that names a blob that does not exist, or is not its endpoint's."""
    return InvalidInput(
        "this endpoint has uploaded no such blob; POST the bytes to /v1/blobs first, and name what it answers",
        code="unknown_blob",
        field=field,
    )
