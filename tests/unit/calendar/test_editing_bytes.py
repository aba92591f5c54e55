"""Objects of other programs keep every byte that a change is not about."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, Literal
from zoneinfo import ZoneInfo

import pytest

from switchboard.core.text.content_lines import ContentLine, content_lines
from switchboard.modules.calendar.editing.fields import EditContext, EventEdit, Guest
from switchboard.modules.calendar.editing.scopes import answer_all, delete_this, edit_all, edit_single, edit_this
from switchboard.modules.calendar.editing.series import CalendarSource, Series, find_date, read_source, series_of
from switchboard.modules.calendar.editing.times import WrittenTime, read_time
from tests.unit.calendar.foreign_objects import PROGRAMS, ForeignProgram, foreign_object
from tests.width import wide

Field = Literal["title", "place", "notes", "start", "length", "invite"]

CONTEXT: Final = EditContext(
    datetime(2026, 11, 1, tzinfo=UTC), lambda _: ZoneInfo("Europe/Berlin"), organizer=Guest("ann@home.example")
)
STAMPS: Final = frozenset({"DTSTAMP", "LAST-MODIFIED", "SEQUENCE"})
EDITS: Final[dict[Field, EventEdit]] = {
    "title": EventEdit(title="Changed; by us, " * 9),
    "place": EventEdit(place="Anderswo"),
    "notes": EventEdit(notes="line 1\nline 2"),
    "start": EventEdit(start=WrittenTime(datetime.fromisoformat("2026-11-02T11:30"), "Europe/Berlin")),
    "length": EventEdit(length=timedelta(minutes=90)),
    "invite": EventEdit(invite=(Guest("noor@x.example", "Noor"),)),
}
ABOUT: Final[dict[Field, frozenset[str]]] = {
    "title": frozenset({"SUMMARY"}),
    "place": frozenset({"LOCATION", "X-APPLE-STRUCTURED-LOCATION"}),
    "notes": frozenset({"DESCRIPTION", "X-ALT-DESC"}),
    "start": frozenset({"DTSTART", "DTEND", "EXDATE"}),
    "length": frozenset({"DTEND", "DURATION"}),
    "invite": frozenset({"ATTENDEE", "ORGANIZER"}),
}
EACH: Final = wide(100, 20)
"""Objects of each program."""


def series_in(source: CalendarSource) -> Series | None:
    return series_of(source, CONTEXT.zone_of)


def other_lines(data: bytes, names: frozenset[str]) -> list[bytes]:
    """All bytes of the object but the lines of these properties of the event itself."""
    event = read_source(data).parts[0]
    own = {index for index, _ in event.own}
    return [line.raw for index, line in enumerate(content_lines(data)) if not (index in own and line.name in names)]


def changed_by(source: CalendarSource, edit: EventEdit) -> bytes:
    series = series_in(source)
    return edit_single(source, edit, CONTEXT) if series is None else edit_all(series, series.start, edit, CONTEXT)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.name)
def test_a_change_of_one_field_keeps_all_other_bytes(program: ForeignProgram) -> None:
    for seed in range(EACH):
        data = foreign_object(program, seed)
        for field, edit in EDITS.items():
            changed = changed_by(read_source(data), edit)
            about = ABOUT[field] | STAMPS
            assert changed != data
            assert other_lines(changed, about) == other_lines(data, about), f"{program.name} {seed} {field}"


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.name)
def test_a_change_of_one_date_only_adds_its_part(program: ForeignProgram) -> None:
    for seed in range(0, EACH, 2):
        data = foreign_object(program, seed)
        series = series_in(read_source(data))
        assert series is not None
        date = find_date(series, "20261116T090000")
        for field, edit in EDITS.items():
            changed = edit_this(series, date, edit, CONTEXT)
            part = read_source(changed).overrides[0]
            lines = content_lines(changed)
            rest = [line.raw for line in (*lines[: part.where.first], *lines[part.where.last + 1 :])]
            assert b"".join(rest) == data, f"{program.name} {seed} {field}"


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.name)
def test_a_date_that_is_left_out_adds_one_line(program: ForeignProgram) -> None:
    for seed in range(0, EACH, 2):
        data = foreign_object(program, seed)
        series = series_in(read_source(data))
        assert series is not None
        left = delete_this(series, find_date(series, "20261116T090000"), CONTEXT) or b""
        added = [line for line in content_lines(left) if line not in content_lines(data) and line.name not in STAMPS]
        assert names_of(added) == ["EXDATE"]
        assert added[0].parameter("TZID") == program.tzid
        about = STAMPS | {"EXDATE"}
        assert other_lines(left, about) == other_lines(data, about)


def names_of(lines: Iterable[ContentLine]) -> list[str]:
    return [line.name for line in lines]


def test_an_answer_changes_the_own_line_and_nothing_else() -> None:
    google = next(one for one in PROGRAMS if one.name == "google")
    for seed in range(EACH):
        data = foreign_object(google, seed)
        answered = answer_all(read_source(data), frozenset({"ben@work.example"}), "ACCEPTED")
        pairs = zip(content_lines(data), content_lines(answered), strict=True)
        [(before, after)] = [(old, new) for old, new in pairs if old.raw != new.raw]
        assert (before.parameter("PARTSTAT"), after.parameter("PARTSTAT")) == ("NEEDS-ACTION", "ACCEPTED")
        assert after.value == "mailto:ben@work.example"
        assert {**before.parameters, "PARTSTAT": ()} == {**after.parameters, "PARTSTAT": ()}


def test_a_sequence_rises_with_time_place_and_dates_only() -> None:
    for program in PROGRAMS:
        data = foreign_object(program, 0)
        changed = {field: changed_by(read_source(data), edit) for field, edit in EDITS.items()}
        rises = {field: sequence_of(one) - sequence_of(data) for field, one in changed.items()}
        assert rises == {"title": 0, "place": 1, "notes": 0, "start": 1, "length": 1, "invite": 0}


def sequence_of(data: bytes) -> int:
    return int(read_source(data).parts[0].text("SEQUENCE"))


def test_a_date_in_utc_finds_its_date_of_a_series() -> None:
    series = series_in(read_source(foreign_object(PROGRAMS[0], 0)))
    assert series is not None
    assert find_date(series, "20261116T080000Z").wall == read_time("20261116T090000").wall
