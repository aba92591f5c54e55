"""Change or delete a date of a series, those that follow, or all; and single events. Pure.

The tools call it with an object as the server has it. In: a `CalendarSource`, an `EventEdit`, a date; out: the bytes to
write. `this` is an override or an EXDATE; `all` moves overrides and EXDATEs along; `following` ends the series before
the date, and makes a new one from there, with its own UID. Next: `building.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from itertools import chain, islice
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.text.content_lines import ContentLine, LineChange
from switchboard.domain.errors import InvalidInput
from switchboard.modules.calendar.editing.fields import (
    TEXTS,
    EditContext,
    EventEdit,
    PartStat,
    answer_lines,
    change_fields,
    edit_part,
    fit_start,
    move_part,
    stamp_part,
)
from switchboard.modules.calendar.editing.rules import begin_at, end_before, move_rule
from switchboard.modules.calendar.editing.series import CalendarSource, EventPart, Series, read_source, series_of
from switchboard.modules.calendar.editing.times import (
    WrittenTime,
    time_at,
    time_in,
    time_line,
    times_in,
    with_times,
    with_value,
)

_OF_SERIES: Final = frozenset({"RRULE", "RDATE", "EXDATE", "EXRULE"})
_NO_TIME: Final = timedelta()


class SplitSeries(Struct, frozen=True):
    """`new` is written first, under its own `uid`; then `old`, so that no date is lost if only one is."""

    uid: str
    new: bytes
    old: bytes


def edit_single(source: CalendarSource, edit: EventEdit, context: EditContext) -> bytes:
    """An event without a series. Raises InvalidInput."""
    part = _require_part(source, source.parts[0] if source.parts else None)
    return source.change(edit_part(part, edit, _delta_of(part.start, edit, context), context))


def edit_this(series: Series, date: WrittenTime, edit: EventEdit, context: EditContext) -> bytes:
    """One date of a series. Raises InvalidInput."""
    source = read_source(with_override(series, date))
    part = _override_in(source, series, date)
    changed = edit_part(part, edit, _delta_of(part.start, edit, context), context)
    return source.change(changed) if changed else series.source.data


def edit_all(series: Series, date: WrittenTime, edit: EventEdit, context: EditContext) -> bytes:
    """All dates; `date` is the one that begins at `edit.start` then. What was changed by hand stays different.

    Raises InvalidInput.
    """
    delta = _delta_of(date, edit, context)
    master = series.master
    own = edit_part(master, edit, delta, context)
    changes = [*own, *(_move_dates(series, delta, context) if delta else ())]
    for part in series.source.overrides:
        changes += _edit_along(series, part, edit, delta, context)
    return series.source.change(changes)


def edit_following(series: Series, date: WrittenTime, edit: EventEdit, context: EditContext) -> SplitSeries | bytes:
    """A date and all after it; the bytes of one object, if there is nothing before it. Raises InvalidInput."""
    if series.source.has_others:
        raise InvalidInput("a series with attendees is changed as a whole (all) or on one date (this)", field="scope")
    if next(series.walls(), None) == date.wall and not any(wall < date.wall for wall in series.overridden()):
        return edit_all(series, date, edit, context)
    uid = str(uuid5(NAMESPACE_URL, f"{series.source.uid} {date.instant(context.zone_of):%Y%m%dT%H%M%SZ}"))
    tail = series_of(read_source(_tail_of(series, date, uid, context)), context.zone_of)
    if tail is None:
        raise InvalidInput("this date is the only one left: use the scope this", field="scope")
    return SplitSeries(uid, edit_all(tail, date, edit, context), delete_following(series, date, context) or b"")


def delete_this(series: Series, date: WrittenTime, context: EditContext) -> bytes | None:
    """One date; None: it was the last one, and the object goes. Raises InvalidInput."""
    left_out = f"EXDATE{series.start.parameters}:{date.value}"
    at = max(index for index, line in series.master.own if line.name in ("DTSTART", *_OF_SERIES)) + 1
    changes = [LineChange(at, at, (left_out,))]
    if (part := series.overridden().get(date.wall)) is not None:
        changes.append(_remove_part(part))
    changes += stamp_part(series.master, context, raises=True)
    left = series.source.change(_in_order(changes))
    remaining = series_of(read_source(left), context.zone_of)
    if remaining is None or not (remaining.overridden() or list(islice(remaining.walls(), 1))):
        return None
    return left


def delete_following(series: Series, date: WrittenTime, context: EditContext) -> bytes | None:
    """A date and all after it; None: there is nothing before it. Raises InvalidInput."""
    if series.rule is None:
        raise InvalidInput("the dates of this series were chosen one by one: use the scope this or all", field="scope")
    kept = {wall for wall in series.overridden() if wall < date.wall}
    if not kept and all(wall >= date.wall for wall in islice(series.walls(), 1)):
        return None
    rule = end_before(series.rule, series.start, date.wall, context.zone_of)
    changes = [_replace_rule(series, str(rule)), *_filter_dates(series, lambda wall: wall < date.wall)]
    changes += [_remove_part(part) for wall, part in series.overridden().items() if wall not in kept]
    changes += stamp_part(series.master, context, raises=True)
    return series.source.change(_in_order(changes))


def delete_orphan(source: CalendarSource, recurrence: WrittenTime) -> bytes | None:
    """One of the dates to which alone we are invited; None: it was the only one. Raises InvalidInput."""
    part = _require_part(source, next((one for one in source.overrides if one.recurrence == recurrence), None))
    return source.change([_remove_part(part)]) if len(source.parts) > 1 else None


def answer_all(source: CalendarSource, own: frozenset[str], answer: PartStat) -> bytes:
    """Our answer to an invitation and to each of its dates. Raises InvalidInput if we are not invited."""
    changes = [change for part in source.parts for change in answer_lines(part, own, answer)]
    if not changes:
        raise InvalidInput("this account is not invited to the event", field="event")
    return source.change(changes)


def answer_this(series: Series, date: WrittenTime, own: frozenset[str], answer: PartStat) -> bytes:
    """Our answer for one date of a series. Raises InvalidInput if we are not invited to it."""
    source = read_source(with_override(series, date))
    changes = answer_lines(_override_in(source, series, date), own, answer)
    if not changes:
        raise InvalidInput("this account is not invited to that date", field="event")
    return source.change(changes)


def _require_part(source: CalendarSource, part: EventPart | None) -> EventPart:
    if part is None:
        raise InvalidInput(f"the object {source.uid} has no such event", field="event")
    return part


def _delta_of(now: WrittenTime, edit: EventEdit, context: EditContext) -> timedelta:
    if edit.start is None:
        return _NO_TIME
    return fit_start(edit.start, now, context.zone_of).wall - now.wall


def _in_order(changes: Iterable[LineChange]) -> list[LineChange]:
    return sorted(changes, key=lambda one: (one.first, one.last))


# One date -------------------------------------------------------------------------------------------------------------


def _override_in(source: CalendarSource, series: Series, date: WrittenTime) -> EventPart:
    again = replace(series, source=source)
    return _require_part(source, again.overridden().get(date.wall))


def with_override(series: Series, date: WrittenTime) -> bytes:
    """The object with a part for a date: a copy of the series' part, with its alarms and all that we do not know."""
    if date.wall in series.overridden():
        return series.source.data
    last = max(part.where.last for part in series.source.parts) + 1
    return series.source.change([LineChange(last, last, tuple(_override_lines(series, date)))])


