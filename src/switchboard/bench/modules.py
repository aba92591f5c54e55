"""Measures how long the tools that look up people and dates take, and how long a first sync does, at several sizes.

Called by `switchboard bench modules`. In: sizes; out: frozen rows, which the CLI prints. Tools run as the kernel runs
them, but for who people are; each call is timed beside a select of one row through the same pool, and each sync beside
the bare reading of the same objects over HTTP. Next: `dav_server.py`, from which they are read.
"""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter
from typing import Any, Final
from uuid import uuid4

import httpx2
from msgspec import Struct

from switchboard.bench import lab
from switchboard.bench.dav_server import FIRST, TITLES, object_name, path_of_collection, person_name
from switchboard.domain.json_values import JsonMapping
from switchboard.modules.accounts.settings import DavAccount, PasswordPlace
from switchboard.modules.calendar.manifest import MANIFEST as CALENDAR
from switchboard.modules.calendar.opened import open_calendar
from switchboard.modules.calendar.settings import CalendarSettings
from switchboard.modules.calendar.syncing import sync_calendars
from switchboard.modules.contacts.manifest import MANIFEST as CONTACTS
from switchboard.modules.contacts.opened import open_contacts
from switchboard.modules.contacts.settings import ContactsSettings
from switchboard.modules.contacts.syncing import sync_contacts
from switchboard.ports.module import ModuleContext, ModuleManifest
from switchboard.ports.module_store import ModuleStore
from switchboard.ports.people_seen import PEOPLE, SeenPerson
from switchboard.ports.recent_writers import RECENT_WRITERS
from switchboard.ports.tools import ToolScope
from switchboard.store.database import Database
from switchboard.store.migrate import migrate
from switchboard.store.modules.migrations import migrate_modules
from switchboard.store.modules.stores import open_stores
from switchboard.testing.modules import FixedPeople, FixedWriters
from switchboard.transport.dav.kinds import CALDAV, CARDDAV, DavKind
from switchboard.transport.dav.multistatus import multiget_body, propfind_body

SIZES: Final = (2_000, 20_000)
GOAL_MS: Final = 15.0
"""Of the median call of a tool."""
_BATCH: Final = 50
"""Objects in one request, as in our client."""
_PERSON: Final = "ann"
_WARM: Final = 5

MakeArguments = Callable[[random.Random, int], JsonMapping]
"""The arguments of a call, for a number of objects."""


class LookUpTimes(Struct, frozen=True):
    """Milliseconds of calls of a tool, and of the selects between them."""

    what: str
    objects: int
    calls_ms: tuple[float, ...]
    selects_ms: tuple[float, ...]

    @property
    def p50_ms(self) -> float:
        """Of the calls."""
        return lab.percentile(self.calls_ms, 50)

    @property
    def p99_ms(self) -> float:
        """Of the calls."""
        return lab.percentile(self.calls_ms, 99)

    @property
    def ratio(self) -> float:
        """Of the median call to the median select."""
        return self.p50_ms / lab.percentile(self.selects_ms, 50)


class SyncTimes(Struct, frozen=True):
    """Seconds of a first sync, and of the bare reading of the same objects."""

    what: str
    objects: int
    sync_s: float
    reading_s: float

    @property
    def per_thousand_s(self) -> float:
        """Seconds for a thousand objects."""
        return self.sync_s * 1_000 / self.objects

    @property
    def ratio(self) -> float:
        """Of the sync to the reading."""
        return self.sync_s / self.reading_s


class ModulesResult(Struct, frozen=True):
    """All that was measured, in the order of the sizes."""

    look_ups: tuple[LookUpTimes, ...]
    syncs: tuple[SyncTimes, ...]


class MeasuredCall(Struct, frozen=True):
    """A kind of call of a tool that is timed."""

    tool: str
    what: str
    ask: MakeArguments


class MeasuredModule(Struct, frozen=True):
    """A module, how it is opened and filled, and the calls of its tools that are timed."""

    manifest: ModuleManifest
    kind: DavKind
    settings: Callable[[Mapping[str, DavAccount]], Any]
    open: Callable[[ModuleContext], Awaitable[Any]]
    sync: Callable[[str, DavAccount, ModuleStore], Awaitable[None]]
    calls: tuple[MeasuredCall, ...]


def _ask_half_a_name(chance: random.Random, objects: int) -> JsonMapping:
    given, family = person_name(chance.randrange(objects))
    return {"who": f"{given} {family[:5]}"}


def _ask_a_name(chance: random.Random, objects: int) -> JsonMapping:
    return {"who": " ".join(person_name(chance.randrange(objects)))}


def _ask_an_address(chance: random.Random, objects: int) -> JsonMapping:
    number = chance.randrange(objects)
    return {"who": f"{person_name(number)[0].lower()}.{number}@example.org"}


def _choose_first(chance: random.Random) -> str:
    return chance.choice(FIRST)


def _ask_a_word(chance: random.Random, _: int) -> JsonMapping:
    today = datetime.now(UTC).date()
    word = chance.choice(TITLES).lower()
    return {"day": str(today), "to": str(today + timedelta(days=30)), "text": word}


