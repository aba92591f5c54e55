"""Which messages go to whom when an event changes, and what their programs know then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any, Final

import icalendar
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from switchboard.core.text.content_lines import content_lines
from switchboard.domain.errors import InvalidInput
from switchboard.modules.calendar.editing.building import NewEvent, build_event
from switchboard.modules.calendar.editing.fields import EditContext, EventEdit, Guest
from switchboard.modules.calendar.editing.rules import read_repeats, rule_of
from switchboard.modules.calendar.editing.scopes import (
    delete_following,
    delete_this,
    edit_all,
    edit_single,
    edit_this,
)
from switchboard.modules.calendar.editing.series import Series, find_date, read_source, series_of
from switchboard.modules.calendar.editing.times import WrittenTime, iana_zone
from switchboard.modules.calendar.mailing.recipients import MailedWrite, ObjectChange, PlannedMail, mailed_write

RECURRING: Final[Any] = import_module("recurring_ical_events")
"""Another implementation, which has no types."""

ANN, BEN, ZOE = "ann@home.example", "ben@work.example", "zoe@work.example"
OWN: Final = frozenset((ANN,))
FIRST: Final = WrittenTime(datetime.fromisoformat("2026-12-03T14:00"), "Europe/Berlin")
MADE: Final = datetime(2026, 11, 1, tzinfo=UTC)
PRIVATE: Final = ("X-APPLE-TRAVEL-START", "BEGIN:VALARM", "SCHEDULE-AGENT")


def context_at(now: datetime) -> EditContext:
    return EditContext(now, lambda name: iana_zone(name or "Europe/Berlin"), organizer=Guest(ANN))


CONTEXT: Final = context_at(MADE)


def meeting(*guests: str, weekly: bool = False) -> bytes:
    """A new event of an hour, or one of six weeks."""
    rule = rule_of(read_repeats("week 6 times"), FIRST, iana_zone) if weekly else None
    invited = tuple(map(Guest, guests))
    texts = ("Board", "Office", "Bring cake")
    return build_event(NewEvent("m1", MADE, FIRST, timedelta(hours=1), *texts, rule, Guest(ANN), invited))


def written(before: bytes | None, after: bytes | None, sent: int = -1, now: datetime = MADE) -> MailedWrite:
    return mailed_write(ObjectChange(before, after, OWN, CONTEXT.zone_of, now, sent))


def told(write: MailedWrite) -> list[tuple[str, str, int, str]]:
    return [(one.recipient.partition("@")[0], one.method, one.sequence, one.recurrence) for one in write.mails]


def series_in(data: bytes) -> Series:
    found = series_of(read_source(data), CONTEXT.zone_of)
    assert found is not None
    return found


def created(*guests: str, weekly: bool = False) -> bytes:
    after = written(None, meeting(*guests, weekly=weekly)).after
    assert after is not None
    return after


def week(number: int) -> WrittenTime:
    return FIRST.later_by(timedelta(weeks=number))


EARLIER: Final = EventEdit(start=FIRST.later_by(timedelta(hours=-2)))


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (EARLIER, [("ben", "REQUEST", 1, "")]),
        (EventEdit(place="Garden"), [("ben", "REQUEST", 1, "")]),
        (EventEdit(title="Council"), []),
        (EventEdit(notes="Bring tea"), []),
        (EventEdit(invite=(Guest(ZOE),)), [("zoe", "REQUEST", 0, "")]),
        (EventEdit(invite=(Guest(ZOE),), place="Garden"), [("ben", "REQUEST", 1, ""), ("zoe", "REQUEST", 1, "")]),
        (EventEdit(uninvite=(BEN,)), [("ben", "CANCEL", 1, "")]),
        (EventEdit(uninvite=(BEN,), invite=(Guest(ZOE),)), [("ben", "CANCEL", 1, ""), ("zoe", "REQUEST", 1, "")]),
    ],
)
def test_who_is_told_what_of_a_change(edit: EventEdit, expected: list[tuple[str, str, int, str]]) -> None:
    before = created(BEN)
    assert told(written(before, edit_single(read_source(before), edit, CONTEXT))) == expected


def test_who_is_told_what_of_a_new_and_a_deleted_event() -> None:
    assert told(written(None, meeting(BEN, ZOE))) == [("ben", "REQUEST", 0, ""), ("zoe", "REQUEST", 0, "")]
    assert told(written(created(BEN), None)) == [("ben", "CANCEL", 1, "")]
    # Deleting is undone.
    assert told(written(None, created(BEN), sent=1)) == [("ben", "REQUEST", 2, "")]


def test_who_is_told_what_of_the_dates_of_a_series() -> None:
    before = created(BEN, weekly=True)
    series, date = series_in(before), "20261210T140000"
    moved = EventEdit(start=week(1).later_by(timedelta(hours=1)))
    one = written(before, edit_this(series, week(1), moved, CONTEXT))
    assert told(one) == [("ben", "REQUEST", 1, date)]
    assert one.after is not None
    assert told(written(before, delete_this(series, week(1), CONTEXT))) == [("ben", "CANCEL", 1, date)]
    assert told(written(before, delete_following(series, week(3), CONTEXT))) == [("ben", "REQUEST", 1, "")]
    joins = written(before, edit_this(series, week(1), EventEdit(invite=(Guest(ZOE),)), CONTEXT))
    assert told(joins) == [("ben", "REQUEST", 1, date), ("zoe", "REQUEST", 1, date)]
    leaves = written(before, edit_this(series, week(1), EventEdit(uninvite=(BEN,)), CONTEXT))
    assert told(leaves) == [("ben", "CANCEL", 1, date)]
    # The change of one date is undone: all of the series is told.
    assert told(written(one.after, before)) == [("ben", "REQUEST", 2, "")]
    everything = written(one.after, edit_all(series_in(one.after), week(0), EARLIER, CONTEXT))
    assert told(everything) == [("ben", "REQUEST", 1, "")]
    assert everything.mails[0].ics.count(b"BEGIN:VEVENT") == 2


def test_messages_have_all_lines_but_those_of_us_alone() -> None:
    """Folds and unknown properties go along as they stand; what our program keeps for itself does not."""
    plain = created(BEN)
    odd = b"X-ODD;FOO=1:as\r\n  it stands\r\nX-APPLE-TRAVEL-START;X-TITLE=Home:\r\n"
    alarm = b"BEGIN:VALARM\r\nACTION:DISPLAY\r\nTRIGGER:-PT5M\r\nDESCRIPTION:x\r\nEND:VALARM\r\n"
    before = plain.replace(b"END:VEVENT", odd + alarm + b"END:VEVENT").replace(b"\r\n", b"\n")
    [mail] = written(before, edit_single(read_source(before), EARLIER, CONTEXT)).mails
    assert b"\r\nX-ODD;FOO=1:as\r\n  it stands\r\n" in mail.ics
    assert mail.ics.replace(b"\r\n", b"").count(b"\n") == 0
    assert not [word for word in PRIVATE if word.encode() in mail.ics]
    event = icalendar.Calendar.from_ical(mail.ics)
    assert event["METHOD"] == "REQUEST"
    assert [one["SUMMARY"] for one in event.walk("VEVENT")] == ["Board"]


def test_attendees_are_told_by_us_or_by_the_server_and_never_by_both() -> None:
    lines = [one for one in content_lines(created(BEN, ZOE)) if one.name == "ATTENDEE"]
    assert [one.parameter("SCHEDULE-AGENT") for one in lines] == ["CLIENT", "CLIENT"]


def test_what_a_person_reads_has_weekday_zone_place_and_organizer() -> None:
    [mail] = written(None, meeting(BEN)).mails
    assert mail.words.subject == "Invitation: Board (Thursday 2026-12-03 14:00-15:00 Europe/Berlin)"
    assert mail.words.text == (
        "ann@home.example invites you:\n\nBoard\nWhen: Thursday 2026-12-03 14:00-15:00 Europe/Berlin\nPlace: Office\n"
        "Organizer: ann@home.example\n\nBring cake"
    )


# Programs of changes --------------------------------------------------------------------------------------------------


class Recipient:
    """What the calendar of an attendee has, from the messages alone, read by another implementation."""

    def __init__(self) -> None:
        self.parts: dict[str, Any] = {}
        self.zones: list[Any] = []
        self.seen: dict[str, tuple[int, datetime]] = {}

    def receive(self, mail: PlannedMail, address: str) -> None:
        message = icalendar.Calendar.from_ical(mail.ics)
        events: Sequence[Any] = message.walk("VEVENT")
        self.zones = message.walk("VTIMEZONE") or self.zones
        for event in events:
            rid = event["RECURRENCE-ID"].to_ical().decode() if "RECURRENCE-ID" in event else ""
            version = int(event["SEQUENCE"]), event["DTSTAMP"].dt
            assert version >= self.seen.get(rid, (-1, MADE)), "an older version than they have"
            self.seen[rid] = version
        if mail.method == "REQUEST":
            whole = mail.recurrence == ""
            self.parts = ({} if whole else self.parts) | {_rid(one): one for one in events}
            assert all(address in _attendees(one) for one in events)
            return
        [gone] = events
        assert gone["STATUS"] == "CANCELLED"
        if mail.recurrence:
            self.parts[_rid(gone)] = gone
        else:
            self.parts = {}

    def dates(self) -> list[tuple[datetime, datetime, str]]:
        return expanded([*self.parts.values()], self.zones)


def _rid(event: Any) -> str:
    return event["RECURRENCE-ID"].to_ical().decode() if "RECURRENCE-ID" in event else ""


def _attendees(event: Any) -> set[str]:
    found = event.get("ATTENDEE", [])
    return {str(one).removeprefix("mailto:") for one in (found if isinstance(found, list) else [found])}


def expanded(events: Sequence[Any], zones: Sequence[Any]) -> list[tuple[datetime, datetime, str]]:
    """Times and places of all dates that are not cancelled."""
    calendar = icalendar.Calendar()
    for one in (*zones, *events):
        calendar.add_component(one)
    found = RECURRING.of(calendar).between((2026, 1, 1), (2028, 1, 1))
    kept = [one for one in found if one.get("STATUS") != "CANCELLED"]
    return sorted((one["DTSTART"].dt, one["DTEND"].dt, str(one.get("LOCATION", ""))) for one in kept)


def expected_dates(data: bytes | None, address: str) -> list[tuple[datetime, datetime, str]]:
    if data is None:
        return []
    calendar = icalendar.Calendar.from_ical(data)
    found = RECURRING.of(calendar).between((2026, 1, 1), (2028, 1, 1))
    mine = [one for one in found if address in _attendees(one)]
    return sorted((one["DTSTART"].dt, one["DTEND"].dt, str(one.get("LOCATION", ""))) for one in mine)


GUESTS: Final = st.sampled_from((BEN, ZOE))
EDITS: Final = st.one_of(
    st.integers(-3, 3).filter(bool).map(lambda hours: ("move", hours)),
    st.sampled_from(("Garden", "Roof", "")).map(lambda place: ("place", place)),
    GUESTS.map(lambda who: ("invite", who)),
    GUESTS.map(lambda who: ("uninvite", who)),
    st.just(("title", "Council")),
    st.just(("delete", "")),
    st.just(("undo", "")),
)
STEPS: Final = st.lists(st.tuples(EDITS, st.integers(0, 5), st.sampled_from(("this", "all"))), max_size=8)


def _edited(data: bytes, edit: tuple[str, Any], number: int, scope: str, now: datetime) -> bytes | None:
    series, context = series_in(data), context_at(now)
    date = find_date(series, week(number).value) if scope == "this" else series.start
    what, value = edit
    if what == "delete":
        return delete_this(series, date, context) if scope == "this" else None
    there = series.overridden().get(date.wall)
    start = there.start if there is not None and scope == "this" else date
    made: Mapping[str, EventEdit] = {
        "move": EventEdit(start=start.later_by(timedelta(hours=value if what == "move" else 0))),
        "place": EventEdit(place=str(value)),
        "title": EventEdit(title=str(value)),
        "invite": EventEdit(invite=(Guest(str(value)),)),
        "uninvite": EventEdit(uninvite=(str(value),)),
    }
    change = edit_this if scope == "this" else edit_all
    return change(series, date, made[what], context)


class _Organizer:
    """Writes what is asked for, hands the messages to their recipients, and keeps count of them."""

    def __init__(self) -> None:
        self.data: bytes | None = None
        self.before: bytes | None = None
        self.now, self.sent = MADE, -1
        self.keys = Counter[tuple[str, str, int, str, str]]()
        self.people = {BEN: Recipient(), ZOE: Recipient()}

    def write(self, after: bytes | None) -> None:
        if after == self.data:
            return
        done = written(self.data, after, self.sent, self.now)
        self.before, self.data = self.data, done.after
        for mail in done.mails:
            self.keys[mail.uid, mail.recurrence, mail.sequence, mail.method, mail.recipient] += 1
            self.sent = max(self.sent, mail.sequence)
            self.people[mail.recipient].receive(mail, mail.recipient)

    def do(self, edit: tuple[str, Any], number: int, scope: str) -> None:
        self.now += timedelta(hours=1)
        if edit[0] == "undo":
            self.write(self.before)
        elif self.data is not None:
            with suppress(InvalidInput):
                self.write(_edited(self.data, edit, number, scope, self.now))


@settings(max_examples=60, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(STEPS)
def test_programs_of_attendees_know_what_the_event_is(steps: list[tuple[tuple[str, Any], int, str]]) -> None:
    """However it is changed: every message is new to its recipient, and all of them together say what is left."""
    organizer = _Organizer()
    organizer.write(meeting(BEN, ZOE, weekly=True))
    for edit, number, scope in steps:
        organizer.do(edit, number, scope)
        for address, person in organizer.people.items():
            assert person.dates() == expected_dates(organizer.data, address), (edit, number, scope)
    assert set(organizer.keys.values()) == {1}
