"""Files of replies: their names, which of them may be sent, and what a reply says about the others. Pure.

Engines name files with `reply_name`, `journey/turn.py` decides with `choose_files`, connectors use `instead` for files
that their platform does not accept. Next: `domain/ledger.py`, the type `ReplyFile`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from switchboard.core.files.blobs import StoredBlob, stored_blob
from switchboard.core.text.storable import storable_text
from switchboard.core.text.visible import visible
from switchboard.domain.envelope import Attachment
from switchboard.domain.ledger import ReplyFile

_MOST_NAME: Final = 120
_MOST_ENDING: Final = 20
_MOST_REASON: Final = 200
_FOREIGN: Final = "it is neither of this turn nor of its message, so it is not sent"
_UNITS: Final = ((1_000_000_000, "GB"), (1_000_000, "MB"), (1000, "KB"))


class ChosenFiles(Struct, frozen=True):
    """The files of a reply, and a line for each file that cannot be sent."""

    files: tuple[ReplyFile, ...]
    lines: tuple[str, ...]


def reply_name(text: str | None) -> str:
    """The last part of a file name on one line, without invisible characters; never empty, `.` or `..`."""
    last = re.split(r"[/\\]", storable_text(text or ""))[-1]
    name = " ".join(visible(last).split()).lstrip(".")
    if len(name) > _MOST_NAME:
        stem, dot, ending = name.rpartition(".")
        kept = dot + ending if stem and len(ending) <= _MOST_ENDING else ""
        name = name[: _MOST_NAME - len(kept)] + kept
    return name.strip() or "file"


def size_text(size_bytes: int) -> str:
    """A size as people read it: `31 MB`."""
    for unit, name in _UNITS:
        if size_bytes >= unit:
            value = size_bytes / unit
            return f"{value:.1f} {name}" if value < 10 and name != "KB" else f"{value:.0f} {name}"
    return f"{size_bytes} bytes"


def instead(filename: str, size_bytes: int, why: str) -> str:
    """What a reply says in place of a file: `[report.pdf, 31 MB: too large for Telegram]`."""
    reason = " ".join(visible(storable_text(why)).split())[:_MOST_REASON]
    size = f", {size_text(size_bytes)}" if size_bytes else ""
    return f"[{reply_name(filename)}{size}: {reason}]"


def choose_files(attachments: Sequence[Attachment], stored: Mapping[bytes, StoredBlob], most: int) -> ChosenFiles:
    """What becomes of the attachments of an answer; `stored`: the blobs that it may have. Duplicates are sent once."""
    files: dict[tuple[str, str], ReplyFile] = {}
    lines = []
    for one in attachments:
        blob = stored_blob(one)
        known = stored.get(blob) if blob is not None else None
        name = reply_name(one.filename)
        if blob is None or known is None:
            lines.append(instead(name, one.size_bytes, one.unavailable or _FOREIGN))
        elif len(files) >= most and (name, blob.hex()) not in files:
            lines.append(instead(name, known.size_bytes, f"not sent: a reply has at most {most} files"))
        else:
            files[name, blob.hex()] = ReplyFile(name, known.media_type, known.size_bytes, blob.hex())
    return ChosenFiles(tuple(files.values()), tuple(lines))
