"""What calendars are asked by, kept beside the mirror: the events of each object and when they take place.

The mirror calls `CalendarKeeper` in the transaction that keeps an object, the chore `window` calls `move_window` every
day; dates of what recurs are kept for -30 … +400 days, all others whenever they are. In: objects as the server has
them; out: rows, which `looking.py` asks for. Nothing in an object raises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Final
from zoneinfo import TZPATH

from msgspec import Struct

from switchboard.core.text.storable import storable_text
from switchboard.modules.accounts.settings import DavAccount
from switchboard.modules.calendar.busy import busyness_of, is_unaccepted, own_answer
from switchboard.modules.calendar.events import CalendarEvent, CalendarObject, read_object
from switchboard.modules.calendar.expansion import Expansion, ExpansionWindow, Occurrence, expand_object
from switchboard.modules.calendar.rules import Budget
from switchboard.modules.calendar.zones import UTC_ZONE, EventZone, zone_named
from switchboard.ports.module_store import ModuleStore

BEFORE: Final = timedelta(days=30)
AFTER: Final = timedelta(days=400)
WINDOW_EVERY_S: Final = 86_400.0
_ALWAYS: Final = ExpansionWindow(datetime(1700, 1, 1, tzinfo=UTC), datetime(8900, 1, 1, tzinfo=UTC))
_BATCH: Final = 50
_Row = tuple[object, ...]


class KeptEvents(Struct, frozen=True):
    """The rows of an object: `events`, their `dates` in columns, and why some of it cannot be read."""

    events: tuple[_Row, ...]
    dates: tuple[list[object], ...]
    problem: str


class CalendarKeeper:
    """`MirrorKeeper` of the events of an account."""

    def __init__(self, account: DavAccount) -> None:
        self._account = account

    async def on_kept(self, store: ModuleStore, collection: str, name: str, data: bytes) -> str:
        """Of what cannot be read nothing is kept but the reason."""
        rows = await store.rows("occurrences.around", collection)
        around = rows[0] if rows else {}
        window = window_at(around.get("now") or datetime.now(UTC))
        if around.get("since") is None:
            await store.run("occurrences.set_span", window.since, window.until, "")
        else:  # while the window is being moved, an object has the dates of both
            window = ExpansionWindow(min(window.since, around["since"]), max(window.until, around["until"]))
        return await self.keep(store, (collection, name), data, window, around.get("zone", ""))

    async def keep(
        self, store: ModuleStore, place: tuple[str, str], data: bytes, window: ExpansionWindow, calendar_zone: str
    ) -> str:
        """Write the rows of an object again. Returns why some of it cannot be read."""
        zone = zone_of_calendar(self._account, calendar_zone)
        kept = await asyncio.to_thread(rows_of_object, data, zone, window, addresses_of(self._account))
        await store.run("occurrences.forget", *place)
        for row in kept.events:
            await store.run("occurrences.find_events", *place, *row)
        if kept.dates:
            await store.run("occurrences.find_dates", *place, *kept.dates)
        return kept.problem

    async def on_gone(self, store: ModuleStore, collection: str, name: str) -> None:
        """Nothing of it takes place any more."""
        await store.run("occurrences.forget", collection, name)

    async def on_erased(self, store: ModuleStore) -> None:
        """What was written for somebody else is not undone by whoever has the name now."""
        await store.run("writes.erase")
        await store.run("mails.erase")
        await store.run("occurrences.forget_span")


def addresses_of(account: DavAccount) -> frozenset[str]:
    """The addresses under which the person of an account is invited."""
    own = (account.user, *account.addresses)
    return frozenset(one.strip().lower() for one in own if "@" in one)


def zone_of_calendar(account: DavAccount, calendar_zone: str) -> EventZone:
    """The calendar's zone, else that of the account's settings, else UTC: for times whose own zone is unknown."""
    return zone_named(calendar_zone) or zone_named(account.zone) or UTC_ZONE


def window_at(now: datetime) -> ExpansionWindow:
    """The window of a day."""
    today = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return ExpansionWindow(today - BEFORE, today + AFTER)


def rows_of_object(data: bytes, zone: EventZone, window: ExpansionWindow, addresses: Collection[str]) -> KeptEvents:
    """The rows of an object; its events are numbered in the order in which they stand."""
    budget = Budget()
    found = read_object(data, zone, budget)
    expansion = expand_object(found, window if does_recur(found) else _ALWAYS, budget)
    places: dict[int, int] = {}
    events: list[_Row] = []
    for series in found.series:
        if series.uid not in expansion.problems:
            for event in filter(None, (series.master, *series.overrides)):
                places[id(event)] = len(events)
                repeated = series.master is not None and bool(series.master.recurs)
                events.append((len(events), *_event_row(event, repeated, addresses)))
    rows = [
        _date_row(places[id(one.event)], one)
        for one in expansion.occurrences
        if one.event.uid not in expansion.problems
    ]
    return KeptEvents(tuple(events), tuple(map(list, zip(*rows, strict=True))), problem_of(expansion))


def does_recur(found: CalendarObject) -> bool:
    """Whether anything in an object has dates by a rule."""
    return any(one.master is not None and one.master.recurs for one in found.series)


def problem_of(expansion: Expansion) -> str:
    """Why some of an object cannot be read; empty if all of it can."""
    said = [f"{uid}: {why}" if uid else why for uid, why in expansion.problems.items()]
    return storable_text("; ".join(said[:5]))[:500]


def _event_row(event: CalendarEvent, repeated: bool, addresses: Collection[str]) -> _Row:
    texts = [event.title, event.place, event.notes, event.organizer]
    title, place, notes, organizer = map(storable_text, texts)
    attendees = [storable_text(f"{one.name} <{one.address}>" if one.name else one.address) for one in event.attendees]
    return (
        storable_text(event.uid),
        repeated,
        title,
        place,
        notes,
        organizer,
        [one.lower() for one in attendees],
        [storable_text(one.answer) for one in event.attendees],
        event.status,
        storable_text(own_answer(event, addresses)),
        event.secrecy != "PUBLIC",
        is_unaccepted(event, addresses),
        busyness_of(event, addresses),
        " ".join([title, place, notes, organizer]).lower(),
    )


def _date_row(place: int, one: Occurrence) -> _Row:
    zone = one.start.zone
    return (
        place,
        one.recurrence,
        one.starts_at,
        one.ends_at,
        one.start.wall,
        one.wall_end,
        one.start.all_day,
        "" if zone is None else storable_text(zone.name)[:100],
        zone is not None and zone.guessed,
    )


async def move_window(account: DavAccount, store: ModuleStore) -> None:
    """Bring the dates of an account to today's window, and all of them to the rules of time zones as they are now.

    What leaves the window leaves the span first, and what enters it is in the span last: it is never said to be known
    when it is not.
    """
    [row] = await store.rows("occurrences.span")
    window, rules = window_at(row["now"]), zone_rules()
    if (row["since"], row["until"], row["rules"]) == (window.since, window.until, rules):
        return
    until = row["until"] or window.until
    shrunk = (max(window.since, row["since"] or window.since), min(until, window.until))
    await store.run("occurrences.set_span", *shrunk, row["rules"])
    await _keep_again(CalendarKeeper(account), store, window, all_of_them=row["rules"] != rules)
    await store.run("occurrences.set_span", window.since, window.until, rules)


async def _keep_again(
    keeper: CalendarKeeper, store: ModuleStore, window: ExpansionWindow, *, all_of_them: bool
) -> None:
    after = ("", "")
    while True:
        async with store.transaction() as one:
            rows = await one.rows("occurrences.to_move", *after, all_of_them, _BATCH)
            for row in rows:
                after = (row["collection"], row["name"])
                await keeper.keep(one, after, row["data"], window, row["zone"])
        if len(rows) < _BATCH:
            return


def zone_rules() -> str:
    """What differs when the rules of time zones do: the versions of the system's and of the package's."""
    said = [version("tzdata")]
    for directory in TZPATH:
        file = Path(directory) / "tzdata.zi"
        if file.is_file():
            with file.open(encoding="utf-8", errors="replace") as lines:
                said.append(lines.readline().strip()[:40])
            break
    return " ".join(said)
