"""Three persons with an address book each, and every way in which one may ask for what is in another's.

Messages are accepted, routed, answered and settled as in production; the model and the planner look for everybody. Each
way is also that of a task which is made in it, and is due later.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from switchboard.app.front_door import WorkerFrontDoor
from switchboard.app.ops.modules import make_trial_modules
from switchboard.app.runtime import Runtime
from switchboard.app.settings import Settings
from switchboard.core.calls import CALL_CHANNEL, WantedCall, call_message
from switchboard.core.people.handle import handle_at
from switchboard.core.people.known import NOBODY
from switchboard.core.routing.decide import decide
from switchboard.core.routing.facts import facts
from switchboard.core.uuid7 import uuid7_time
from switchboard.domain.message import RequestId
from switchboard.modules.contacts.keys import name_digest
from switchboard.modules.contacts.manifest import MANIFEST
from switchboard.modules.contacts.mirror import CardKeeper
from switchboard.modules.mirror.kept import collections_in, write_object
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
from switchboard.store.people import people
from switchboard.testing.scripted_llm import Call
from switchboard.tools.toolsets import Toolsets
from tests.dav_servers import card
from tests.hands import settled
from tests.integration.test_front_door import firing, scope_of
from tests.integration.test_person_walls import LINKED, SAME, SECRETS, WAYS, Message, link_all, telegram
from tests.integration.test_remembering import CLERK, PLANNER, House, a_house
from tests.lab import TRUSTING, Lab, submission
from tests.trios import plan, tool
from tests.waiting import eventually
from tests.width import pairs, wide

HOUSEHOLD: Final = "foxes"
"""In the address book of the family, of which Ann and Bob are members."""
FAMILY: Final = frozenset({"ann", "bob"})
OWNERS: Final = {**{one: f"person:{one}" for one in SECRETS}, "home": "group:family"}
BOOKS: Final = {**SECRETS, "home": HOUSEHOLD}
"""What each account has, by its name."""
LOGIN: Final = {"url": "https://dav.example", "user": "u", "password": {"env": "NO_SUCH_VARIABLE"}}
ACCOUNTS: Final = {
    **{one: {**LOGIN, "person": one} for one in SECRETS},
    "home": {**LOGIN, "group": "family"},
}
TOOLS: Final = [tool.spec.name for tool in MANIFEST.tools]
ASKED_FOR: Final[list[tuple[str, dict[str, str]]]] = [
    ("contacts_resolve", {"who": "keeper"}),
    *(("contacts_get", {"contact": f"{account}/friends/{account}.vcf"}) for account in BOOKS),
]
ASKED: Final = [Call(name, arguments) for name, arguments in ASKED_FOR]


async def fill_books(database: Database) -> ModuleStores:
    assert await migrate_modules(database, [MANIFEST]) == {}
    stores = await open_stores(database, MANIFEST)
    for account, word in BOOKS.items():
        store, path = stores(account), f"/{account}/friends"
        await store.run("origins.note", LOGIN["url"], LOGIN["user"], OWNERS[account])
        await store.run("collections.find", path, f"https://dav.example{path}/", "Friends", True, "", "")
        written = card(f"Keeper {word}", f"NOTE:{word}", f"EMAIL:{word}@example.org", uid=word)
        await write_object(store, path, ServerObject(f"{account}.vcf", '"1"', written), "", CardKeeper())
    return stores


def runtime_of(parts: Lab, place: Path) -> Runtime:
    settings = Settings(data_dir=place, modules={"contacts": {"accounts": ACCOUNTS}})
    return Runtime(settings, parts.database, parts.notifier, parts.rule_book, TRUSTING)


@asynccontextmanager
async def a_house_with_books(url: str, place: Path) -> AsyncIterator[tuple[House, WorkerFrontDoor]]:
    runtimes: list[Runtime] = []

    def toolset(parts: Lab) -> Toolset:
        runtimes.append(runtime_of(parts, place))
        return Toolsets(make_trial_modules(runtimes[0]))

    steps = [tool(f"s{n}", name, **arguments) for n, (name, arguments) in enumerate(ASKED_FOR[:2], 1)]
    grants = {"others": TOOLS, "groups": TOOLS, "household": TOOLS}
    options: dict[str, Any] = {"grants": grants, "modules": ["contacts"]}
    async with a_house(url, place, plan(*steps), toolset, **options) as house:
        await fill_books(house.parts.database)
        yield house, WorkerFrontDoor(runtimes[0])
        await runtimes[0].closing.aclose()


def words_in(text: str) -> set[str]:
    return {word for word in BOOKS.values() if word in text}


async def heard(house: House, message: Message) -> set[str]:
    """What the tools told; of a plan, what was made of that."""
    house.clerk.prompts.clear()
    house.clerk.results.clear()
    said = await house.say("Whom do I know?", ASKED, **message)
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
    found = await door.submit(firing(origin, "Whom do I know?", task_id=f"task-{number}"))
    await eventually(lambda: settled(house.parts), within=60)
    said = await house.parts.replies_to(found.request_id)
    planned = known["pinned"] == PLANNER
    return words_in("\n".join((*said, *house.clerk.prompts) if planned else house.clerk.results))


async def called(house: House, person: str | None, asked: tuple[str, dict[str, str]], *, by_operator: bool) -> set[str]:
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
async def test_no_person_sees_into_anothers_address_book_whichever_way_they_ask(
    database_url: str, tmp_path: Path
) -> None:
    tried = due = 0
    async with a_house_with_books(database_url, tmp_path) as (house, door):
        database = house.parts.database
        for linked in (False, True):
            if linked:
                await link_family(house)
            for person, (name, way) in pairs([*SECRETS], WAYS.items(), linked):
                own = own_words(person) if linked and (name in SAME or name in LINKED) else set()
                assert await heard(house, way(person)) == own, (person, name, linked)
                later = await heard_when_due(house, door, way(person), tried)
                assert later in (own, None), (person, name, linked)
                tried += len(BOOKS) - len(own)
                due += 0 if later is None else len(BOOKS) - len(own)
            callers: tuple[str | None, ...] = (*SECRETS, None, "eve")
            for caller, by_operator in ((one, it) for one in callers for it in (False, True)):
                own = {HOUSEHOLD} if caller is None else own_words(caller) if linked and caller in SECRETS else set()
                for number, asked in enumerate(ASKED_FOR):
                    told = await called(house, caller, asked, by_operator=by_operator)
                    assert told <= own, (caller, by_operator, asked)
                    assert number or told == own, (caller, by_operator)
                    tried += len(BOOKS) - len(own)
        await unlink(database, "ann", "telegram")
        assert await heard(house, telegram("ann")) == set()
    assert (tried >= wide(400, 200), due >= wide(200, 60)) == (True, True), (tried, due)


async def link_family(house: House) -> None:
    """Each person under a handle of Telegram, of mail and of calls, and under names that anybody may take."""
    await link_all(house)
    database = house.parts.database
    async with database.transaction() as one:
        await people.begin_change(one)
        for person in SECRETS:
            assert await people.link(one, person, handle_at(CALL_CHANNEL, "", person), "operator")
        for person in FAMILY:
            await people.join_group(one, person, "family")


async def unlink(database: Database, person: str, channel: str) -> None:
    async with database.transaction() as one:
        await people.begin_change(one)
        await one.run("delete from person_handle where person_id = $1 and channel = $2", person, channel)


# What the clauses are for ---------------------------------------------------------------------------------------------


_KEEPER: Final[tuple[object, ...]] = ([], ["keeper"], "\U0010ffff", name_digest(["keeper"]), 200)
"""What asks for all who are called so."""


async def observe(stores: ModuleStores) -> list[set[str]]:
    """What each query that reads shows of all accounts to the store of Bob's."""
    bob = stores("bob")
    paths, names = [f"/{account}/friends" for account in BOOKS], [f"{account}.vcf" for account in BOOKS]
    rows = [
        await bob.rows("people.candidates", *_KEEPER),
        await bob.rows("people.cards_of", paths, names),
        await bob.rows("objects.of_uid", HOUSEHOLD),
        await bob.rows("people.of_person", [*OWNERS.values()]),
    ]
    return [words_in(str(one)) for one in rows]


