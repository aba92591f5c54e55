"""Where a history starts: it only grows at its end, and now and then it loses its oldest 20 entries at once. Pure.

Providers cache prefixes: if the start moved with every message, the whole history would be paid for every time. An
entry contains its calls and their results, so the two are never separated. Called by `store/memory/history.py`. Next:
`render.py`.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from switchboard.ports.history import MAX_CALL, Entry, EntryCall

WINDOW: Final = 40
"""Maximum number of entries in a history."""
STRIDE: Final = 20
"""How many entries are dropped at once."""


def window_start(last: int, compacted: int = 0) -> int:
    """The position before the first entry of a history up to `last`; a summary replaces those up to `compacted`."""
    beyond = max(0, last - WINDOW)
    return max(compacted, -(-beyond // STRIDE) * STRIDE)


def due(last: int, compacted: int) -> bool:
    """Whether to compact the oldest entries."""
    return last - compacted >= WINDOW


def shortened(entry: Entry) -> Entry:
    """The entry as it is kept: with at most 1,000 characters of the arguments and of the result of each call."""
    return replace(entry, calls=tuple(map(_shortened, entry.calls)))


def _shortened(call: EntryCall) -> EntryCall:
    return replace(call, arguments=call.arguments[:MAX_CALL], result=call.result[:MAX_CALL])
