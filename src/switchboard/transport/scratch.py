"""The directory of one turn, or of one run of a program, removed at its end.

`llm/cli.py` writes the files of a command to it, `agents/files.py` the files of a message. A killed worker leaves it
behind, with people's files or a provider's key in it; so every process that may create such directories first removes
those that are no longer locked.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, Literal

from switchboard.trees import remove_tree

_NEW: Final = "switchboard-new-"


@contextlib.asynccontextmanager
async def scratch(kind: Literal["session", "turn"]) -> AsyncIterator[Path]:
    """A directory that only we can read. It is locked while in use: the kernel releases the lock if we die."""
    place, held = _make_place(kind)
    try:
        yield place
    finally:
        await asyncio.shield(asyncio.to_thread(_remove_place, place))
        os.close(held)


def sweep() -> None:
    """Remove directories that killed workers left behind; as root also those given to another user."""
    for kind in ("session", "turn"):
        for place in Path(tempfile.gettempdir()).glob(f"switchboard-{kind}-*"):
            with contextlib.suppress(OSError):  # another process may have removed it meanwhile
                if os.geteuid() in (0, place.stat(follow_symlinks=False).st_uid) and not _is_held(place):
                    _remove_place(place)


def _remove_place(place: Path) -> None:
    """Remove as much of it as can be removed: a program may still write to it, or have given it to another user."""
    with contextlib.suppress(OSError):
        above = _open_place(place.parent)
        try:
            remove_tree(above, place.name)
        finally:
            os.close(above)


def _make_place(kind: str) -> tuple[Path, int]:
    # It gets the name that `sweep` looks for only when it is locked, so no sweep can find it before.
    place = Path(tempfile.mkdtemp(prefix=_NEW))
    held = _open_place(place)
    fcntl.flock(held, fcntl.LOCK_EX)
    return place.rename(place.with_name(place.name.replace(_NEW, f"switchboard-{kind}-", 1))), held


def _is_held(place: Path) -> bool:
    held = _open_place(place)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(held)
    return False


def _open_place(place: Path) -> int:
    return os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
