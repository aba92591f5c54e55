"""What calls of tools see of calendars: whose accounts, which dates of a range, and how current they are.

`opened.py` calls it for each tool. In: the scope of a call and an `AskedRange`; out: `FoundDate`s, the same for what is
in the table and for what is expanded on demand. How much is told of a date is decided in SQL (`occurrences.sql`), by
what `modules/accounts/walls.py` says is seen of its account. Next: `answers.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from hashlib import md5
from time import monotonic
from typing import Any, Final
from zoneinfo import ZoneInfo

from msgspec import Struct, convert

from switchboard.modules.accounts.settings import DavAccount
from switchboard.modules.accounts.walls import Sight, accounts_seen, why_nothing
from switchboard.modules.calendar.busy import busyness_of, own_answer
from switchboard.modules.calendar.days import AskedRange
from switchboard.modules.calendar.events import read_object
from switchboard.modules.calendar.expansion import ExpansionWindow, Occurrence, expand_object
from switchboard.modules.calendar.occurrences import addresses_of, zone_of_calendar
from switchboard.modules.calendar.rules import Budget
from switchboard.modules.calendar.syncing import SYNC_EVERY_S
from switchboard.modules.mirror.kept import is_stale
from switchboard.modules.mirror.origins import NOT_READ_YET, own_mirrors_of
from switchboard.ports.module_store import ModuleStore
from switchboard.ports.people_seen import PeopleSeen, SeenPerson
from switchboard.ports.tools import ToolScope

MAX_DATES: Final = 1_000
"""Of one account, in one answer."""
_MAX_RECURRING: Final = 500
_ON_DEMAND_S: Final = 2.0


class CalendarRefusal(Exception):
    """The sentence that the model is told: why nothing was found, and what would be right."""


def as_sentence(text: str) -> str:
    """With a capital letter, and a full stop unless it ends as a question."""
    text = text.rstrip(".")
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('?') else '.'}"


class SeenAccount(Struct, frozen=True):
    """An account of which something is told. `own`: it is that of the person who asks, not a household's.

    `shared` are the calendars in it that belong to somebody else, who shares them.
    """

    name: str
    account: DavAccount
    store: ModuleStore
    sight: Sight
    own: bool
    shared: frozenset[str] = frozenset()

    @property
    def whose(self) -> str:
        """The id of the person, or the group."""
        return self.account.person or self.account.group


class CallerSight(Struct, frozen=True):
    """Who asks, and what they see."""

    seen: SeenPerson
    accounts: tuple[SeenAccount, ...]


class CalendarAccounts(Struct, frozen=True):
    """The accounts of the settings, their stores, and who knows people."""

    accounts: Mapping[str, DavAccount]
    store_of: Callable[[str], ModuleStore]
    people: PeopleSeen

    async def seen_by(self, scope: ToolScope) -> CallerSight:
        """What a call sees. Raises CalendarRefusal if that is nothing."""
        seen = await self.people.seen_in(scope)
        sights = accounts_seen(seen, self.accounts, busy=True)
        if not sights:
            raise CalendarRefusal(why_nothing(seen, self.accounts))
        theirs = await own_mirrors_of({name: self.accounts[name] for name in sights}, self.store_of)
        if not theirs:
            raise CalendarRefusal(NOT_READ_YET)
        found = [
            SeenAccount(name, self.accounts[name], self.store_of(name), sights[name], self._is_own(seen, name), shared)
            for name, shared in theirs.items()
        ]
        return CallerSight(seen, tuple(found))

    def _is_own(self, seen: SeenPerson, name: str) -> bool:
        return bool(seen.person) and self.accounts[name].person == seen.person


class FoundDate(Struct, frozen=True):
    """A date of an event, as much of it as is told. `same` is equal for one meeting in two calendars.

    What is only seen as `busy` has nothing but its time. Zoneless ones have no `starts`. `own`: it is in a calendar of
    the account's person, and not in one that others share.
    """

    same: str
    busy: str
    starts: datetime | None
    ends: datetime | None
    wall_start: datetime
    wall_end: datetime
    all_day: bool
    zone: str = ""
    zone_guessed: bool = False
    told: bool = False
    invited: bool = False
    uid: str = ""
    recurrence: str = ""
    calendar: str = ""
    title: str = ""
    location: str = ""
    notes: str = ""
    organizer: str = ""
    attendees: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    status: str = ""
    answer: str = ""
    own: bool = True

    def begins(self, zone: ZoneInfo) -> datetime:
        """For whoever is in the zone."""
        return (self.starts or self.wall_start.replace(tzinfo=zone)).astimezone(zone)

    def finishes(self, zone: ZoneInfo) -> datetime:
        """For whoever is in the zone."""
        return (self.ends or self.wall_end.replace(tzinfo=zone)).astimezone(zone)


class Freshness(Struct, frozen=True):
    """How current the mirror of an account is. `as_of` None: it has never been read whole."""

    as_of: datetime | None
    complete: bool
    stale: bool
    unreadable: int
    now: datetime


class AccountDates(Struct, frozen=True):
    """What was found in an account. `missing`: what of the range is not known, in a sentence."""

    account: SeenAccount
    dates: tuple[FoundDate, ...]
    freshness: Freshness
    missing: str = ""


async def dates_in(account: SeenAccount, asked: AskedRange, text: str = "", attendee: str = "") -> AccountDates:
    """The dates of a range, in order; those outside the table's span are expanded. Raises CalendarRefusal for many."""
    whole = ExpansionWindow(*_ends_of(asked))
    patterns = [f"%{_escape_like(word)}%" for word in text.lower().split()]
    async with account.store.transaction() as one:
        rows = await one.rows(
            "occurrences.within",
            account.sight,
            account.own,
            whole.since,
            whole.until,
            *asked.walls,
            patterns,
            f"%{_escape_like(attendee.strip().lower())}%" if attendee.strip() else "",
            asked.zone.key,
            MAX_DATES + 1,
        )
        [state] = await one.rows("occurrences.state")
    found = {(one.same, one.calendar, one.wall_start): one for one in (_date_of(row) for row in rows)}
    missing = ""
    for part in _outside_span(state, whole):
        if account.sight != "all":
            missing = "It is only known from 30 days ago to 400 days ahead when others are busy."
            continue
        more, missing = await _expand_on_demand(account, part)
        wanted = (one for one in more if _has_words(one, text, attendee) and _is_in(one, asked))
        found |= {(one.same, one.calendar, one.wall_start): one for one in wanted}
    if len(found) > MAX_DATES:
        raise CalendarRefusal(f"there are more than {MAX_DATES:,} dates in this range; ask for fewer days")
    ordered = sorted(found.values(), key=lambda one: (one.begins(asked.zone), one.same))
    return AccountDates(account, tuple(ordered), _freshness_of(state), missing)


