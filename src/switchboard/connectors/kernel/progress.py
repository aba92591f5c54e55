"""How far the cursor may move: to the newest batch with no unsettled batch at or before it. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Open:
    number: int
    cursor: str | None
    unsettled: int


@dataclass(slots=True)
class UnsettledBatches:
    """The received batches that are not settled yet, oldest first."""

    _batches: deque[_Open] = field(default_factory=deque)
    _next: int = 0

    def received(self, events: int, cursor: str | None) -> int:
        """Register a batch of this many events; returns its number, with which each event is settled."""
        self._next += 1
        self._batches.append(_Open(self._next, cursor, events))
        return self._next

    def settle_event(self, batch: int) -> None:
        """One of its events was accepted, recognised as a duplicate, skipped or quarantined."""
        found = next(some for some in self._batches if some.number == batch)
        if not found.unsettled:
            raise ValueError("all events of the batch are settled already")
        found.unsettled -= 1

    def advance(self) -> str | None:
        """The cursor to save now, returned once; None if it has not moved."""
        cursor = None
        while self._batches and not self._batches[0].unsettled:
            cursor = self._batches.popleft().cursor or cursor
        return cursor