def _override_lines(series: Series, date: WrittenTime) -> Iterator[str]:
    own = {index for index, _ in series.master.own}
    delta = date.wall - series.start.wall
    for index in range(series.master.where.first, series.master.where.last + 1):
        line = series.source.lines[index]
        if not line.name or (index in own and line.name in _OF_SERIES):
            continue
        if index in own and line.name in ("DTSTART", "DTEND"):
            yield with_times(line, (time_in(line).later_by(delta),))
        else:
            yield f"{line.head}:{line.value}"
        if index in own and line.name == "DTSTART":
            yield time_line("RECURRENCE-ID", date)


# All dates ------------------------------------------------------------------------------------------------------------


def _move_dates(series: Series, delta: timedelta, context: EditContext) -> Iterator[LineChange]:
    """The rule, and the dates beside it, of a series that is moved."""
    if series.rule is not None:
        rule = str(move_rule(series.rule, series.start, delta, context.zone_of))
        if rule != str(series.rule):
            yield _replace_rule(series, rule)
    for name in ("EXDATE", "RDATE"):
        for index, line in series.master.all(name):
            _require_no_period(line)
            moved = [_move_written(series, at, delta) for at in times_in(line)]
            yield LineChange(index, index + 1, (with_times(line, moved),))


def _require_no_period(line: ContentLine) -> None:
    if "/" in line.value:
        raise InvalidInput("this series has dates of other lengths: change it in the program that made it")


