"""The files of one run of a program: a directory of its own, removed when the run is over.

`cli.py` writes the files of a command to it. A worker that is killed leaves it behind, for some programs with the
provider's key in it; so `build.py` has every process with such models remove the directories that are no longer locked.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

_PREFIX: Final = "switchboard-session-"
_NEW: Final = "switchboard-new-session-"
_HELD: Final = "held"


@contextlib.asynccontextmanager
async def scratch() -> AsyncIterator[Path]:
    """A directory that only we can read. It is locked while in use: the kernel releases the lock if we die."""
    place, held = _made()
    try:
        yield place
    finally:
        await asyncio.shield(asyncio.to_thread(shutil.rmtree, place, ignore_errors=True))
        os.close(held)


def sweep() -> None:
    """Remove what killed workers have left behind."""
    for place in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # removed by another process in between
            if place.stat(follow_symlinks=False).st_uid == os.getuid() and not _is_held(place):
                shutil.rmtree(place)


def _made() -> tuple[Path, int]:
    # It gets the name by which it is swept only when it is locked: no sweep can find it in between.
    place = Path(tempfile.mkdtemp(prefix=_NEW))
    held = os.open(place / _HELD, os.O_CREAT | os.O_RDONLY, 0o600)
    fcntl.flock(held, fcntl.LOCK_EX)
    return place.rename(place.with_name(place.name.replace(_NEW, _PREFIX, 1))), held


def _is_held(place: Path) -> bool:
    held = os.open(place / _HELD, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(held)
    return False
