"""Where a history starts: it grows at its end alone, and now and then it loses its oldest 20 entries at once. Pure.

Providers keep what they have read by its beginning: a start that moved with every message would cost all of it every
time. An entry has its calls and their results in itself, so nothing is cut between the two. `store/history.py` asks.
Next: `render.py`.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from switchboard.ports.history import MAX_CALL, Entry, EntryCall

WINDOW: Final = 40
"""The most entries of a history."""
STRIDE: Final = 20
"""How many entries leave it at once."""


def window_start(last: int, compacted: int = 0) -> int:
    """The position before the first entry of a history up to `last`; a summary replaces those up to `compacted`."""
    beyond = max(0, last - WINDOW)
    return max(compacted, -(-beyond // STRIDE) * STRIDE)


def due(last: int, compacted: int) -> bool:
    """Whether to compact the oldest entries."""
    return last - compacted >= WINDOW


def shortened(entry: Entry) -> Entry:
    """The entry as it is kept: of each call at most 1,000 characters of what went in and of what came out."""
    return replace(entry, calls=tuple(map(_shortened, entry.calls)))


def _shortened(call: EntryCall) -> EntryCall:
    return replace(call, arguments=call.arguments[:MAX_CALL], result=call.result[:MAX_CALL])
