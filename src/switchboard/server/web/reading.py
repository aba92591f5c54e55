"""What a page is read from: several parts beside each other, of which none keeps the others waiting for long.

Pages with several parts call `PageParts.read` for each. In: a read; out: its value, or None if it took too long, which
the template says in the part's place (`parts.late`). Next: `site.py`, which limits the pages that are made at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final, TypeVar

_T = TypeVar("_T")

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
