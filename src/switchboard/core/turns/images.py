"""A message's attachments as shown to a model: images kept as files, and a line for each. Pure.

A program's images become files in `inbox/`, and the message refers to them by name and SHA-256; the engine `model`
freezes the references and shows the images only in the turn of their message. Next: `tools/inbox.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Final

from msgspec import Struct

from switchboard.core.files.blobs import safe_name, stored_blob
from switchboard.domain.envelope import Attachment
from switchboard.domain.llm import Image

INBOX: Final = "inbox"
DIGITS: Final = 16
"""Of the hash of a file's contents, with which its name in `inbox/` begins."""
EXTENSIONS: Final = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"}
"""The media types that models can see."""
MOST_IMAGES: Final = 4
MOST_IMAGE_BYTES: Final = 5 * 1024 * 1024
MOST_FILE_BYTES: Final = 16 * 1024 * 1024
"""Larger files are not copied for a model's tools."""
_KEPT: Final = re.compile(rf"{INBOX}/[0-9a-f]{{16}}\.(?:{'|'.join(EXTENSIONS.values())})")
_DIGEST: Final = re.compile(r"sha256:([0-9a-f]{64})")
_MARKS: Final = re.compile(r"^\[(?:image|attachment) [^\n]*\]$", re.MULTILINE)
_FILES: Final = re.compile(r"^\[attachment [^\n]*\]$", re.MULTILINE)
_NO_BRACKETS: Final = str.maketrans("[]", "()")
"""What a file is called must not end the mark that it is in."""
_MEDIA_TYPE: Final = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+", re.ASCII)
_MOST_NAME: Final = 100


class FrozenImage(Struct, frozen=True):
    """An image of the message: its file in `inbox/`, and the expected contents."""

    name: str
    media_type: str
    sha256: str


def reference(image: Image) -> Attachment:
    """The attachment by which a message refers to an image of one of `EXTENSIONS`."""
    digest = sha256(image.data).hexdigest()
    name = f"{INBOX}/{digest[:DIGITS]}.{EXTENSIONS[image.media_type]}"
    return Attachment(
        media_type=image.media_type, filename=name, size_bytes=len(image.data), storage_ref=f"sha256:{digest}"
    )


def images_among(attachments: Iterable[Attachment]) -> tuple[FrozenImage, ...]:
    """The attachments that are references to images, or stored images small enough to be seen."""
    return tuple(filter(None, map(_image, attachments)))


def _image(one: Attachment) -> FrozenImage | None:
    digest = _DIGEST.fullmatch(one.storage_ref or "")
    if digest and _KEPT.fullmatch(one.filename or "") and one.media_type in EXTENSIONS:
        return FrozenImage(one.filename or "", one.media_type, digest[1])
    name = inbox_name(one)
    if name is None or not is_image_name(name):
        return None
    return FrozenImage(name, one.media_type, (stored_blob(one) or b"").hex())


def inbox_name(attachment: Attachment) -> str | None:
    """The file in `inbox/` to which the bytes of a stored attachment are copied; None: it is not stored, or too large.

    An image is named after its content alone, like those of programs.
    """
    blob = stored_blob(attachment)
    if blob is None or attachment.size_bytes > MOST_FILE_BYTES:
        return None
    digest = blob.hex()[:DIGITS]
    if attachment.media_type in EXTENSIONS and attachment.size_bytes <= MOST_IMAGE_BYTES:
        return f"{INBOX}/{digest}.{EXTENSIONS[attachment.media_type]}"
    return f"{INBOX}/{digest}-{safe_name(attachment)}"


def digest_in_inbox(attachment: Attachment) -> str | None:
    """The digits with which the name of its file in `inbox/` begins; None: it has none."""
    images = images_among([attachment])
    name = images[0].name if images else inbox_name(attachment)
    return None if name is None else name.removeprefix(f"{INBOX}/")[:DIGITS]


def is_image_name(name: str) -> bool:
    """Whether the file in `inbox/` is an image to be shown in its turn; tools read all others, in later turns too."""
    return _KEPT.fullmatch(name) is not None


def left_out(images: Iterable[FrozenImage], why: str) -> str:
    """A note to a model about images that it cannot see; empty if there are none."""
    names = ", ".join(one.name for one in images)
    return f"\n\n({names}: {why}.)" if names else ""


def add_attachment_marks(text: str, attachments: Iterable[Attachment]) -> str:
    """The text of a message with a line for each attachment, the same in all later turns."""
    lines = (_mark(one) for one in attachments)
    return "\n".join(filter(None, (text, *lines)))


def strip_attachment_marks(text: str) -> str:
    """The same without these lines: what the person wrote."""
    return _MARKS.sub("", text)


def shows_names(attachments: Iterable[Attachment]) -> bool:
    """Whether these lines show names of files, which anybody may have chosen; of images they show only the digest."""
    return any(one.filename and not images_among([one]) for one in attachments)


def may_show_names(text: str) -> bool:
    """Whether a text that an older release has kept may show such names: those without one are not told apart."""
    return _FILES.search(text) is not None


def _mark(attachment: Attachment) -> str:
    if kept := images_among([attachment]):
        return f"[image {kept[0].name}]"
    name = _one_line(attachment.filename)
    kind = attachment.media_type.partition(";")[0].strip()
    kind = kind[:_MOST_NAME] if _MEDIA_TYPE.fullmatch(kind) else "file"
    what = ", ".join(filter(None, (name, kind, f"{attachment.size_bytes} bytes")))
    if file := inbox_name(attachment):
        return f"[attachment {what}; the file {file}]"
    why = _one_line(attachment.unavailable)
    return f"[attachment {what}; its content is not available{why and f': {why}'}]"


def _one_line(words: str | None) -> str:
    return " ".join((words or "").split())[:_MOST_NAME].translate(_NO_BRACKETS)
