"""Objects of calendars as other programs write them: their properties, their folds, their ends of lines."""

from __future__ import annotations

from random import Random
from typing import Final

from msgspec import Struct

from switchboard.core.text.content_lines import escape_text

WORDS: Final = (
    "Zahnärztin",
    "Elternabend",
    "会議",
    "Chorprobe",
    "dentist",
    "lunch; late",
    "a, b",
    "back\\slash",
    "🎂",
    "café",
)
_BERLIN: Final = """BEGIN:VTIMEZONE
TZID:{tzid}
{location}BEGIN:DAYLIGHT
TZOFFSETFROM:+0100
TZOFFSETTO:+0200
TZNAME:CEST
DTSTART:19810329T020000
RRULE:FREQ=YEARLY;BYMONTH=3;BYDAY=-1SU
END:DAYLIGHT
BEGIN:STANDARD
TZOFFSETFROM:+0200
TZOFFSETTO:+0100
TZNAME:CET
DTSTART:19961027T030000
RRULE:FREQ=YEARLY;BYMONTH=10;BYDAY=-1SU
END:STANDARD
END:VTIMEZONE
"""
APPLE: Final = """BEGIN:VCALENDAR
CALSCALE:GREGORIAN
PRODID:-//Apple Inc.//macOS 15.1//EN
VERSION:2.0
X-APPLE-CALENDAR-COLOR:#1BADF8
X-WR-CALNAME:{calendar}
{zone}BEGIN:VEVENT
CREATED:20260901T101530Z
DTEND;TZID={tzid}:{end}
{rule}DTSTAMP:20260901T101531Z
DTSTART;TZID={tzid}:{start}
LAST-MODIFIED:20260901T101530Z
LOCATION:{place}
SEQUENCE:{sequence}
SUMMARY:{title}
TRANSP:OPAQUE
UID:{uid}
URL;VALUE=URI:https://example.org/{uid}
X-APPLE-CREATOR-IDENTITY:com.apple.calendar
X-APPLE-STRUCTURED-LOCATION;VALUE=URI;X-APPLE-MAPKIT-HANDLE=CAES{blob};X-APPLE-RADIUS=70;X-TITLE="{quoted}":geo:52.5163,13.3777
X-APPLE-TRAVEL-ADVISORY-BEHAVIOR:AUTOMATIC
BEGIN:VALARM
ACTION:DISPLAY
DESCRIPTION:Reminder
TRIGGER:-PT15M
UID:{uid}-alarm
X-WR-ALARMUID:{uid}-alarm
END:VALARM
END:VEVENT
END:VCALENDAR
"""
THUNDERBIRD: Final = """BEGIN:VCALENDAR
PRODID:-//Mozilla.org/NONSGML Mozilla Calendar V1.1//EN
VERSION:2.0
{zone}BEGIN:VEVENT
CREATED:20260901T101530Z
LAST-MODIFIED:20260901T101600Z
DTSTAMP:20260901T101600Z
UID:{uid}
SUMMARY:{title}
{rule}DTSTART;TZID={tzid}:{start}
DTEND;TZID={tzid}:{end}
TRANSP:OPAQUE
CATEGORIES:Familie,Büro
LOCATION:{place}
DESCRIPTION;ALTREP="data:text/html,%3Cbody%3E{blob}%3C%2Fbody%3E":{notes}
SEQUENCE:{sequence}
X-MOZ-GENERATION:4
X-MOZ-LASTACK:20260901T101600Z
BEGIN:VALARM
ACTION:DISPLAY
TRIGGER;VALUE=DURATION:-PT30M
DESCRIPTION:{title}
END:VALARM
END:VEVENT
END:VCALENDAR
"""
DAVX5: Final = """BEGIN:VCALENDAR
VERSION:2.0
PRODID:+//IDN bitfire.at//DAVx5/4.4.4-ose ical4j/3.2.19 (com.android.calendar)
BEGIN:VEVENT
DTSTAMP:20260901T101600Z
UID:{uid}
SEQUENCE:{sequence}
SUMMARY:{title}
LOCATION:{place}
DESCRIPTION:{notes}
DTSTART;TZID={tzid}:{start}
DURATION:PT1H
{rule}CLASS:PRIVATE
STATUS:CONFIRMED
COLOR:mediumseagreen
BEGIN:VALARM
TRIGGER:-PT10M
ACTION:DISPLAY
DESCRIPTION:{title}
END:VALARM
END:VEVENT
{zone}END:VCALENDAR
"""
GOOGLE: Final = """BEGIN:VCALENDAR
PRODID:-//Google Inc//Google Calendar 70.9054//EN
VERSION:2.0
CALSCALE:GREGORIAN
X-WR-CALNAME:{calendar}
X-WR-TIMEZONE:{tzid}
{zone}BEGIN:VEVENT
DTSTART;TZID={tzid}:{start}
DTEND;TZID={tzid}:{end}
{rule}DTSTAMP:20260901T101600Z
ORGANIZER;CN="{quoted}":mailto:ann@home.example
UID:{uid}@google.com
ATTENDEE;CUTYPE=INDIVIDUAL;ROLE=REQ-PARTICIPANT;PARTSTAT=ACCEPTED;CN=ann@home.example;X-NUM-GUESTS=0:mailto:ann@home.example
ATTENDEE;CUTYPE=INDIVIDUAL;ROLE=REQ-PARTICIPANT;PARTSTAT=NEEDS-ACTION;RSVP=TRUE;CN="{quoted}";X-NUM-GUESTS=0:mailto:ben@work.example
CLASS:PUBLIC
CREATED:20260901T101530Z
DESCRIPTION:{notes}
LAST-MODIFIED:20260901T101600Z
LOCATION:{place}
SEQUENCE:{sequence}
STATUS:CONFIRMED
SUMMARY:{title}
TRANSP:OPAQUE
X-GOOGLE-CONFERENCE:https://meet.google.com/{uid}
END:VEVENT
END:VCALENDAR
"""
OUTLOOK: Final = """BEGIN:VCALENDAR
PRODID:-//Microsoft Corporation//Outlook 16.0 MIMEDIR//EN
VERSION:2.0
METHOD:PUBLISH
X-MS-OLK-FORCEINSPECTOROPEN:TRUE
{zone}BEGIN:VEVENT
CLASS:PUBLIC
CREATED:20260901T101530Z
DESCRIPTION:{notes}
DTEND;TZID="{tzid}":{end}
DTSTAMP:20260901T101600Z
DTSTART;TZID="{tzid}":{start}
LAST-MODIFIED:20260901T101600Z
LOCATION:{place}
PRIORITY:5
{rule}SEQUENCE:{sequence}
SUMMARY;LANGUAGE=de:{title}
TRANSP:OPAQUE
UID:040000008200E00074C5B7101A82E008{uid}
X-ALT-DESC;FMTTYPE=text/html:<html><body><p>{blob}</p></body></html>
X-MICROSOFT-CDO-BUSYSTATUS:BUSY
X-MICROSOFT-CDO-IMPORTANCE:1
X-MICROSOFT-CDO-ALLDAYEVENT:FALSE
X-MS-OLK-AUTOFILLLOCATION:FALSE
BEGIN:VALARM
TRIGGER:-PT15M
ACTION:DISPLAY
DESCRIPTION:Reminder
END:VALARM
END:VEVENT
END:VCALENDAR
"""
_EXDATES: Final = "EXDATE;TZID={tzid}:20261109T090000\n"


