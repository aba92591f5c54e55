"""When the steps of a plan began and ended, and how long they worked, from the records of its turn. Pure.

`app/messages/planned.py` calls it to show plans. In: the records of a turn, by path, with their times; out: the times
of one step, or of all. A step that may be repeated is recorded at its end only, with the seconds that it took; waiting
for people, or for a model that was unavailable, is no work. Next: `records.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Protocol

from msgspec import Struct

from switchboard.core.planning.records import APPROVAL, GO_ON, PAUSE
from switchboard.core.text.lenient import mapping, money


class TimedRecord(Protocol):
    """A record with its times. `result`: JSON."""

    @property
    def state(self) -> str: ...

    @property
    def result(self) -> object: ...

    @property
    def started_at(self) -> datetime: ...

    @property
    def ended_at(self) -> datetime | None: ...


TimedRecords = Mapping[str, TimedRecord]


class Times(Struct, frozen=True):
    """`seconds`: how long it worked, once it has ended; `waited`: for how long it did not work in between.

    None: it has not begun, or not ended, or it is not known.
    """

    started_at: datetime | None = None
    ended_at: datetime | None = None
    seconds: float | None = None
    waited: float = 0.0


class _Span(Struct, frozen=True):
    start: datetime
    end: datetime


def step_times(step_id: str, records: TimedRecords) -> Times:
    """The times of one step, with its own requests and calls."""
    own, inner = records.get(step_id), f"{step_id}/"
    parts = {path: one for path, one in records.items() if path == step_id or path.startswith(inner)}
    ended = None if own is None or own.state == "started" else own.ended_at
    if not parts or (own is not None and own.state == "skipped"):
        return Times(ended_at=ended)
    started = min(map(_began, parts.values()))
    waits = (one for path, one in parts.items() if path.startswith(f"{inner}{APPROVAL}"))
    return _times(started, ended, [*_pauses(records), *((one.started_at, one.ended_at) for one in waits)])


def plan_times(started: datetime, ended: datetime | None, records: TimedRecords) -> Times:
    """The times of a whole plan."""
    return _times(started, ended, _pauses(records))


def _times(started: datetime, ended: datetime | None, waits: Iterable[tuple[datetime, datetime | None]]) -> Times:
    if ended is None:
        return Times(started)
    within = [_Span(max(since, started), min(until or ended, ended)) for since, until in waits]
    waited = _length(one for one in within if one.start < one.end)
    return Times(started, ended, max((ended - started - waited).total_seconds(), 0.0), waited.total_seconds())


def _began(record: TimedRecord) -> datetime:
    """When a record's work began: if only its end was recorded, as many seconds before that as it took."""
    took = money(mapping(record.result).get("seconds"))
    if record.ended_at is None or took is None:
        return record.started_at
    return min(record.started_at, record.ended_at - timedelta(seconds=took))


def _pauses(records: TimedRecords) -> list[tuple[datetime, datetime | None]]:
    """When nothing of the plan could go on before people decided, or a model was back."""
    found = list[tuple[datetime, datetime | None]]()
    for path, one in records.items():
        if path.startswith(PAUSE):
            go_on = records.get(f"{GO_ON}{path.removeprefix(PAUSE)}")
            found.append((one.started_at, None if go_on is None else go_on.started_at))
    return found


def _length(spans: Iterable[_Span]) -> timedelta:
    """The time that is in any of the spans."""
    total, covered = timedelta(0), None
    for one in sorted(spans, key=lambda span: span.start):
        start = one.start if covered is None else max(one.start, covered)
        total += max(one.end - start, timedelta(0))
        covered = one.end if covered is None else max(covered, one.end)
    return total
