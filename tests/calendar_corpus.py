"""Objects as real programs have written them, and worse: each is readable, or the reason why it is not is told.

`tests/unit/calendar/test_corpus.py` reads them all. Most were found in reports of users of other programs.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct


class UglyObject(Struct, frozen=True):
    """`starts` are those of its dates in the window, in UTC or as walls; `problem` is a part of the reason."""

    name: str
    data: bytes
    starts: tuple[str, ...] = ()
    problem: str = ""


def calendar(*events: str, before: str = "") -> bytes:
    """An object with these events; the lines of each are divided by blanks where no blank may stand: `|`."""
    body = "".join(f"BEGIN:VEVENT\r\n{_lines(one)}END:VEVENT\r\n" for one in events)
    return f"BEGIN:VCALENDAR\r\nVERSION:2.0\r\n{_lines(before)}{body}END:VCALENDAR\r\n".encode()


def _lines(text: str) -> str:
    return "".join(f"{line}\r\n" for line in text.split("|") if line)


ONCE: Final = "UID:u|DTSTART:20270301T090000Z|DTEND:20270301T100000Z"
AT_NINE: Final = ("2027-03-01 09:00Z",)
DAILY: Final = "UID:u|DTSTART:20270301T090000Z|DTEND:20270301T100000Z|RRULE:FREQ=DAILY;COUNT=3"
THREE: Final = ("2027-03-01 09:00Z", "2027-03-02 09:00Z", "2027-03-03 09:00Z")
DAYS: Final = "UID:u|DTSTART;VALUE=DATE:20270301|RRULE:FREQ=DAILY;COUNT=3"
THREE_DAYS: Final = ("2027-03-01", "2027-03-02", "2027-03-03")
BERLIN: Final = "UID:u|DTSTART;TZID=Europe/Berlin:20270327T023000|RRULE:FREQ=DAILY;COUNT=3"
CUSTOM: Final = (
    "BEGIN:VTIMEZONE|TZID:Customized Time Zone|BEGIN:STANDARD|DTSTART:16010101T000000|TZOFFSETFROM:+0545|"
    "TZOFFSETTO:+0117|END:STANDARD|END:VTIMEZONE"
)
OUTLOOK: Final = (
    "BEGIN:VTIMEZONE|TZID:Amsterdam, Berlin, Bern|BEGIN:STANDARD|DTSTART:16010101T030000|TZOFFSETFROM:+0200|"
    "TZOFFSETTO:+0100|RRULE:FREQ=YEARLY;INTERVAL=1;BYDAY=-1SU;BYMONTH=10|END:STANDARD|BEGIN:DAYLIGHT|"
    "DTSTART:16010101T020000|TZOFFSETFROM:+0100|TZOFFSETTO:+0200|RRULE:FREQ=YEARLY;INTERVAL=1;BYDAY=-1SU;BYMONTH=3|"
    "END:DAYLIGHT|END:VTIMEZONE"
)
ENDLESS: Final = CUSTOM.replace("TZOFFSETTO:+0117|", "TZOFFSETTO:+0117|RRULE:FREQ=SECONDLY|")

NEVER_CHANGED: Final = CUSTOM.replace("Customized Time Zone", "Z0").replace(
    "END:STANDARD", "RRULE:FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30|END:STANDARD"
)


def recurring(rule: str, start: str = "20270301T090000Z") -> bytes:
    return calendar(f"UID:u|DTSTART:{start}|RRULE:{rule}")


CORPUS: Final = (
    # What recurs too often, or never.
    UglyObject("secondly", recurring("FREQ=SECONDLY", "20200101T000000Z"), problem="recurs secondly"),
    UglyObject("minutely", recurring("FREQ=MINUTELY;INTERVAL=5"), problem="recurs minutely"),
    UglyObject("hourly for years", recurring("FREQ=HOURLY", "20000101T000000Z"), problem="more than 2,000 dates"),
    UglyObject("hourly, counted", recurring("FREQ=HOURLY;COUNT=999999", "20000101T000000Z"), problem="takes too long"),
    UglyObject(
        "every second of days",
        recurring(
            "FREQ=DAILY;BYHOUR="
            + ",".join(map(str, range(24)))
            + ";BYMINUTE="
            + ",".join(map(str, range(60)))
            + ";BYSECOND="
            + ",".join(map(str, range(60)))
        ),
        problem="takes too long",
    ),
    UglyObject(
        "every minute by hours",
        recurring("FREQ=HOURLY;BYMINUTE=" + ",".join(map(str, range(60)))),
        problem="more than 2,000 dates",
    ),
    UglyObject("30 February", recurring("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30"), AT_NINE),
    UglyObject("30 February, daily", recurring("FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30"), AT_NINE),
    UglyObject("30 February, counted", recurring("FREQ=DAILY;COUNT=5;BYMONTH=2;BYMONTHDAY=30"), AT_NINE),
    UglyObject("300th Monday", recurring("FREQ=YEARLY;BYDAY=MO;BYSETPOS=300"), AT_NINE),
    UglyObject(
        "fifth Friday",
        recurring("FREQ=MONTHLY;BYDAY=5FR;COUNT=2", "20270129T090000Z"),
        ("2027-01-29 09:00Z", "2027-04-30 09:00Z"),
    ),
    UglyObject(
        "last workday",
        recurring("FREQ=MONTHLY;COUNT=2;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1", "20270226T090000Z"),
        ("2027-02-26 09:00Z", "2027-03-31 09:00Z"),
    ),
    UglyObject("29 February", recurring("FREQ=YEARLY", "20240229T090000Z"), ()),
    UglyObject(
        "the 31st of months",
        recurring("FREQ=MONTHLY;COUNT=3", "20270131T090000Z"),
        ("2027-01-31 09:00Z", "2027-03-31 09:00Z", "2027-05-31 09:00Z"),
    ),
    UglyObject("since 1900", recurring("FREQ=YEARLY", "19000301T090000Z"), AT_NINE),
    UglyObject("since 1601", recurring("FREQ=YEARLY", "16010301T090000Z"), AT_NINE),
    UglyObject("year 1", calendar("UID:u|DTSTART:00010101T000000Z"), problem="in the year 1"),
    UglyObject("year 9999", calendar("UID:u|DTSTART:99991231T235959Z|DURATION:P1D"), problem="in the year 9999"),
    UglyObject(
        "a length of centuries",
        calendar("UID:u|DTSTART:20270301T090000Z|DURATION:P999999D"),
        problem="more than a century",
    ),
    # Rules that break the standard.
    UglyObject("COUNT and UNTIL", recurring("FREQ=DAILY;COUNT=9;UNTIL=20270303T090000Z"), THREE),
    UglyObject("COUNT=0", recurring("FREQ=DAILY;COUNT=0"), problem="COUNT=0"),
    UglyObject("INTERVAL=0", recurring("FREQ=DAILY;INTERVAL=0"), problem="INTERVAL=0"),
    UglyObject("negative INTERVAL", recurring("FREQ=DAILY;INTERVAL=-1"), problem="INTERVAL=-1"),
    UglyObject("huge INTERVAL", recurring("FREQ=DAILY;INTERVAL=999999999"), AT_NINE),
    UglyObject("no FREQ", recurring("COUNT=3"), problem="FREQ=''"),
    UglyObject("unknown FREQ", recurring("FREQ=FORTNIGHTLY"), problem="FREQ='FORTNIGHTLY'"),
    UglyObject("BYDAY=XX", recurring("FREQ=WEEKLY;BYDAY=XX"), problem="BYDAY=XX"),
    UglyObject("BYDAY=0MO", recurring("FREQ=MONTHLY;BYDAY=0MO"), problem="BYDAY=0MO"),
    UglyObject("BYMONTHDAY=32", recurring("FREQ=MONTHLY;BYMONTHDAY=32"), problem="BYMONTHDAY=32"),
    UglyObject("BYMONTH=13", recurring("FREQ=YEARLY;BYMONTH=13"), problem="BYMONTH=13"),
    UglyObject("BYSETPOS=0", recurring("FREQ=MONTHLY;BYDAY=MO;BYSETPOS=0"), problem="BYSETPOS=0"),
    UglyObject("UNTIL is no time", recurring("FREQ=DAILY;UNTIL=tomorrow"), problem="UNTIL=TOMORROW"),
    UglyObject("UNTIL is 31 February", recurring("FREQ=DAILY;UNTIL=20270231"), problem="UNTIL=20270231"),
    UglyObject("UNTIL before the start", recurring("FREQ=DAILY;UNTIL=20200101T000000Z"), ()),
    UglyObject("UNTIL as a day", recurring("FREQ=DAILY;UNTIL=20270303"), THREE),
    UglyObject("UNTIL as a wall", recurring("FREQ=DAILY;UNTIL=20270303T090000"), THREE),
    UglyObject(
        "UNTIL in UTC for days",
        calendar("UID:u|DTSTART;VALUE=DATE:20270301|RRULE:FREQ=DAILY;UNTIL=20270303T000000Z"),
        THREE_DAYS,
    ),
    UglyObject("a part twice", recurring("FREQ=DAILY;COUNT=3;COUNT=4"), problem="stands twice"),
    UglyObject("small letters and blanks", recurring(" freq=daily; count=3; "), THREE),
    UglyObject("an unknown part", recurring("FREQ=DAILY;COUNT=3;X-FOO=1"), THREE),
    UglyObject("an empty rule", recurring(""), problem="FREQ=''"),
    UglyObject("the Hebrew calendar", recurring("RSCALE=HEBREW;FREQ=YEARLY"), problem="RSCALE"),
    UglyObject(
        "hours of whole days", calendar("UID:u|DTSTART;VALUE=DATE:20270301|RRULE:FREQ=HOURLY"), problem="whole days"
    ),
    UglyObject("EXRULE", calendar(f"{DAILY}|EXRULE:FREQ=DAILY"), problem="EXRULE"),
    UglyObject(
        "two rules",
        calendar("UID:u|DTSTART:20270301T090000Z|RRULE:FREQ=DAILY;COUNT=2|RRULE:FREQ=WEEKLY;COUNT=2"),
        ("2027-03-01 09:00Z", "2027-03-02 09:00Z", "2027-03-08 09:00Z"),
    ),
    UglyObject("a start beside the rule", recurring("FREQ=WEEKLY;BYDAY=TU;COUNT=2"), THREE[:2]),
    # Dates that are added and left out.
    UglyObject("EXDATE as a day", calendar(f"{DAILY}|EXDATE;VALUE=DATE:20270302"), (THREE[0], THREE[2])),
    UglyObject(
        "EXDATE in another zone", calendar(f"{DAILY}|EXDATE;TZID=Europe/Berlin:20270302T100000"), (THREE[0], THREE[2])
    ),
    UglyObject("EXDATE without a zone", calendar(f"{DAILY}|EXDATE:20270302T090000"), (THREE[0], THREE[2])),
    UglyObject(
        "EXDATE with a time for days", calendar(f"{DAYS}|EXDATE:20270302T000000Z"), (THREE_DAYS[0], THREE_DAYS[2])
    ),
    UglyObject("EXDATE of no date", calendar(f"{DAILY}|EXDATE:20270302T091500Z"), THREE),
    UglyObject("EXDATE in a list", calendar(f"{DAILY}|EXDATE:20270301T090000Z,20270302T090000Z"), THREE[2:]),
    UglyObject("empty EXDATE", calendar(f"{DAILY}|EXDATE:"), THREE),
    UglyObject("EXDATE is no time", calendar(f"{DAILY}|EXDATE:never"), problem="EXDATE is 'never'"),
    UglyObject("everything left out", calendar(f"{DAILY}|EXDATE:{','.join(f'2027030{n}T090000Z' for n in (1, 2, 3))}")),
    UglyObject("RDATE", calendar(f"{ONCE}|RDATE:20270305T120000Z"), (*AT_NINE, "2027-03-05 12:00Z")),
    UglyObject(
        "RDATE as a period",
        calendar(f"{ONCE}|RDATE;VALUE=PERIOD:20270305T120000Z/PT3H"),
        (*AT_NINE, "2027-03-05 12:00Z"),
    ),
    UglyObject(
        "RDATE with an end",
        calendar(f"{ONCE}|RDATE;VALUE=PERIOD:20270305T120000Z/20270305T130000Z"),
        (*AT_NINE, "2027-03-05 12:00Z"),
    ),
    UglyObject("RDATE twice", calendar(f"{DAILY}|RDATE:20270302T090000Z,20270302T090000Z"), THREE),
    UglyObject(
        "6,000 RDATEs", calendar(f"{ONCE}|RDATE:{','.join(['20270305T120000Z'] * 6000)}"), problem="5,000 dates"
    ),
    # Overrides.
    UglyObject(
        "an override without master", calendar("UID:u|RECURRENCE-ID:20270101T090000Z|DTSTART:20270301T090000Z"), AT_NINE
    ),
    UglyObject(
        "moved into the window",
        calendar(
            "UID:u|DTSTART:20200101T090000Z|RRULE:FREQ=DAILY;COUNT=3",
            "UID:u|RECURRENCE-ID:20200102T090000Z|DTSTART:20270301T090000Z",
        ),
        AT_NINE,
    ),
    UglyObject(
        "moved out of the window",
        calendar(DAILY, "UID:u|RECURRENCE-ID:20270302T090000Z|DTSTART:20350101T090000Z"),
        (THREE[0], THREE[2]),
    ),
    UglyObject(
        "a cancelled date",
        calendar(DAILY, "UID:u|RECURRENCE-ID:20270302T090000Z|DTSTART:20270302T090000Z|STATUS:CANCELLED"),
        (THREE[0], THREE[2]),
    ),
    UglyObject("all cancelled", calendar(f"{DAILY}|STATUS:CANCELLED")),
    UglyObject(
        "one date twice",
        calendar(
            DAILY,
            "UID:u|RECURRENCE-ID:20270302T090000Z|DTSTART:20270302T110000Z|SEQUENCE:2",
            "UID:u|RECURRENCE-ID:20270302T090000Z|DTSTART:20270302T100000Z|SEQUENCE:1",
        ),
        (THREE[0], "2027-03-02 11:00Z", THREE[2]),
    ),
    UglyObject("two masters", calendar(f"{ONCE}|SEQUENCE:2", "UID:u|DTSTART:20270401T090000Z|SEQUENCE:1"), AT_NINE),
    UglyObject(
        "an override by day",
        calendar(DAILY, "UID:u|RECURRENCE-ID;VALUE=DATE:20270302|DTSTART:20270302T120000Z"),
        (THREE[0], "2027-03-02 12:00Z", THREE[2]),
    ),
    UglyObject(
        "an override in another zone",
        calendar(DAILY, "UID:u|RECURRENCE-ID;TZID=Europe/Berlin:20270302T100000|DTSTART:20270302T120000Z"),
        (THREE[0], "2027-03-02 12:00Z", THREE[2]),
    ),
    UglyObject(
        "this and following",
        calendar(DAILY, "UID:u|RECURRENCE-ID;RANGE=THISANDFUTURE:20270302T090000Z|DTSTART:20270302T110000Z"),
        (THREE[0], "2027-03-02 11:00Z", "2027-03-03 11:00Z"),
    ),
    UglyObject(
        "overrides before the master",
        calendar("UID:u|RECURRENCE-ID:20270302T090000Z|DTSTART:20270302T120000Z", DAILY),
        (THREE[0], "2027-03-02 12:00Z", THREE[2]),
    ),
    # Times and zones.
    UglyObject(
        "a gap of the clocks", calendar(BERLIN), ("2027-03-27 01:30Z", "2027-03-28 01:30Z", "2027-03-29 00:30Z")
    ),
    UglyObject("a name of Windows", calendar("UID:u|DTSTART;TZID=W. Europe Standard Time:20270301T100000"), AT_NINE),
    UglyObject("a quoted zone", calendar('UID:u|DTSTART;TZID="Europe/Berlin":20270301T100000'), AT_NINE),
    UglyObject(
        "a zone of Mozilla",
        calendar("UID:u|DTSTART;TZID=/mozilla.org/20050126_1/Europe/Berlin:20270301T100000"),
        AT_NINE,
    ),
    UglyObject(
        "a zone of Outlook",
        calendar('UID:u|DTSTART;TZID="Amsterdam, Berlin, Bern":20270301T100000', before=OUTLOOK),
        AT_NINE,
    ),
    UglyObject(
        "a zone that is nowhere",
        calendar("UID:u|DTSTART;TZID=Customized Time Zone:20270301T101700", before=CUSTOM),
        AT_NINE,
    ),
    UglyObject("an unknown zone", calendar("UID:u|DTSTART;TZID=Nowhere:20270301T090000"), AT_NINE),
    UglyObject(
        "a zone that changes every second",
        calendar("UID:u|DTSTART;TZID=Customized Time Zone:20270301T090000", before=ENDLESS),
        AT_NINE,
    ),
    UglyObject(
        "a zone without offsets",
        calendar("UID:u|DTSTART;TZID=X:20270301T090000", before="BEGIN:VTIMEZONE|TZID:X|END:VTIMEZONE"),
        AT_NINE,
    ),
    UglyObject("a path as a zone", calendar("UID:u|DTSTART;TZID=../../etc/passwd:20270301T090000"), AT_NINE),
    UglyObject("an empty zone", calendar("UID:u|DTSTART;TZID=:20270301T090000"), ("2027-03-01 09:00",)),
    UglyObject("floating", calendar("UID:u|DTSTART:20270301T090000"), ("2027-03-01 09:00",)),
    UglyObject("X-WR-TIMEZONE", calendar(ONCE, before="X-WR-TIMEZONE:Asia/Tokyo"), AT_NINE),
    UglyObject("a leap second", calendar("UID:u|DTSTART:20270301T085960Z"), ("2027-03-01 08:59Z",)),
    UglyObject("a day without VALUE", calendar("UID:u|DTSTART:20270301"), ("2027-03-01",)),
    UglyObject("a day that says DATE-TIME", calendar("UID:u|DTSTART;VALUE=DATE-TIME:20270301"), ("2027-03-01",)),
    UglyObject("an end before the start", calendar("UID:u|DTSTART:20270301T090000Z|DTEND:20270301T080000Z"), AT_NINE),
    UglyObject("no end", calendar("UID:u|DTSTART:20270301T090000Z"), AT_NINE),
    UglyObject("an end that is a day", calendar("UID:u|DTSTART:20270301T090000Z|DTEND;VALUE=DATE:20270302"), AT_NINE),
    UglyObject("end and duration", calendar(f"{ONCE}|DURATION:PT5H"), AT_NINE),
    UglyObject("a negative duration", calendar("UID:u|DTSTART:20270301T090000Z|DURATION:-PT1H"), AT_NINE),
    UglyObject(
        "a duration of nothing", calendar("UID:u|DTSTART:20270301T090000Z|DURATION:P"), problem="DURATION is 'P'"
    ),
    UglyObject("13 o'clock in the 13th month", calendar("UID:u|DTSTART:20271301T130000Z"), problem="no time"),
    UglyObject("25 o'clock", calendar("UID:u|DTSTART:20270301T250000Z"), problem="no time"),
    UglyObject("ISO 8601", calendar("UID:u|DTSTART:2027-03-01T09:00:00Z"), problem="no time"),
    UglyObject("no start", calendar("UID:u|SUMMARY:x"), problem="no start"),
    # The object as a whole.
    UglyObject("nothing", b"", problem="no iCalendar"),
    UglyObject("a page for logging in", b"<html><body>Please log in</body></html>", problem="no iCalendar"),
    UglyObject("a vCard", b"BEGIN:VCARD\r\nVERSION:3.0\r\nFN:Ann\r\nEND:VCARD\r\n", problem="no iCalendar"),
    UglyObject("cut in the middle", calendar(ONCE)[:90], problem="no iCalendar"),
    UglyObject("no END:VEVENT", calendar(ONCE).replace(b"END:VEVENT\r\n", b""), problem="no event that is complete"),
    UglyObject("line feeds only", calendar(ONCE).replace(b"\r\n", b"\n"), AT_NINE),
    UglyObject("carriage returns only", calendar(ONCE).replace(b"\r\n", b"\r"), AT_NINE),
    UglyObject("a mark of byte order", b"\xef\xbb\xbf" + calendar(ONCE), AT_NINE),
    UglyObject("Latin-1", calendar(f"{ONCE}|SUMMARY:x").replace(b"SUMMARY:x", b"SUMMARY:Caf\xe9"), AT_NINE),
    UglyObject("NUL", calendar(f"{ONCE}|SUMMARY:a\0b"), AT_NINE),
    UglyObject("a line without a colon", calendar(f"{ONCE}|what is this"), AT_NINE),
    UglyObject("a fold in a character", calendar(f"{ONCE}|SUMMARY:é").replace("é".encode(), b"\xc3\r\n \xa9"), AT_NINE),
    UglyObject("no UID", calendar("DTSTART:20270301T090000Z"), AT_NINE),
    UglyObject(
        "two UIDs, one of them wrong",
        calendar(ONCE, "UID:bad|DTSTART:20270301T090000Z|RRULE:FREQ=NEVER"),
        AT_NINE,
        "bad: ",
    ),
    UglyObject(
        "an alarm with a DTSTART",
        calendar(f"{ONCE}|BEGIN:VALARM|DTSTART:20200101T000000Z|TRIGGER:-PT15M|END:VALARM"),
        AT_NINE,
    ),
    UglyObject("a task", calendar(ONCE).replace(b"VEVENT", b"VTODO")),
    UglyObject("a journal", calendar(ONCE).replace(b"VEVENT", b"VJOURNAL")),
    UglyObject("a calendar with nothing", b"BEGIN:VCALENDAR\r\nVERSION:2.0\r\nEND:VCALENDAR\r\n", problem="no event"),
    UglyObject("two calendars", calendar(ONCE) + calendar("UID:v|DTSTART:20270302T090000Z"), THREE[:2]),
    UglyObject(
        "small letters",
        calendar(ONCE).lower().replace(b"t09", b"T09").replace(b"z\r", b"Z\r").replace(b"t10", b"T10"),
        AT_NINE,
    ),
    UglyObject("5 MB of text", calendar(f"{ONCE}|DESCRIPTION:{'x' * 5_000_000}"), problem="more than 1,000,000 bytes"),
    UglyObject("900 KB of text", calendar(f"{ONCE}|DESCRIPTION:{'x' * 900_000}"), AT_NINE),
    UglyObject("many folds", calendar(f"{ONCE}|DESCRIPTION:" + "\r\n x" * 49_000), AT_NINE),
    UglyObject(
        "too many folds", calendar(f"{ONCE}|DESCRIPTION:" + "\r\n x" * 220_000), problem="more than 50,000 lines"
    ),
    UglyObject("480,000 empty lines", calendar(ONCE) + b"\r\n" * 480_000, problem="more than 50,000 lines"),
    UglyObject("200,000 short lines", calendar(ONCE) + b"A:\r" * 200_000, problem="more than 50,000 lines"),
    UglyObject(
        "4,000 time zones and 1,900 events",
        calendar(
            *(f"UID:{n}|DTSTART;TZID=Z{n}:20270301T090000" for n in range(1900)),
            before="|".join(CUSTOM.replace("Customized Time Zone", f"Z{n}") for n in range(4000)),
        ),
        problem="more than 200 time zones",
    ),
    UglyObject(
        "a time zone whose clocks never change, but take long",
        calendar(f"{ONCE}|X:y".replace("DTSTART", "DTSTART;TZID=Z0"), before=NEVER_CHANGED),
        AT_NINE,
    ),
    UglyObject(
        "events in a hundred of them",
        calendar(
            *(f"UID:{n}|DTSTART;TZID=Z{n}:20270301T090000" for n in range(100)),
            before="|".join(NEVER_CHANGED.replace("TZID:Z0", f"TZID:Z{n}") for n in range(100)),
        ),
        AT_NINE * 2,
        "3: it takes too long",
    ),
    UglyObject("900 KB of commas", calendar(f"{ONCE}|EXDATE:" + "," * 900_000), AT_NINE),
    UglyObject("900 KB of escapes", calendar(f"{ONCE}|DESCRIPTION:" + "\\n" * 450_000), AT_NINE),
    UglyObject(
        "3,000 events",
        calendar(*(f"UID:{n}|DTSTART:20270301T090000Z" for n in range(3000))),
        problem="more than 2,000 events",
    ),
    UglyObject("100,000 parameters", calendar(f"{ONCE}|X-A{';B=c' * 100_000}:x"), AT_NINE),
    UglyObject("components in components", b"BEGIN:VCALENDAR\r\n" * 20_000 + b"END:VCALENDAR\r\n" * 20_000),
)
