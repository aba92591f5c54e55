"""Answers to invitations as programs of calendars mail them: the forms of what they write, with our names in it.

In: who answers what, of which version, and when; out: mails. Tests of `calendar/mailing` and of whole installations use
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.message import EmailMessage
from typing import Final

from msgspec import Struct


class Answering(Struct, frozen=True):
    """Who answers what. `recurrence`: lines that name the date, such as `RECURRENCE-ID:…`."""

    attendee: str = "ben@work.example"
    answer: str = "ACCEPTED"
    uid: str = "m1"
    sequence: int = 0
    made: datetime = datetime(2026, 11, 2, 9, tzinfo=UTC)
    recurrence: str = ""
    organizer: str = "ann@home.example"
    method: str = "REPLY"

    @property
    def stamp(self) -> str:
        return f"{self.made:%Y%m%dT%H%M%SZ}"


THUNDERBIRD: Final = """BEGIN:VCALENDAR
PRODID:-//Mozilla.org/NONSGML Mozilla Calendar V1.1//EN
VERSION:2.0
METHOD:{method}
BEGIN:VEVENT
CREATED:20261101T080000Z
LAST-MODIFIED:{stamp}
DTSTAMP:{stamp}
UID:{uid}
SUMMARY:Board
{recurrence}ORGANIZER;CN=Ann:mailto:{organizer}
ATTENDEE;CN=Ben;PARTSTAT={answer};ROLE=REQ-PARTICIPANT:mailto:{attendee}
DTSTART;TZID=Europe/Berlin:20261203T140000
DTEND;TZID=Europe/Berlin:20261203T150000
SEQUENCE:{sequence}
X-MOZ-RECEIVED-SEQUENCE:{sequence}
END:VEVENT
END:VCALENDAR
"""
GOOGLE: Final = """BEGIN:VCALENDAR
PRODID:-//Google Inc//Google Calendar 70.9054//EN
VERSION:2.0
CALSCALE:GREGORIAN
METHOD:{method}
BEGIN:VEVENT
DTSTART:20261203T130000Z
DTEND:20261203T140000Z
DTSTAMP:{stamp}
ORGANIZER;CN=Ann:mailto:{organizer}
UID:{uid}
{recurrence}ATTENDEE;CUTYPE=INDIVIDUAL;ROLE=REQ-PARTICIPANT;PARTSTAT={answer};CN=Ben;X
 -NUM-GUESTS=0:mailto:{attendee}
CREATED:20261101T080000Z
DESCRIPTION:
LAST-MODIFIED:{stamp}
LOCATION:
SEQUENCE:{sequence}
STATUS:CONFIRMED
SUMMARY:Board
TRANSP:OPAQUE
END:VEVENT
END:VCALENDAR
"""
EXCHANGE: Final = """BEGIN:VCALENDAR
METHOD:{method}
PRODID:Microsoft Exchange Server 2010
VERSION:2.0
BEGIN:VTIMEZONE
TZID:W. Europe Standard Time
BEGIN:STANDARD
DTSTART:16010101T030000
TZOFFSETFROM:+0200
TZOFFSETTO:+0100
RRULE:FREQ=YEARLY;INTERVAL=1;BYDAY=-1SU;BYMONTH=10
END:STANDARD
BEGIN:DAYLIGHT
DTSTART:16010101T020000
TZOFFSETFROM:+0100
TZOFFSETTO:+0200
RRULE:FREQ=YEARLY;INTERVAL=1;BYDAY=-1SU;BYMONTH=3
END:DAYLIGHT
END:VTIMEZONE
BEGIN:VEVENT
ATTENDEE;PARTSTAT={answer};CN=Ben:MAILTO:{attendee}
COMMENT;LANGUAGE=en-US:\\n
UID:{uid}
{recurrence}SUMMARY;LANGUAGE=en-US:Accepted: Board
DTSTART;TZID=W. Europe Standard Time:20261203T140000
DTEND;TZID=W. Europe Standard Time:20261203T150000
CLASS:PUBLIC
PRIORITY:5
DTSTAMP:{stamp}
TRANSP:OPAQUE
STATUS:CONFIRMED
SEQUENCE:{sequence}
X-MICROSOFT-CDO-APPT-SEQUENCE:{sequence}
X-MICROSOFT-CDO-BUSYSTATUS:BUSY
END:VEVENT
END:VCALENDAR
"""
CYRUS: Final = """BEGIN:VCALENDAR
PRODID:-//CyrusIMAP.org/Cyrus 3.6.1//EN
VERSION:2.0
METHOD:{method}
BEGIN:VEVENT
UID:{uid}
DTSTAMP:{stamp}
SEQUENCE:{sequence}
{recurrence}ORGANIZER:mailto:{organizer}
ATTENDEE;PARTSTAT={answer}:mailto:{attendee}
REQUEST-STATUS:2.0;Success
END:VEVENT
END:VCALENDAR
"""
FORMS: Final[Mapping[str, str]] = {
    "Thunderbird": THUNDERBIRD,
    "Google": GOOGLE,
    "Exchange": EXCHANGE,
    "Cyrus": CYRUS,
}
MailForm = Callable[[bytes, Answering], EmailMessage]


def reply_object(form: str, said: Answering) -> bytes:
    """The object of an answer, with CRLF."""
    given = {name: getattr(said, name) for name in (*said.__struct_fields__, "stamp")}
    return (
        FORMS[form]
        .format(**given | {"recurrence": said.recurrence and f"{said.recurrence}\n"})
        .replace("\n", "\r\n")
        .encode()
    )


def reply_mail(form: str, said: Answering, *, to: str, auth: str = "") -> bytes:
    """The mail of an answer, as the program makes it: alone, as an alternative, or with a copy that is attached."""
    data = reply_object(form, said)
    mail = EmailMessage()
    if auth:
        mail["Authentication-Results"] = auth
    mail["From"], mail["To"], mail["Subject"] = f"Ben <{said.attendee}>", to, "Accepted: Board"
    mail["Message-ID"] = f"<{form}.{said.stamp}.{said.answer}.{said.uid[:20]}@work.example>"
    if form == "Cyrus":
        mail.set_content(data, "text", "calendar", params={"method": said.method, "charset": "utf-8"})
        return mail.as_bytes()
    mail.set_content("Ben has accepted this invitation.")
    mail.add_alternative(data.decode(), "calendar", params={"method": said.method, "charset": "UTF-8"})
    if form == "Google":
        mail.add_attachment(data, "application", "ics", filename="invite.ics")
    return mail.as_bytes()
