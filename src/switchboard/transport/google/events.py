"""Events of the Calendar API as values, and the iCalendar object that a series of them is. Pure.

`series.py` makes groups of events of what lists have. In: JSON; out: `GoogleEvent`, and bytes. All that has no place in
iCalendar stays where it is: writes change single fields (`fields.py`). Next: `fields.py`, the way back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

from msgspec import Struct, convert, field

from switchboard.core.text.content_lines import escape_text, fold_line
from switchboard.domain.json_values import JsonMapping

UID_KEY: Final = "switchboardUid"
"""The private property that has the UID of an event which was made here, as Google gives it another one."""
ANSWERS: Final[Mapping[str, str]] = {
    "needsAction": "NEEDS-ACTION",
    "accepted": "ACCEPTED",
    "declined": "DECLINED",
    "tentative": "TENTATIVE",
}
_CLASSES: Final[Mapping[str, str]] = {"public": "PUBLIC", "private": "PRIVATE", "confidential": "CONFIDENTIAL"}
_NEVER: Final = "1970-01-01T00:00:00Z"
_MOST_ALARMS: Final = 5


class GoogleTime(Struct, frozen=True, rename="camel"):
    """A day, or a time with its offset; `time_zone` may be missing."""

    date: str = ""
    date_time: str = ""
    time_zone: str = ""

    @property
    def zone(self) -> str:
        """The IANA name; UTC if the time has none, or one that nobody here knows."""
        if self.date or self.time_zone in ("", "UTC", "GMT", "Etc/UTC", "Etc/GMT"):
            return "" if self.date else "UTC"
        return self.time_zone if _is_zone(self.time_zone) else "UTC"

    @property
    def wall(self) -> str:
        """As iCalendar writes it, without its zone. Raises ValueError."""
        if self.date:
            return f"{date.fromisoformat(self.date):%Y%m%d}"
        return f"{self.instant.astimezone(UTC if self.zone == 'UTC' else ZoneInfo(self.zone)):%Y%m%dT%H%M%S}"

    @property
    def instant(self) -> datetime:
        """A day begins at midnight in UTC here, which only serves to compare days. Raises ValueError."""
        found = datetime.fromisoformat(self.date or self.date_time)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found

    def line(self, name: str) -> str:
        """A property with this value. Raises ValueError."""
        if self.date:
            return f"{name};VALUE=DATE:{self.wall}"
        return f"{name}:{self.wall}Z" if self.zone == "UTC" else f"{name};TZID={self.zone}:{self.wall}"


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        return False
    return True


class EventPerson(Struct, frozen=True, rename="camel"):
    """Who organises an event. `myself`: the calendar in which this copy of it stands."""

    email: str = ""
    display_name: str = ""
    myself: bool = field(default=False, name="self")


class Reminder(Struct, frozen=True):
    """What tells its user before the event begins."""

    minutes: int = 0


class Reminders(Struct, frozen=True, rename="camel"):
    overrides: tuple[Reminder, ...] = ()


class ExtendedProperties(Struct, frozen=True):
    """What programs have noted; private ones are of this calendar alone."""

    private: Mapping[str, str] = {}


class GoogleEvent(Struct, frozen=True, rename="camel"):
    """An event, a series, or a date of one, which has `recurring_event_id`. What is not named here is never touched.

    `attendees` are as they are, since they are written back whole. `attendees_omitted`: some of them are not shown.
    """

    id: str
    etag: str = ""
    status: str = "confirmed"
    i_cal_uid: str = field(default="", name="iCalUID")
    summary: str = ""
    description: str = ""
    location: str = ""
    created: str = _NEVER
    updated: str = _NEVER
    start: GoogleTime | None = None
    end: GoogleTime | None = None
    recurrence: tuple[str, ...] = ()
    recurring_event_id: str = ""
    original_start_time: GoogleTime | None = None
    sequence: int = 0
    transparency: str = "opaque"
    visibility: str = "default"
    organizer: EventPerson = EventPerson()
    attendees: tuple[dict[str, Any], ...] = ()
    attendees_omitted: bool = False
    hangout_link: str = ""
    reminders: Reminders = Reminders()
    extended_properties: ExtendedProperties = ExtendedProperties()

    @property
    def is_cancelled(self) -> bool:
        return self.status == "cancelled"

    @property
    def series_id(self) -> str:
        """The series to which it belongs, or itself."""
        return self.recurring_event_id or self.id

    @property
    def date(self) -> datetime | None:
        """Which date of its series it is; None: it is none. Raises ValueError."""
        return None if self.original_start_time is None else self.original_start_time.instant

    @property
    def uid(self) -> str:
        """The UID under which it was made, or Google's."""
        return self.extended_properties.private.get(UID_KEY) or self.i_cal_uid or self.id