@pytest.mark.parametrize("name", ["people.candidates", "people.cards_of", "people.of_person"])
async def test_without_the_account_a_query_tells_of_others(
    database: Database, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    stores = await fill_books(database)
    own = await observe(stores)
    assert own == [{SECRETS["bob"]}] * 2 + [set(), {SECRETS["bob"]}]
    usual = stores.find_query

    def changed(asked: str) -> str:
        sql = usual(asked).strip().rstrip(";")
        if asked != name:
            return sql
        assert ".account = $1" in sql
        return f"select * from ({sql.replace('.account = $1', '.account is not null')}) x where $1::text is not null"  # noqa: S608

    monkeypatch.setattr(stores, "find_query", changed)
    assert await observe(stores) != own


async def test_the_mirror_of_a_person_is_handed_out_and_erased_and_nobody_elses(database: Database) -> None:
    stores = await fill_books(database)
    assert MANIFEST.personal is not None
    keeper = ModulePersonal(database, MANIFEST, MANIFEST.personal)
    chores = ChoreTable(database, "here:1")
    for account in BOOKS:
        await chores.plan(ChoreKey("contacts", account, "sync"), 900.0)
    scope = PersonalScope("ann", (), ("telegram/bot%3Ahouse/ann",))
    [item] = [one async for one in keeper.export(scope)]
    assert (item["account"], item["book"], words_in(str(item["card"]))) == ("ann", "Friends", {SECRETS["ann"]})
    assert [await keeper.count(scope), await keeper.erase(scope), await keeper.erase(scope)] == [1, 1, 0]
    left = await database.rows("select data::text as data, account from switchboard_contacts.object")
    assert {row["account"] for row in left} == {*BOOKS} - {"ann"}
    assert await stores("ann").rows("people.candidates", *_KEEPER) == []
    assert await stores("ann").rows("origins.find") == [], "it has the name of the user at the server"
    assert await collections_in(stores("ann")) == (), "the next sync fetches everything"
    assert await keeper.count(PersonalScope("family", (), ())) == 0