MEASURED: Final = (
    MeasuredModule(
        CONTACTS,
        CARDDAV,
        ContactsSettings,
        open_contacts,
        sync_contacts,
        (
            MeasuredCall("contacts_resolve", "a whole name", _ask_a_name),
            MeasuredCall("contacts_resolve", "half a name", _ask_half_a_name),
            MeasuredCall(
                "contacts_resolve", "a first name that many have", lambda chance, _: {"who": _choose_first(chance)}
            ),
            MeasuredCall("contacts_resolve", "an address", _ask_an_address),
            MeasuredCall(
                "contacts_resolve", "a number", lambda chance, size: {"who": f"030 {chance.randrange(size):07}"}
            ),
            MeasuredCall("contacts_resolve", "nobody", lambda chance, _: {"who": f"Quentin {chance.randrange(10**6)}"}),
            MeasuredCall(
                "contacts_search", "a first name that many have", lambda chance, _: {"text": _choose_first(chance)}
            ),
        ),
    ),
    MeasuredModule(
        CALENDAR,
        CALDAV,
        CalendarSettings,
        open_calendar,
        sync_calendars,
        (
            MeasuredCall("calendar_query", "today", lambda _, __: {"day": "today"}),
            MeasuredCall("calendar_query", "next week", lambda _, __: {"day": "next week"}),
            MeasuredCall("calendar_query", "a word in 30 days", _ask_a_word),
        ),
    ),
)


async def measure_modules(
    sizes: Sequence[int] = SIZES, calls: int = 200, modules: Sequence[MeasuredModule] = MEASURED
) -> ModulesResult:
    """Run it on a separate database; `calls` of each kind."""
    look_ups: list[LookUpTimes] = []
    syncs: list[SyncTimes] = []
    with lab.home() as place:
        async with lab.database(place, 4) as database:
            await migrate(database)
            for module in modules:
                for size in sizes:
                    await migrate_modules(database, [module.manifest])
                    async with _server_of(size) as url:
                        found, times = await _measure_one(database, place, module, size, url, calls)
                    syncs.append(found)
                    look_ups += times
    return ModulesResult(tuple(look_ups), tuple(syncs))


@asynccontextmanager
async def _server_of(size: int) -> AsyncIterator[str]:
    async with lab.program(os.environ, "-m", "switchboard.bench.dav_server", str(size)) as (_, line, _):
        yield f"http://127.0.0.1:{int(line)}/"


async def _measure_one(
    database: Database, place: Path, module: MeasuredModule, size: int, url: str, calls: int
) -> tuple[SyncTimes, list[LookUpTimes]]:
    name = f"with-{size}"
    password = place / "password"
    password.write_text("none", encoding="ascii")
    account = DavAccount(url, _PERSON, PasswordPlace(file=password), person=_PERSON, region="DE", zone="Europe/Berlin")
    stores = await open_stores(database, module.manifest)
    reading_s = await _time_reading(module.kind, url, size)
    began = perf_counter()
    await module.sync(name, account, stores(name))
    synced = SyncTimes(f"{module.manifest.name}: first sync", size, perf_counter() - began, reading_s)
    await database.run("analyze")  # as autovacuum does within a minute
    people = FixedPeople(SeenPerson(_PERSON, private=True))
    needs = {PEOPLE: people, RECENT_WRITERS: FixedWriters(())}
    opened = await module.open(ModuleContext(module.settings({name: account}), stores, {}, needs))
    try:
        timing = _CallTiming(database, module, opened, name, size)
        return synced, [await timing.time_calls(one, calls, place) for one in module.calls]
    finally:
        await opened.aclose()


async def _time_reading(kind: DavKind, url: str, size: int) -> float:
    """Seconds of the requests that a first sync makes, by a client that does nothing with the answers."""
    collection = path_of_collection(kind)
    hrefs = [f"{collection}{object_name(kind, number)}" for number in range(size)]
    async with httpx2.AsyncClient(base_url=url, timeout=60, trust_env=False) as client:
        began = perf_counter()
        await _request_once(
            client, "PROPFIND", collection, propfind_body(kind, ["{DAV:}getetag", "{DAV:}resourcetype"])
        )
        for start in range(0, size, _BATCH):
            await _request_once(client, "REPORT", collection, multiget_body(kind, hrefs[start : start + _BATCH]))
        return perf_counter() - began


async def _request_once(client: httpx2.AsyncClient, method: str, path: str, body: bytes) -> None:
    (await client.request(method, path, content=body, headers={"depth": "1"})).raise_for_status()


class _CallTiming(Struct, frozen=True):
    """One module that is open, with an account of `size` objects."""

    database: Database
    module: MeasuredModule
    opened: Any
    account: str
    size: int

    async def time_calls(self, measured: MeasuredCall, calls: int, place: Path) -> LookUpTimes:
        """Each call is followed by a select."""
        chance = random.Random(measured.what)
        [tool] = [one for one in self.module.manifest.tools if one.spec.name == measured.tool]
        taken: list[float] = []
        selects: list[float] = []
        for number in range(_WARM + calls):
            scope = ToolScope(place, frozenset(), frozenset(), uuid4(), uuid4())
            arguments = measured.ask(chance, self.size)
            began = perf_counter()
            outcome = await tool.run(self.opened, arguments, scope)
            between = perf_counter()
            await self._select_one(chance.randrange(self.size))
            ended = perf_counter()
            if not outcome.ok:
                raise RuntimeError(f"{measured.tool} {arguments}: {outcome.text}")
            if number >= _WARM:
                taken.append((between - began) * 1000)
                selects.append((ended - between) * 1000)
        return LookUpTimes(f"{measured.tool}: {measured.what}", self.size, tuple(taken), tuple(selects))

    async def _select_one(self, number: int) -> None:
        """One object by its primary key."""
        kind = self.module.kind
        sql = f"select data from switchboard_{self.module.manifest.name}.object "  # noqa: S608 - it is ours
        sql += "where account = $1 and collection = $2 and name = $3"
        path = path_of_collection(kind).rstrip("/")
        [_] = await self.database.rows(sql, self.account, path, object_name(kind, number))
