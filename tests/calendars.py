"""Calendars of three persons in the mirror, and the calls that they make of its tools. Nothing is connected to."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from switchboard.domain.json_values import JsonObject
from switchboard.domain.message import Conversation
from switchboard.domain.routing import SystemId
from switchboard.modules.accounts.settings import DavAccount, PasswordPlace
from switchboard.modules.calendar.looking import CalendarAccounts
from switchboard.modules.calendar.manifest import MANIFEST
from switchboard.modules.calendar.occurrences import CalendarKeeper
from switchboard.modules.calendar.opened import OpenCalendar
from switchboard.modules.mirror.kept import write_object
from switchboard.ports.collection_server import ServerObject
from switchboard.ports.facts import Reader
from switchboard.ports.module_store import ModuleStore
from switchboard.ports.people_seen import PeopleSeen
from switchboard.ports.tools import Cause, ToolOutcome, ToolScope
from switchboard.store.database import Database
from switchboard.store.modules.migrations import migrate_modules
from switchboard.store.modules.stores import open_stores

_PLACE: Final = ("https://dav.example", "someone", PasswordPlace(env="PASSWORD"))
ACCOUNTS: Final[Mapping[str, DavAccount]] = {
    "ann": DavAccount(*_PLACE, person="ann", busy_for=("person:bob",), addresses=("ann@home.example",)),
    "bob": DavAccount(*_PLACE, person="bob", addresses=("bob@home.example",), zone="America/New_York"),
    "family": DavAccount(*_PLACE, group="family", addresses=("family@home.example",)),
}
"""Bob may see when Ann is busy; Ann and Bob are the family; Eve is nobody's."""
CALENDAR: Final = "/calendar"


def event(*lines: str) -> bytes:
    """An object with one event; several are divided by a line `---`."""
    whole = "\r\n".join(("BEGIN:VCALENDAR", "VERSION:2.0", "BEGIN:VEVENT", *lines, "END:VEVENT", "END:VCALENDAR", ""))
    return whole.replace("\r\n---\r\n", "\r\nEND:VEVENT\r\nBEGIN:VEVENT\r\n").encode()


class Calendars:
    """The opened module, and what tests put into its mirror."""

    def __init__(self, opened: OpenCalendar) -> None:
        self.opened = opened

    def store(self, account: str) -> ModuleStore:
        """Of an account."""
        return self.opened.held.store_of(account)

    async def add_calendar(self, account: str, *, name: str = "Home", writable: bool = True, zone: str = "") -> str:
        """A calendar that has just been read whole; its path."""
        path = f"{CALENDAR}/{name}"
        store = self.store(account)
        await store.run("collections.find", path, f"http://127.0.0.1:1{path}/", name, writable, "", zone)
        await store.run("collections.finish", path, "cursor", True, True)
        return path

    async def put(self, account: str, data: bytes, *, name: str = "", calendar: str = f"{CALENDAR}/Home") -> None:
        """Keep an object, as the mirror does."""
        keeper = CalendarKeeper(self.opened.held.accounts[account])
        await write_object(
            self.store(account), calendar, ServerObject(name or f"{uuid4()}.ics", '"1"', data), "", keeper
        )

    async def call(self, tool: str, scope: ToolScope, **arguments: object) -> ToolOutcome:
        """A call of a tool, as the kernel makes it."""
        found = next(one for one in MANIFEST.tools if one.spec.name == f"calendar_{tool}")
        return await found.run(self.opened, arguments, scope)

    async def ask(self, tool: str, scope: ToolScope, **arguments: object) -> JsonObject:
        """What a call that succeeds says."""
        outcome = await self.call(tool, scope, **arguments)
        assert outcome.ok, outcome.text
        found: JsonObject = json.loads(outcome.text)
        return found

    async def titles(self, scope: ToolScope, **arguments: object) -> Sequence[Any]:
        """The titles that a query tells; None for what has none."""
        return [one.get("title") for one in (await self.ask("query", scope, **arguments))["events"]]


async def open_calendars(database: Database, people: PeopleSeen) -> Calendars:
    """The module over a database, with an empty calendar in each account."""
    assert await migrate_modules(database, [MANIFEST]) == {}
    calendars = Calendars(OpenCalendar(CalendarAccounts(ACCOUNTS, await open_stores(database, MANIFEST), people)))
    for account in ACCOUNTS:
        await calendars.add_calendar(account)
    return calendars


def scope_of(
    key: str, *, private: bool = True, authentic: bool = True, cause: Cause = "message", zone: str = "Europe/Berlin"
) -> ToolScope:
    """That of a call for somebody with a key such as `telegram/…`."""
    reader = Reader(SystemId("System1/clerk"), Conversation("c"), key, private, authentic)
    return ToolScope(Path(), frozenset(), frozenset(), uuid4(), uuid4(), reader=reader, cause=cause, zone=zone)
