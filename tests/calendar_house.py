"""The module of calendars over a real server behind a proxy, and the calls that persons make of its tools.

As a process, `main(DATABASE_URL, PORT, KEY, ARGUMENTS)` makes one call of `calendar_create`, and is killed by whoever
started it.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

import icalendar
from msgspec.structs import replace

from switchboard.domain.json_values import JsonObject
from switchboard.domain.message import Conversation
from switchboard.domain.routing import SystemId
from switchboard.modules.accounts.settings import DavAccount, PasswordPlace
from switchboard.modules.calendar.looking import CalendarAccounts
from switchboard.modules.calendar.manifest import MANIFEST
from switchboard.modules.calendar.opened import OpenCalendar
from switchboard.modules.calendar.syncing import sync_calendars
from switchboard.ports.contact_resolver import ContactResolver
from switchboard.ports.facts import Reader
from switchboard.ports.mail_desk import MailDesk, MailFate, OutgoingMail, QueuedMail
from switchboard.ports.module import ModuleTool
from switchboard.ports.people_seen import SeenPerson
from switchboard.ports.tools import PreparedCall, ToolOutcome, ToolScope
from switchboard.store.database import Database
from switchboard.store.modules.migrations import migrate_modules
from switchboard.store.modules.stores import open_stores
from tests.dav_servers import PASSWORD, USER, DavServer

DAY: Final = datetime.combine((datetime.now(UTC) + timedelta(days=10)).date(), time())
"""A day to come; its times are in Berlin."""


class EverybodySeen:
    """Whoever writes is who they say, and Ann is of the family."""

    async def seen_in(self, scope: ToolScope) -> SeenPerson:
        assert scope.reader is not None
        groups = frozenset({"family"}) if scope.reader.person == "ann" else frozenset[str]()
        return SeenPerson(scope.reader.person, groups, scope.reader.private)


class LetterBox:
    """A desk that keeps what is queued: each key once, as the real one does, and for senders that it knows."""

    def __init__(self, *senders: str) -> None:
        self.own = senders
        self.mails: dict[str, OutgoingMail] = {}

    async def senders(self) -> Sequence[str]:
        return self.own

    async def queue(self, mail: OutgoingMail, scope: ToolScope) -> QueuedMail:
        assert scope.reader is not None
        assert mail.sender in self.own
        duplicate = mail.key in self.mails
        self.mails.setdefault(mail.key, mail)
        return QueuedMail(uuid4(), "<x@home.example>", duplicate)

    async def state(self, key: str) -> MailFate | None:
        return MailFate("waiting", "<x@home.example>") if key in self.mails else None

    @property
    def sent(self) -> list[tuple[str, str]]:
        """To whom, and what, in order."""
        return [(mail.to[0], mail.calendar.method) for mail in self.mails.values() if mail.calendar is not None]


def scope_of(person: str = "ann", *, key: UUID | None = None, zone: str = "Europe/Berlin") -> ToolScope:
    """That of a call in a private conversation, which nobody has approved; without a key it is a new one."""
    reader = Reader(SystemId("System1/clerk"), Conversation("c"), person, private=True)
    return ToolScope(Path(), frozenset(), frozenset(), key or uuid4(), uuid4(), reader=reader, zone=zone)


def account_at(port: int, **more: Any) -> DavAccount:
    """An account on a server on this machine, Ann's if nothing else is said."""
    url = f"http://127.0.0.1:{port}/"
    whose: dict[str, Any] = {"person": "ann"} if "group" not in more else {}
    return DavAccount(url, USER, PasswordPlace(env="CALENDAR_PASSWORD"), **{**whose, **more})


