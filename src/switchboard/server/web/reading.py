"""What a page is read from: several parts beside each other, of which none keeps the others waiting for long.

Pages with several parts call `PageParts.read` for each. In: a read; out: its value, or None if it took too long, which
the template says in the part's place (`parts.late`). `cut_list` is for lists that are read whole. Next: `site.py`,
which limits the pages that are made at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Final, Generic, TypeVar

from msgspec import Struct

from switchboard.app.cursors import bad_cursor

_T = TypeVar("_T")
ROWS: Final = 50
"""Of a list, on one page."""

PART_S: Final = 2.0
"""Seconds that a part may take; the database is told to stop then."""
_BESIDE: Final = 2
"""Parts that are read at a time, so that the pages being made have four connections to the database at most."""


class PageParts:
    """The parts of one page."""

    def __init__(self) -> None:
        self._room = asyncio.Semaphore(_BESIDE)

    async def read(self, part: Awaitable[_T]) -> _T | None:
        """None: it took too long."""
        async with self._room:
            try:
                async with asyncio.timeout(PART_S):
                    return await part
            except TimeoutError:
                return None


class CutList(Struct, Generic[_T], frozen=True):
    """The rows of one page, how many came before them, and the cursor of the next page."""

    rows: Sequence[_T]
    before: int
    following: str | None


def cut_list(rows: Sequence[_T], cursor: str | None) -> CutList[_T]:
    """A page of a list that was read whole: its cursors are places in it. Raises InvalidInput."""
    if cursor is not None and not (cursor.isdecimal() and len(cursor) < 10):
        raise bad_cursor()
    begin = int(cursor or 0)
    end = begin + ROWS
    return CutList(rows[begin:end], begin, str(end) if len(rows) > end else None)