def _move_written(series: Series, at: WrittenTime, delta: timedelta) -> WrittenTime:
    """A date in another form than the start's is moved on the clock of the start."""
    if at.all_day == series.start.all_day and at.zone == series.start.zone:
        return at.later_by(delta)
    moved = series.as_date(at).later_by(delta)
    if at.all_day or series.start.all_day:
        return at.later_by(timedelta(days=(moved.wall.date() - series.as_date(at).wall.date()).days))
    return time_at(moved.instant(series.zone_of), at, series.zone_of)


def _replace_rule(series: Series, rule: str) -> LineChange:
    index, line = series.master.all("RRULE")[0]
    return LineChange(index, index + 1, (with_value(line, rule),))


def _edit_along(
    series: Series, part: EventPart, edit: EventEdit, delta: timedelta, context: EditContext
) -> Iterator[LineChange]:
    """What a change of all dates does to one that was changed by hand: where it differs, it stays different."""
    master = series.master
    same = {field: edit.text(field) if master.text(name) == part.text(name) else None for field, name in TEXTS.items()}
    length = edit.length if part.length == master.length else None
    along = replace(edit, title=same["title"], place=same["place"], notes=same["notes"], start=None, length=length)
    changes = [*change_fields(part, along, context)]
    changes += _move_override(series, part, delta, length) if delta else move_part(part, delta, length)
    if changes:
        yield from changes
        yield from stamp_part(part, context, raises=bool(delta) or along.reschedules)


def _move_override(series: Series, part: EventPart, delta: timedelta, length: timedelta | None) -> Iterator[LineChange]:
    for name in ("RECURRENCE-ID", "DTSTART", "DTEND"):
        for index, line in part.all(name):
            at = _move_written(series, time_in(line), delta)
            if name == "DTEND" and length is not None:
                at = replace(at, wall=_move_written(series, part.start, delta).wall + length)
            yield LineChange(index, index + 1, (with_times(line, (at,)),))


# Those that follow ----------------------------------------------------------------------------------------------------


def _tail_of(series: Series, date: WrittenTime, uid: str, context: EditContext) -> bytes:
    """The series from a date on, as an object of its own."""
    if series.rule is None:
        raise InvalidInput("the dates of this series were chosen one by one: use the scope this or all", field="scope")
    rule = begin_at(series.rule, series.start, date.wall, context.zone_of)
    changes = [_replace_rule(series, str(rule)), *_filter_dates(series, lambda wall: wall >= date.wall)]
    delta = date.wall - series.start.wall
    for index, line in chain(series.master.all("DTSTART"), series.master.all("DTEND")):
        changes.append(LineChange(index, index + 1, (with_times(line, (time_in(line).later_by(delta),)),)))
    for wall, part in series.overridden().items():
        changes += [_remove_part(part)] if wall < date.wall else _rename_part(part, uid)
    changes += _rename_part(series.master, uid)
    changes += stamp_part(series.master, context, raises=False)
    return series.source.change(_in_order(changes))


def _rename_part(part: EventPart, uid: str) -> Iterator[LineChange]:
    for index, line in part.all("UID"):
        yield LineChange(index, index + 1, (with_value(line, uid),))


def _remove_part(part: EventPart) -> LineChange:
    return LineChange(part.where.first, part.where.last + 1, ())


def _filter_dates(series: Series, keeps: Callable[[datetime], bool]) -> Iterator[LineChange]:
    """EXDATEs and RDATEs of one side of a date."""
    for name in ("EXDATE", "RDATE"):
        for index, line in series.master.all(name):
            _require_no_period(line)
            kept = [at for at in times_in(line) if keeps(series.as_date(at).wall)]
            if len(kept) < len(times_in(line)):
                yield LineChange(index, index + 1, (with_times(line, kept),) if kept else ())
