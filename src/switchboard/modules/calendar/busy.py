"""Whether an event keeps somebody busy, and what is free between those that do. Pure.

`occurrences.py` asks the first when an object is kept; tools merge blocks and look for slots. Next: `days.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal

from msgspec import Struct

from switchboard.modules.calendar.events import CalendarEvent

Busyness = Literal["busy", "tentative", "free", "day"]
"""`day`: a whole day that says nothing of it, so that the calendar decides."""
_STEP: Final = timedelta(minutes=30)


class BusyBlock(Struct, frozen=True, order=True):
    """From `start` to `end`, in UTC. `tentative`: nobody has said yes yet."""

    start: datetime
    end: datetime
    tentative: bool = False


def own_answer(event: CalendarEvent, addresses: Collection[str]) -> str:
    """What the person with these addresses has answered; empty if they are not asked."""
    return next((one.answer for one in event.attendees if one.address in addresses), "")


def is_unaccepted(event: CalendarEvent, addresses: Collection[str]) -> bool:
    """Whether it is an invitation by somebody else that nobody here has accepted. Unknown addresses accept nothing."""
    if not event.organizer or event.organizer in addresses:
        return False
    return own_answer(event, addresses) in ("NEEDS-ACTION", "") and bool(event.attendees)


def busyness_of(event: CalendarEvent, addresses: Collection[str]) -> Busyness:
    """How it counts for the person with these addresses, if it takes place."""
    answer = own_answer(event, addresses)
    if event.shows == "TRANSPARENT" or answer in ("DECLINED", "DELEGATED"):
        return "free"
    if event.status == "TENTATIVE" or answer in ("NEEDS-ACTION", "TENTATIVE") or is_unaccepted(event, addresses):
        return "tentative"
    return "day" if event.start.all_day and not event.shows else "busy"


def merge_blocks(blocks: Iterable[BusyBlock]) -> tuple[BusyBlock, ...]:
    """Blocks that neither overlap nor touch others of their kind, in order; what is certain covers what is not."""
    certain = _joined(one for one in blocks if not one.tentative)
    return tuple(sorted([*certain, *_parts_beside(_joined(one for one in blocks if one.tentative), certain)]))


def _joined(blocks: Iterable[BusyBlock]) -> list[BusyBlock]:
    found: list[BusyBlock] = []
    for one in sorted(blocks):
        if found and one.start <= found[-1].end:
            found[-1] = BusyBlock(found[-1].start, max(found[-1].end, one.end), one.tentative)
        elif one.end > one.start:
            found.append(one)
    return found


def _parts_beside(blocks: Iterable[BusyBlock], by: Sequence[BusyBlock]) -> Iterable[BusyBlock]:
    for one in blocks:
        at = one.start
        for cover in by:
            if cover.end <= at or cover.start >= one.end:
                continue
            if cover.start > at:
                yield BusyBlock(at, cover.start, tentative=True)
            at = max(at, cover.end)
        if at < one.end:
            yield BusyBlock(at, one.end, tentative=True)


def find_slots(
    hours: Iterable[tuple[datetime, datetime]], blocks: Iterable[BusyBlock], length: timedelta, most: int
) -> tuple[tuple[datetime, datetime], ...]:
    """Free times of a length within spans of working hours, at full and half hours or when something ends.

    One a span and half day first, so that suggestions differ. Ends that touch are no conflict.
    """
    taken = merge_blocks(blocks)
    found: list[tuple[datetime, datetime]] = []
    for start, end in hours:
        at, last = start, start - 2 * length - timedelta(hours=3)
        while at + length <= end and len(found) < most:
            conflict = next((one for one in taken if one.start < at + length and one.end > at), None)
            if conflict is not None:
                at = conflict.end
            elif at - last >= timedelta(hours=3):
                found.append((at, at + length))
                last = at
                at += length
            else:
                at += _STEP
    return tuple(found)
