"""Sizes of files for people, and a line with the size so far. Called by `db.py` and `backup.py`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from switchboard.app.dumps import Progress
from switchboard.cli.output import errors

_SMALL: Final = 100_000
_LARGE: Final = 1_000_000_000


@contextmanager
def shown_progress(what: str) -> Iterator[Progress]:
    """On a terminal a line with the size so far; elsewhere nothing."""
    console = errors()
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status(what) as status:
        yield lambda size: status.update(f"{what}: {bytes_in_words(size)}")


def bytes_in_words(size: int) -> str:
    """Such as `12.5 MB`, `61.2 GB`, or `800 bytes`."""
    if size >= _LARGE:
        return f"{size / 1e9:.1f} GB"
    return f"{size / 1e6:.1f} MB" if size >= _SMALL else f"{size} bytes"