class ForeignProgram(Struct, frozen=True):
    """How a program writes: its object, the end of its lines, where it folds, and what it calls a zone."""

    name: str
    template: str
    end: bytes
    fold_at: int
    tzid: str = "Europe/Berlin"


PROGRAMS: Final = (
    ForeignProgram("apple", APPLE, b"\r\n", 75),
    ForeignProgram("thunderbird", THUNDERBIRD, b"\r\n", 72),
    ForeignProgram("davx5", DAVX5, b"\r\n", 73),
    ForeignProgram("google", GOOGLE, b"\r\n", 75),
    ForeignProgram("outlook", OUTLOOK, b"\n", 60, "W. Europe Standard Time"),
)


def foreign_object(program: ForeignProgram, seed: int) -> bytes:
    """An object of a program. Every second one is a series, of which every second one lacks a date."""
    chance = Random(f"{program.name} {seed}")
    rule = "" if seed % 2 else f"RRULE:FREQ=WEEKLY;BYDAY=MO;COUNT={chance.randint(3, 30)}\n"
    if seed % 4 == 0:
        rule += _EXDATES.format(tzid=program.tzid)
    text = program.template.format(
        calendar=_some_words(chance, 3),
        zone=_BERLIN.format(tzid=program.tzid, location=f"X-LIC-LOCATION:{program.tzid}\n" if seed % 3 else ""),
        tzid=program.tzid,
        uid=f"{chance.getrandbits(64):016X}-{seed}",
        start="20261102T090000",
        end="20261102T100000",
        rule=rule,
        title=_some_words(chance, 30),
        place=_some_words(chance, 12),
        notes=_some_words(chance, 80),
        quoted=_some_words(chance, 6).replace("\\", ""),
        blob="".join(chance.choices("abcdefghijklmnop%20", k=chance.randint(10, 400))),
        sequence=chance.randint(0, 9),
    )
    return b"".join(_folded(line, program) for line in text.splitlines())


def _some_words(chance: Random, most: int) -> str:
    return escape_text(" ".join(chance.choices(WORDS, k=chance.randint(1, most))))


def _folded(line: str, program: ForeignProgram) -> bytes:
    """As the program folds: many do it within a character, as RFC 5545 allows."""
    raw = line.encode()
    pieces = [raw[at : at + program.fold_at] for at in range(0, len(raw), program.fold_at)]
    return (program.end + b" ").join(pieces) + program.end
