"""A person who writes on Telegram, and has a calendar and an address book: for what is done for certain persons only.

In: nothing; out: a `Phone`, whose messages come from a new account of the same person each time, so that each begins a
conversation, and a `Diary`, which is what another client of the same account does. Next: `house.py`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Final

from icalendar import Calendar, Event

from switchboard.testing.bot_api import BotApi
from tests.dav_servers import PASSWORD, USER, DavServer, radicale
from tests.mail_servers import PASSWORD as MAIL_PASSWORD
from tests.mail_servers import Imap
from tests.mailboxes import SECRET, a_mail, account_at, deliver

FIRST: Final = 41
MOST: Final = 90
"""Accounts of the person."""
POSTAL: Final = range(FIRST + 60, FIRST + MOST)
"""Those of them whose questions are about mail: another butler answers these."""
_EVENT: Final = (
    "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//other client//EN\r\nBEGIN:VEVENT\r\nUID:{uid}\r\n"
    "DTSTAMP:20260101T000000Z\r\nSUMMARY:{title}\r\nDTSTART:{day:%Y%m%d}T{start}00Z\r\nDTEND:{day:%Y%m%d}T{end}00Z\r\n"
    "END:VEVENT\r\nEND:VCALENDAR\r\n"
)
_BEN: Final = {"from": "Ben Baker <ben.baker@friends.example>"}
_CLARA: Final = {"from": "Clara Diaz <clara.diaz@friends.example>"}
_MIA: Final = {"from": "Mia Novak <mia.novak@friends.example>"}
_CARD: Final = (
    "BEGIN:VCARD\r\nVERSION:3.0\r\nUID:{uid}\r\nFN:{name}\r\nN:{last};{first};;;\r\nEMAIL:{mail}\r\nEND:VCARD\r\n"
)


@dataclass(frozen=True)
class Meeting:
    """An event with guests, as it stands on the server; `start` and `end` as hours of the day in UTC."""

    day: date
    start: float
    end: float
    guests: tuple[str, ...]


@dataclass(frozen=True)
class Diary:
    """A calendar and an address book on a real server."""

    server: DavServer

    @property
    def url(self) -> str:
        """Where the account is."""
        return f"http://127.0.0.1:{self.server.port}/"

    def begin(self, people: dict[str, str]) -> None:
        """Put people into the address book: names and addresses."""
        for number, (name, mail) in enumerate(people.items()):
            first, _, last = name.partition(" ")
            card = _CARD.format(uid=f"p{number}", name=name, first=first, last=last, mail=mail)
            self.server.put(f"p{number}.vcf", card.encode())

    def fill(self, busy: list[tuple[date, str, str]]) -> None:
        """Everything else goes; these stand there instead: days, starts and ends as `1330`."""
        self._calendar.empty()
        for number, (day, start, end) in enumerate(busy):
            event = _EVENT.format(uid=f"b{number}", title=f"Shift {number}", day=day, start=start, end=end)
            self._calendar.put(f"b{number}.ics", event.encode())

    def meetings(self) -> list[Meeting]:
        """The events with guests."""
        return [one for data in self._calendar.objects().values() for one in _meetings_in(data)]

    @property
    def _calendar(self) -> DavServer:
        return self.server.of_events()


def _meetings_in(data: bytes) -> Iterator[Meeting]:
    for event in Calendar.from_ical(data).walk("VEVENT"):
        assert isinstance(event, Event)
        start, end = event.start, event.end
        guests = event.get("attendee") or []
        addresses = [str(one) for one in (guests if isinstance(guests, list) else [guests])]
        if addresses and isinstance(start, datetime) and isinstance(end, datetime):
            hours = [one.astimezone(UTC).hour + one.astimezone(UTC).minute / 60 for one in (start, end)]
            yield Meeting(
                start.date(), hours[0], hours[1], tuple(one.lower().removeprefix("mailto:") for one in addresses)
            )


@dataclass
class Phone:
    """The person's phone. `url`: that of Telegram."""

    url: str
    _say: Callable[[str, int], None]
    _texts: Callable[[], list[str]]
    _used: int = field(default=0)

    def say(self, text: str, *, postal: bool = False) -> None:
        """Write from an account that has not been used yet."""
        accounts = POSTAL if postal else range(FIRST, POSTAL.start)
        self._say(text, accounts[self._used % len(accounts)])
        self._used += 1

    @property
    def texts(self) -> list[str]:
        """What came back, to any account."""
        return self._texts()


@contextmanager
def open_phone() -> Iterator[Phone]:
    """Telegram in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    api = BotApi()
    asyncio.run_coroutine_threadsafe(api.__aenter__(), loop).result(30)

    def say(text: str, account: int) -> None:
        user = {"id": account, "is_bot": False, "first_name": "Ann"}
        loop.call_soon_threadsafe(lambda: api.people.say(text, user=user))

    try:
        yield Phone(api.url, say, lambda: list(api.texts))
    finally:
        asyncio.run_coroutine_threadsafe(api.__aexit__(None, None, None), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)


@contextmanager
def open_diary(people: dict[str, str]) -> Iterator[Diary]:
    """A real server with an address book of these people and an empty calendar."""
    with radicale() as server:
        diary = Diary(server)
        diary.begin(people)
        yield diary


def _last_month(day: int) -> datetime:
    first = datetime.now(UTC).replace(day=1, hour=9, minute=0, second=0, microsecond=0)
    return (first - timedelta(days=1)).replace(day=day)


def fill_mailbox(imap: Imap) -> None:
    """What was written about the boiler last month, with the answer; before that; and about other things."""
    asked = "Hello Ann, the boiler in the cellar leaks again, and the heating is cold. When may I come? Ben"
    own = {"from": f"Ann <{USER}>", "to": "ben.baker@friends.example"}
    answered = a_mail(
        "a1", "Re: The boiler", "Come on Friday at nine, please. Ann", _last_month(12), answers=["b1"], **own
    )
    received = (
        a_mail("o1", "Boiler", "The new boiler arrives in May. Clara", _last_month(2) - timedelta(days=90), **_CLARA),
        a_mail("b1", "The boiler", asked, _last_month(11), **_BEN),
        a_mail("c1", "Garden", "The roses need water. Clara", _last_month(20), **_CLARA),
        a_mail("d1", "Lunch", "Shall we have lunch on Monday? Mia", datetime.now(UTC), **_MIA),
    )
    deliver(imap, imap.user, *received)
    deliver(imap, imap.user, answered, folder="Sent")


def login_of(diary: Diary) -> dict[str, object]:
    """The account as modules are told of it; the password is in the environment."""
    return {"url": diary.url, "user": USER, "password": {"env": "DIARY_PASSWORD"}, "person": "ann", "sends": "server"}


def mailbox_of(imap: Imap) -> dict[str, object]:
    """The same of the mailbox."""
    return account_at(imap.port, imap.user, writes_as=[USER])


SECRETS: Final = {"DIARY_PASSWORD": PASSWORD, SECRET: MAIL_PASSWORD}


def next_day(weekday: int, today: date) -> date:
    """The next day with this weekday (Monday is 0), tomorrow at the earliest."""
    return today + timedelta(days=(weekday - today.weekday() - 1) % 7 + 1)
