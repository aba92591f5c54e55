"""Three persons with a calendar each, and every way in which one may ask for the titles in another's.

Messages are accepted, routed, answered and settled as in production; the model and the planner ask for the whole day.
Each way is also that of a task which is made in it, and is due later. Bob may see when Ann is busy, and no word of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec import convert

from switchboard.app.front_door import WorkerFrontDoor
from switchboard.app.ops.modules import make_trial_modules
from switchboard.app.runtime import Runtime
from switchboard.app.settings import Settings
from switchboard.core.calls import CALL_CHANNEL, WantedCall, call_message
from switchboard.core.people.known import NOBODY
from switchboard.core.routing.decide import decide
from switchboard.core.routing.facts import facts
from switchboard.core.uuid7 import uuid7_time
from switchboard.domain.message import RequestId
from switchboard.modules.accounts.settings import DavAccount
from switchboard.modules.calendar.manifest import MANIFEST
from switchboard.modules.calendar.occurrences import CalendarKeeper
from switchboard.modules.mirror.kept import write_object
from switchboard.modules.mirror.origins import claim_mirror
from switchboard.ports.chores import ChoreKey
from switchboard.ports.collection_server import ServerObject
from switchboard.ports.people import PersonalScope
from switchboard.ports.tools import Toolset
from switchboard.store.database import Database
from switchboard.store.ids import new_uuid7
from switchboard.store.messages import inbox
from switchboard.store.messages.inbox import Arrival
from switchboard.store.modules.chores import ChoreTable
from switchboard.store.modules.migrations import migrate_modules
from switchboard.store.modules.personal import ModulePersonal
from switchboard.store.modules.stores import ModuleStores, open_stores
from switchboard.testing.scripted_llm import Call
from switchboard.tools.toolsets import Toolsets
from tests.calendars import event
from tests.hands import settled
from tests.integration.test_contacts_walls import link_family, unlink
from tests.integration.test_front_door import firing, scope_of
from tests.integration.test_person_walls import LINKED, SAME, SECRETS, WAYS, Message, telegram
from tests.integration.test_remembering import CLERK, PLANNER, House, a_house
from tests.lab import TRUSTING, Lab, submission
from tests.trios import plan, tool
from tests.waiting import eventually
from tests.width import pairs, wide

HOUSEHOLD: Final = "foxes"
"""In the calendar of the family, of which Ann and Bob are members."""
NOBODYS: Final = "ravens"
"""In a private event of that calendar: no person is the one whose account it is."""
FAMILY: Final = frozenset({"ann", "bob"})
WORDS: Final = {**SECRETS, "home": HOUSEHOLD}
"""What each account has, by its name."""
LOGIN: Final[dict[str, Any]] = {"url": "https://dav.example", "user": "u", "password": {"env": "NO_SUCH_VARIABLE"}}
ACCOUNTS: Final[Mapping[str, dict[str, Any]]] = {
    **{one: {**LOGIN, "person": one} for one in SECRETS},
    "ann": {**LOGIN, "person": "ann", "busy_for": ["person:bob", "group:family"]},
    "home": {**LOGIN, "group": "family"},
}
TOOLS: Final = [tool.spec.name for tool in MANIFEST.tools]
LATIN: Final = "X-PLACE:Café"
"""A line that is not UTF-8."""
DAY: Final = f"{datetime.now(UTC) + timedelta(days=5):%Y-%m-%d}"
FAR: Final = f"{datetime.now(UTC) + timedelta(days=905):%Y-%m-%d}"
"""Outside the window: what recurs is expanded on demand."""
ASKED_FOR: Final[list[tuple[str, dict[str, Any]]]] = [
    ("calendar_query", {"day": DAY}),
    ("calendar_free_busy", {"day": DAY, "who": "ann"}),
    ("calendar_query", {"day": FAR}),
    ("calendar_query", {"day": DAY, "text": "keeper"}),
]
CALLED: Final[list[tuple[str, dict[str, Any]]]] = [
    *ASKED_FOR,
    ("calendar_list", {}),
    ("calendar_find_slots", {"day": DAY, "minutes": 30}),
    *(("calendar_read_invitation", {"event": f"uid-{account}"}) for account in WORDS),
]
ASKED: Final = [Call(name, arguments) for name, arguments in ASKED_FOR]


async def fill_calendars(database: Database) -> ModuleStores:
    assert await migrate_modules(database, [MANIFEST]) == {}
    stores = await open_stores(database, MANIFEST)
    for account, word in WORDS.items():
        path = f"/{account}/{word}"
        described = (f"https://dav.example{path}/", f"Of {word}", True, "", "")
        await claim_mirror(stores(account), account_of(account), CalendarKeeper(account_of(account)))
        await stores(account).run("collections.find", path, *described)
        await stores(account).run("collections.finish", path, "cursor", True, True)
        recurs = (f"DTSTART:{DAY.replace('-', '')}T090000Z", "DURATION:PT1H", "RRULE:FREQ=DAILY", f"LOCATION:{word}")
        await keep(stores, account, f"uid-{account}", f"SUMMARY:Keeper {word}", *recurs)
    secret = ("CLASS:PRIVATE", f"DTSTART:{DAY.replace('-', '')}T090000Z", "RRULE:FREQ=DAILY")
    await keep(stores, "home", "uid-private", f"SUMMARY:Keeper {NOBODYS}", *secret)
    return stores


def account_of(name: str) -> DavAccount:
    return convert(ACCOUNTS[name], DavAccount)


async def keep(stores: ModuleStores, account: str, uid: str, *lines: str) -> None:
    keeper = CalendarKeeper(account_of(account))
    data = event(f"UID:{uid}", *lines).replace(LATIN.encode(), LATIN.encode("latin-1"))
    written = ServerObject(f"{uid}.ics", '"1"', data)
    await write_object(stores(account), f"/{account}/{WORDS[account]}", written, "", keeper)


def runtime_of(parts: Lab, place: Path) -> Runtime:
    settings = Settings(data_dir=place, modules={"calendar": {"accounts": ACCOUNTS}})
    return Runtime(settings, parts.database, parts.notifier, parts.rule_book, TRUSTING)


@asynccontextmanager
async def a_house_with_calendars(url: str, place: Path) -> AsyncIterator[tuple[House, WorkerFrontDoor]]:
    runtimes: list[Runtime] = []

    def toolset(parts: Lab) -> Toolset:
        runtimes.append(runtime_of(parts, place))
        return Toolsets(make_trial_modules(runtimes[0]))

    steps = [tool(f"s{n}", name, **arguments) for n, (name, arguments) in enumerate(ASKED_FOR[:2], 1)]
    grants = {"others": TOOLS, "groups": TOOLS, "household": TOOLS}
    options: dict[str, Any] = {"grants": grants, "modules": ["calendar"]}
    async with a_house(url, place, plan(*steps), toolset, **options) as house:
        await fill_calendars(house.parts.database)
        yield house, WorkerFrontDoor(runtimes[0])
        await runtimes[0].closing.aclose()


def words_in(text: str) -> set[str]:
    return {word for word in (*WORDS.values(), NOBODYS) if word in text}


async def heard(house: House, message: Message) -> set[str]:
    """What the tools told, of long results the beginning; of a plan, what was made of that."""
    house.clerk.prompts.clear()
    house.clerk.results.clear()
    said = await house.say("What is on?", ASKED, **message)
    planned = message.get("pinned") == PLANNER
    return words_in("\n".join((said, *house.clerk.prompts) if planned else house.clerk.results))


async def heard_when_due(house: House, door: WorkerFrontDoor, message: Message, number: int) -> set[str] | None:
    """The same in the turn of a task that was made in the turn of this message; None: there can be no task."""
    known = {"sender": "ann", "chat_type": "private", "pinned": CLERK, **message}
    accepted = await house.parts.accept.accept(submission("Later.", **known))
    await eventually(lambda: settled(house.parts), within=60)
    stored = await inbox.get_message(house.parts.database, accepted.request_id)
    assert stored is not None
    origin = await door.origin(scope_of(accepted.request_id, stored.conversation, known["pinned"]))
    if origin is None:
        return None
    house.clerk.prompts.clear()
    house.clerk.results.clear()
    house.clerk.calls = [*ASKED]
    found = await door.submit(firing(origin, "What is on?", task_id=f"task-{number}"))
    await eventually(lambda: settled(house.parts), within=60)
    said = await house.parts.replies_to(found.request_id)
    planned = known["pinned"] == PLANNER
    return words_in("\n".join((*said, *house.clerk.prompts) if planned else house.clerk.results))


async def called(house: House, person: str | None, asked: tuple[str, dict[str, Any]], *, by_operator: bool) -> set[str]:
    """What a call outside a turn is answered: by the token of an MCP client, or by an operator at a terminal."""
    request_id = RequestId(new_uuid7())
    wanted = WantedCall(*asked, CLERK, person, caller="laptop", by_operator=by_operator)
    message = call_message(wanted, request_id, uuid7_time(request_id))
    known = facts(message.envelope, CALL_CHANNEL, None, NOBODY.find_sender)
    decision = decide(house.parts.rule_book.rules.index, known, CLERK)
    await inbox.accept(house.parts.database, [Arrival(message, decision, CLERK)])
    await eventually(lambda: settled(house.parts), within=60)
    return words_in("\n".join(await house.parts.replies_to(request_id)))


def own_words(person: str) -> set[str]:
    return {SECRETS[person], *([HOUSEHOLD] if person in FAMILY else [])}


@pytest.mark.timeout(240)
async def test_no_person_reads_anothers_calendar_whichever_way_they_ask(database_url: str, tmp_path: Path) -> None:
    tried = due = told_own = 0
    async with a_house_with_calendars(database_url, tmp_path) as (house, door):
        for linked in (False, True):
            if linked:
                await link_family(house)
            for person, (name, way) in pairs([*SECRETS], WAYS.items(), linked):
                own = own_words(person) if linked and (name in SAME or name in LINKED) else set()
                told = await heard(house, way(person))
                assert told <= own, (person, name, linked)
                later = await heard_when_due(house, door, way(person), tried)
                assert (later or set()) <= own, (person, name, linked)
                told_own += bool(told) + bool(later)
                tried += len(WORDS) - len(own)
                due += 0 if later is None else len(WORDS) - len(own)
            callers: tuple[str | None, ...] = (*SECRETS, None, "eve")
            callers_at = [(one, it) for one in callers for it in (False, True)]
            first, *others = CALLED
            for (caller, by_operator), asked in [
                *((by, first) for by in callers_at),
                *pairs(callers_at, others, linked),
            ]:
                own = {HOUSEHOLD} if caller is None else own_words(caller) if linked and caller in SECRETS else set()
                told = await called(house, caller, asked, by_operator=by_operator)
                assert told <= own, (caller, by_operator, asked)
                assert asked is not first or told == own, (caller, by_operator)
                tried += len(WORDS) - len(own)
        await unlink(house.parts.database, "ann", "telegram")
        assert await heard(house, telegram("ann")) == set()
    counted = (tried >= wide(300, 150), due >= wide(100, 30), told_own >= wide(12, 4))
    assert counted == (True, True, True), (tried, due, told_own)


# What the clauses are for ---------------------------------------------------------------------------------------------

ALL: Final = ("$2 = 'all'", "$2::text is not null")
SECRET: Final = ("(not e.secret or $3)", "($3::boolean is not null)")
ACCOUNT: Final = ("where o.account = $1", "where $1::text is not null")
CLAUSES: Final = (
    ("occurrences.within", ALL, "home", ("busy", False)),
    ("occurrences.within", SECRET, "home", ("all", False)),
    ("occurrences.within", (" and not e.invited", ""), "cem", ("all", True)),
    ("occurrences.within", ACCOUNT, "cem", ("all", True)),
    ("occurrences.recurring", ALL, "home", ("busy", True)),
    ("occurrences.recurring", SECRET, "home", ("all", False)),
    ("occurrences.recurring", ACCOUNT, "cem", ("all", True)),
    ("occurrences.of_uid", ALL, "home", ("busy", True)),
    ("occurrences.of_uid", SECRET, "home", ("all", False)),
    ("occurrences.of_uid", ACCOUNT, "cem", ("all", True)),
)
"""A query, a clause and what stands there instead, the account that is asked, and what is seen of it."""


async def observe(stores: ModuleStores, account: str, name: str, sight: tuple[str, bool]) -> list[set[str]]:
    """What a query shows, given what is seen of an account; with words that it searches for, too."""
    store = stores(account)
    since, until = datetime.now(UTC), datetime.now(UTC) + timedelta(days=8)
    walls = since.replace(tzinfo=None), until.replace(tzinfo=None)
    if name == "occurrences.within":
        found = [
            await store.rows(name, *sight, since, until, *walls, patterns, "", "UTC", 100)
            for patterns in ([], ["%ravens%"], ["%foxes%"])
        ]
        return [words_in(str(rows)) | ({"found"} if number and rows else set()) for number, rows in enumerate(found)]
    last = [100] if name == "occurrences.recurring" else []
    uids = ["uid-private", f"uid-{account}", "uid-ann"] if name == "occurrences.of_uid" else [""]
    arguments = [(*sight, *last)] if not uids[0] else [(*sight, uid) for uid in uids]
    return [words_in(str([dict(row) for row in await store.rows(name, *one)])) for one in arguments]


@pytest.mark.parametrize(("name", "clause", "account", "sight"), CLAUSES)
async def test_without_a_clause_a_query_tells_more(
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    clause: tuple[str, str],
    account: str,
    sight: tuple[str, bool],
) -> None:
    stores = await fill_calendars(database)
    guests = ("ORGANIZER:mailto:eve@evil.example", "ATTENDEE;PARTSTAT=NEEDS-ACTION:mailto:cem@home.example")
    times = (f"DTSTART:{DAY.replace('-', '')}T090000Z", f"SUMMARY:Keeper {NOBODYS}")
    await keep(stores, "cem", "uid-invited", *times, *guests)
    usual, whole = stores.find_query, await observe(stores, account, name, sight)

    def changed(asked: str) -> str:
        sql = usual(asked).strip().rstrip(";")
        if asked != name:
            return sql
        assert clause[0] in sql, sql
        return sql.replace(*clause)

    monkeypatch.setattr(stores, "find_query", changed)
    assert await observe(stores, account, name, sight) != whole


async def test_what_is_kept_of_a_person_is_exported_and_erased(database: Database) -> None:
    stores = await fill_calendars(database)
    assert MANIFEST.personal is not None
    keeper = ModulePersonal(database, MANIFEST, MANIFEST.personal)
    chores = ChoreTable(database, "here:1")
    for account in WORDS:
        await chores.plan(ChoreKey("calendar", account, "sync"), 300.0)
    scope = PersonalScope("ann", (), ("telegram/bot%3Ahouse/ann",))
    await keep(stores, "ann", "uid-ann", f"SUMMARY:Jürgens {SECRETS['ann']}", f"DTSTART:{DAY.replace('-', '')}", LATIN)
    [item] = [one async for one in keeper.export(scope)]
    text = str(item["event"])
    assert (f"SUMMARY:Jürgens {SECRETS['ann']}\r\n" in text, "Caf\\xe9\r\n" in text) == (True, True), text
    assert (item["account"], words_in(str(item["event"]))) == ("ann", {SECRETS["ann"]})
    assert [await keeper.count(scope), await keeper.erase(scope), await keeper.erase(scope)] == [1, 1, 0]
    left = await database.rows("select data::text as data, account from switchboard_calendar.object")
    assert {row["account"] for row in left} == {*WORDS} - {"ann"}
    kept = await database.rows("select distinct account from switchboard_calendar.occurrence")
    assert {row["account"] for row in kept} == {*WORDS} - {"ann"}