def _ends_of(asked: AskedRange) -> tuple[datetime, datetime]:
    begin, end = asked.walls
    return begin.replace(tzinfo=asked.zone), end.replace(tzinfo=asked.zone)


def _escape_like(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_").replace("\0", "")


def _date_of(row: Mapping[str, Any]) -> FoundDate:
    return convert(dict(row), FoundDate)


def _freshness_of(state: Mapping[str, Any]) -> Freshness:
    as_of, now = state["as_of"], state["now"]
    stale = is_stale(as_of, now, SYNC_EVERY_S)
    return Freshness(as_of, complete=state["complete"], stale=stale, unreadable=state["unreadable"], now=now)


def _outside_span(span: Mapping[str, Any], whole: ExpansionWindow) -> Sequence[ExpansionWindow]:
    """The parts of a window for which what recurs is not in the table."""
    if span["since"] is None:
        return ()
    parts = (
        ExpansionWindow(whole.since, min(whole.until, span["since"])),
        ExpansionWindow(max(whole.since, span["until"]), whole.until),
    )
    return [one for one in parts if one.since < one.until]


async def _expand_on_demand(account: SeenAccount, window: ExpansionWindow) -> tuple[Sequence[FoundDate], str]:
    """What recurs, and why not all of it is here."""
    rows = await account.store.rows("occurrences.recurring", account.sight, account.own, _MAX_RECURRING + 1)
    found, whole = await asyncio.to_thread(_expand_rows, account, rows[:_MAX_RECURRING], window)
    if not whole or len(rows) > _MAX_RECURRING:
        return found, "There was no time to work out everything that recurs; ask for fewer days."
    return found, ""


def _expand_rows(
    account: SeenAccount, rows: Iterable[Mapping[str, Any]], window: ExpansionWindow
) -> tuple[Sequence[FoundDate], bool]:
    found: list[FoundDate] = []
    until = monotonic() + _ON_DEMAND_S
    for row in rows:
        if monotonic() > until or len(found) > MAX_DATES:
            return found, False
        budget = Budget()
        read = read_object(row["data"], zone_of_calendar(account.account, row["calendar_zone"]), budget)
        found += [_found_from(account, row, one) for one in expand_object(read, window, budget).occurrences]
    return found, True


def _found_from(account: SeenAccount, row: Mapping[str, Any], one: Occurrence) -> FoundDate:
    event, addresses = one.event, addresses_of(account.account)
    kept = busyness_of(event, addresses)
    same = md5(f"{event.uid}/{one.recurrence}".encode(), usedforsecurity=False).hexdigest()
    return FoundDate(
        same,
        "busy" if kept == "day" else kept,
        one.starts_at,
        one.ends_at,
        one.start.wall,
        one.wall_end,
        one.start.all_day,
        "" if one.start.zone is None else one.start.zone.name,
        one.start.zone is not None and one.start.zone.guessed,
        told=True,
        uid=event.uid,
        recurrence=one.recurrence,
        calendar=row["calendar"],
        title=event.title,
        location=event.place,
        notes=event.notes,
        organizer=event.organizer,
        attendees=tuple(f"{each.name} <{each.address}>" if each.name else each.address for each in event.attendees),
        answers=tuple(each.answer for each in event.attendees),
        status=event.status,
        answer=own_answer(event, addresses),
        own=row["own"],
    )


def _has_words(one: FoundDate, text: str, attendee: str) -> bool:
    sought = " ".join([one.title, one.location, one.notes, one.organizer]).lower()
    invited = " ".join(one.attendees).lower()
    return all(word in sought for word in text.lower().split()) and attendee.strip().lower() in invited


def _is_in(one: FoundDate, asked: AskedRange) -> bool:
    begin, end = _ends_of(asked)
    starts, ends = one.begins(asked.zone), one.finishes(asked.zone)
    return starts < end and (ends > begin or starts >= begin)