def event_of(found: JsonMapping) -> GoogleEvent:
    """Raises ValueError for what is no event."""
    return convert(found, GoogleEvent)


def calendar_object(events: Iterable[GoogleEvent], user: str) -> bytes:
    """The iCalendar object of a single event, or of a series with its dates that are different.

    `user`: the address of whoever has signed in, by which this calendar's own events are organised. Raises ValueError.
    """
    every = tuple(events)
    uid = every[0].uid
    cancelled = [one for one in every if one.is_cancelled and one.original_start_time is not None]
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//Switchboard//Google Calendar//EN", "CALSCALE:GREGORIAN"]
    for one in every:
        if not one.is_cancelled:
            lines += _event_lines(one, uid, user, () if one.recurring_event_id else cancelled)
    return b"".join(map(fold_line, (*lines, "END:VCALENDAR")))


def _event_lines(one: GoogleEvent, uid: str, user: str, cancelled: Iterable[GoogleEvent]) -> Iterator[str]:
    if one.start is None or one.end is None:
        raise ValueError("the event has no time")
    yield from ("BEGIN:VEVENT", f"UID:{_one_line(uid)}", f"DTSTAMP:{_stamp_of(one.updated)}")
    yield from (f"CREATED:{_stamp_of(one.created)}", f"LAST-MODIFIED:{_stamp_of(one.updated)}")
    if one.original_start_time is not None:
        yield one.original_start_time.line("RECURRENCE-ID")
    yield one.start.line("DTSTART")
    yield one.end.line("DTEND")
    yield from map(_one_line, one.recurrence)
    yield from (each.original_start_time.line("EXDATE") for each in cancelled if each.original_start_time)
    for name, text in (("SUMMARY", one.summary), ("LOCATION", one.location), ("DESCRIPTION", one.description)):
        if text:
            yield f"{name}:{escape_text(text)}"
    if one.status == "tentative":
        yield "STATUS:TENTATIVE"
    if (secrecy := _CLASSES.get(one.visibility)) is not None:
        yield f"CLASS:{secrecy}"
    if one.transparency == "transparent":
        yield "TRANSP:TRANSPARENT"
    yield f"SEQUENCE:{one.sequence}"
    yield from _people_lines(one, user)
    if one.hangout_link:
        yield f"X-GOOGLE-CONFERENCE:{_one_line(one.hangout_link)}"
    for reminder in one.reminders.overrides[:_MOST_ALARMS]:
        yield from ("BEGIN:VALARM", "ACTION:DISPLAY", "DESCRIPTION:Reminder", f"TRIGGER:-PT{reminder.minutes}M")
        yield "END:VALARM"
    yield "END:VEVENT"


def _people_lines(one: GoogleEvent, user: str) -> Iterator[str]:
    """What nobody else is invited to has no organizer: it is its calendar's own."""
    address = user if one.organizer.myself else one.organizer.email
    if address and (one.attendees or not one.organizer.myself):
        name = "" if one.organizer.myself else one.organizer.display_name
        yield f"ORGANIZER{_parameter_of('CN', name)}:mailto:{_one_line(address)}"
    for attendee in one.attendees:
        if email := str(attendee.get("email", "")):
            yield f"ATTENDEE{_attendee_parameters(attendee)}:mailto:{_one_line(email)}"


def _attendee_parameters(attendee: JsonMapping) -> str:
    answer = ANSWERS.get(str(attendee.get("responseStatus")), "NEEDS-ACTION")
    name = _parameter_of("CN", str(attendee.get("displayName", "")))
    kind = ";CUTYPE=RESOURCE" if attendee.get("resource") is True else ""
    role = "OPT-PARTICIPANT" if attendee.get("optional") is True else "REQ-PARTICIPANT"
    asked = ";RSVP=TRUE" if answer == "NEEDS-ACTION" else ""
    return f"{name}{kind};ROLE={role};PARTSTAT={answer}{asked}"


def _parameter_of(name: str, value: str) -> str:
    plain = _one_line(value).replace('"', "")
    if not plain:
        return ""
    return f';{name}="{plain}"' if any(mark in plain for mark in ":;,") else f";{name}={plain}"


def _one_line(text: str) -> str:
    return "".join(character for character in text if character >= " " and character != "\x7f")


def _stamp_of(moment: str) -> str:
    return f"{datetime.fromisoformat(moment).astimezone(UTC):%Y%m%dT%H%M%SZ}"
