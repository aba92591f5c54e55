"""Files that came with messages, kept for those who read the turn: `inbox/`, beside the results of tools.

`turns/agent.py` keeps images before their message is stored; the engine `model` reads them when it shows them. Both
block. In: the directory of the readers; out: bytes that are the right ones, or nothing.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from uuid import uuid4

from switchboard.core.turns.images import FrozenImage
from switchboard.domain.llm import Image
from switchboard.tools.results import QUOTA
from switchboard.tools.threads import Stop
from switchboard.tools.workspace import Refused, Written, directory, read_at, regular_file, write


def keep_image(readers: Path, name: str, image: Image) -> None:
    """Write an image to the file of this name. Raises OSError, `Refused`."""
    file = Written(tuple(name.split("/")), image.data, uuid4(), most=len(image.data))
    write(readers, file, Stop(), QUOTA)


def read_image(readers: Path, image: FrozenImage) -> Image | None:
    """The image, if its file is there and has not changed."""
    *above, name = image.name.split("/")
    try:
        with directory(readers, above) as at, regular_file(at, name) as opened:
            data = _all_of(opened)
    except (OSError, Refused):
        return None
    return Image(image.media_type, data) if sha256(data).hexdigest() == image.sha256 else None


def _all_of(opened: int) -> bytes:
    data = b""
    while piece := read_at(opened, len(data)):
        data += piece
    return data
