"""Saves files from the server under names that others chose.

Called by the commands that save files of messages and of replies. Next: `cli/client.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import IO

from switchboard.domain.errors import ConfigurationError


async def save_file(pieces: AsyncIterator[bytes], to: Path, name: str) -> Path:
    """Save the whole file under a free name; nothing of it if it is interrupted.

    The directory is created if missing. Raises ConfigurationError if nothing can be written there.
    """
    try:
        return await _write_pieces(pieces, to, name)
    except OSError as error:
        raise ConfigurationError(f"{error.filename or to} cannot be written: {error.strerror or error}") from error


async def _write_pieces(pieces: AsyncIterator[bytes], to: Path, name: str) -> Path:
    path, file = _free(to, name)
    try:
        with file:
            async for piece in pieces:
                file.write(piece)
    except BaseException:
        path.unlink()
        raise
    return path


def _free(to: Path, name: str) -> tuple[Path, IO[bytes]]:
    to.mkdir(parents=True, exist_ok=True)
    for n in count():
        path = to / (f"{n}-{name}" if n else name)
        with suppress(FileExistsError):
            return path, path.open("xb")
    raise AssertionError
