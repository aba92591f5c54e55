"""Files that came with messages, kept for the readers of the turn: `inbox/`, beside the results of tools.

`turns/agent.py` keeps images before their message is stored; the engine `model` reads them to show them;
`app/ops/results.py` removes them. All functions block. In: the directory of the readers; out: the right bytes, or
nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from hashlib import sha256
from pathlib import Path
from typing import Final
from uuid import uuid4

from msgspec import Struct

from switchboard.core.turns.images import INBOX, MOST_FILE_BYTES, MOST_IMAGE_BYTES, FrozenImage, is_image_name
from switchboard.domain.llm import Image
from switchboard.tools.threads import StopSignal
from switchboard.tools.workspace import FileToWrite, ToolRefusal, entries, opened_file, read_at, remove, write

QUOTA: Final = 256 * 1024**2
"""Bytes that the images of one reader may take on disk."""


class KeptFiles(Struct, frozen=True):
    """The files to keep: images written since `recent`; images with these names, and other files, since `oldest`.

    The times are seconds since 1970.
    """

    names: Collection[str]
    oldest: float
    recent: float

    def has(self, name: str, written: float) -> bool:
        """Whether to keep a file; files that are not images may be read in later turns."""
        stays = name in self.names or not is_image_name(name)
        return written >= (self.oldest if stays else self.recent)


def keep_image(readers: Path, name: str, image: Image) -> None:
    """Write an image under this name. Raises OSError, `ToolRefusal`."""
    file = FileToWrite(tuple(name.split("/")), image.data, uuid4(), most=len(image.data))
    write(readers, file, StopSignal(), QUOTA)


def keep_file(readers: Path, name: str, data: bytes) -> None:
    """Write a file of a message under this name. Raises OSError, `ToolRefusal`."""
    write(readers, FileToWrite(tuple(name.split("/")), data, uuid4(), most=MOST_FILE_BYTES), StopSignal(), QUOTA)


def read_image(readers: Path, image: FrozenImage) -> Image | None:
    """The image, if its file is there, has not changed, and is no larger than models may see."""
    try:
        with opened_file(readers, image.name.split("/")) as opened:
            data = _all_of(opened)
    except (OSError, ToolRefusal):
        return None
    return Image(image.media_type, data) if sha256(data).hexdigest() == image.sha256 else None


def remove_images(readers: Path, wanted: KeptFiles, stop: StopSignal) -> None:
    """Remove the files of one reader that are no longer wanted. Raises OSError, `ToolRefusal`."""
    if not (readers / INBOX).is_dir():
        return
    for one in entries(readers, (INBOX,), stop, deep=False):
        if one.is_regular and not wanted.has(one.path, one.status.st_mtime):
            remove(readers, (INBOX, one.name), stop)


def _all_of(opened: int) -> bytes:
    """The whole file; empty if it is too large."""
    data = b""
    while piece := read_at(opened, len(data)):
        data += piece
        if len(data) > MOST_IMAGE_BYTES:
            return b""
    return data