class CalendarHouse:
    """The opened module, whose accounts can be changed."""

    def __init__(self, opened: OpenCalendar, server: DavServer) -> None:
        self.opened = opened
        self.server = server

    async def call(self, tool: str, by: ToolScope | None = None, **arguments: Any) -> ToolOutcome:
        """A call of a tool, as the kernel makes it."""
        return await _tool_named(tool).run(self.opened, arguments, by or scope_of())

    async def prepare(self, tool: str, by: ToolScope | None = None, **arguments: Any) -> PreparedCall | ToolOutcome:
        """What it would do."""
        prepare = _tool_named(tool).prepare
        assert prepare is not None
        return await prepare(self.opened, arguments, by or scope_of())

    async def approve(self, tool: str, by: ToolScope | None = None, /, **arguments: Any) -> ToolScope:
        """The scope of a call that a person has approved as it would be now."""
        scope = by or scope_of()
        prepared = await self.prepare(tool, scope, **arguments)
        assert isinstance(prepared, PreparedCall), prepared
        return replace(scope, approved=True, prepared=prepared)

    async def approved(self, tool: str, **arguments: Any) -> JsonObject:
        """What a call says that is approved, and then made."""
        return await self.done(tool, await self.approve(tool, **arguments), **arguments)

    async def done(self, tool: str, by: ToolScope | None = None, **arguments: Any) -> JsonObject:
        """What a call that succeeds says."""
        outcome = await self.call(tool, by, **arguments)
        assert outcome.ok, outcome.text
        found: JsonObject = json.loads(outcome.text)
        return found

    async def refused(self, tool: str, by: ToolScope | None = None, **arguments: Any) -> str:
        """Why a call does not succeed; preparing it says the same."""
        outcome = await self.call(tool, by, **arguments)
        assert not outcome.ok, outcome.text
        prepared = await self.prepare(tool, by, **arguments)
        assert isinstance(prepared, ToolOutcome), prepared
        assert prepared.text == outcome.text
        return outcome.text

    async def sync(self) -> None:
        """Bring the mirrors up to date, as the chore does."""
        for name, account in self.opened.held.accounts.items():
            await sync_calendars(name, account, self.opened.held.store_of(name))

    def events(self) -> list[tuple[str, str]]:
        """What is on the server: title and begin of each event, in order."""
        return sorted(seen for data in self.server.objects().values() for seen in _seen_in(data))

    def put(self, name: str, title: str, start: datetime, *more: str) -> bytes:
        """What another program writes, whatever is there."""
        data = foreign_event(name, title, start, *more)
        self.server.put(f"{name}.ics", data)
        return data


def _tool_named(name: str) -> ModuleTool:
    return next(one for one in MANIFEST.tools if one.spec.name == f"calendar_{name}")


def _seen_in(data: bytes) -> Sequence[tuple[str, str]]:
    events: Sequence[Any] = icalendar.Calendar.from_ical(data).walk("VEVENT")
    return [(str(one["SUMMARY"]), f"{one.start:%Y-%m-%d %H:%M}") for one in events]


def foreign_event(uid: str, title: str, start: datetime, *more: str) -> bytes:
    """An event of an hour in Berlin, as another program writes it."""
    end = start + timedelta(hours=1)
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//others//EN", "BEGIN:VEVENT", f"UID:{uid}"]
    lines += ["DTSTAMP:20260101T000000Z", f"DTSTART;TZID=Europe/Berlin:{start:%Y%m%dT%H%M%S}"]
    lines += [f"DTEND;TZID=Europe/Berlin:{end:%Y%m%dT%H%M%S}", f"SUMMARY:{title}", "X-OTHERS:kept", *more]
    return "\r\n".join([*lines, "END:VEVENT", "END:VCALENDAR", ""]).encode()


async def open_house(
    database: Database,
    server: DavServer,
    accounts: Mapping[str, DavAccount],
    contacts: ContactResolver | None = None,
    desk: MailDesk | None = None,
) -> CalendarHouse:
    """The module over a database, and its server."""
    opened = await open_calendar_over(database, accounts, contacts)
    return CalendarHouse(replace(opened, desk=desk), server.of_events())


async def open_calendar_over(
    database: Database, accounts: Mapping[str, DavAccount], contacts: ContactResolver | None = None
) -> OpenCalendar:
    """The opened module alone."""
    assert await migrate_modules(database, [MANIFEST]) == {}
    held = CalendarAccounts(accounts, await open_stores(database, MANIFEST), EverybodySeen())
    return OpenCalendar(held, contacts)


def main(arguments: Sequence[str]) -> None:
    """One call."""
    database_url, port, key, given = arguments
    assert os.environ["CALENDAR_PASSWORD"] == PASSWORD
    asyncio.run(_create_once(database_url, int(port), UUID(key), json.loads(given)))


async def _create_once(database_url: str, port: int, key: UUID, given: Mapping[str, Any]) -> None:
    database = await Database.connect(database_url, size=2)
    try:
        opened = await open_calendar_over(database, {"home": account_at(port)})
        outcome = await _tool_named("create").run(opened, given, scope_of(key=key))
        assert outcome.ok, outcome.text
    finally:
        await database.close()
