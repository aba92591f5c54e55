"""The name of an account that is given to another person, user or server tells nothing of what was there before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from switchboard.modules.accounts.settings import DavAccount, PasswordPlace
from switchboard.modules.calendar.manifest import MANIFEST as CALENDAR
from switchboard.modules.contacts.callers import ContactAccounts, ContactsRefusal
from switchboard.modules.contacts.cards import CardChange
from switchboard.modules.contacts.looking import search_for
from switchboard.modules.contacts.manifest import MANIFEST as CONTACTS
from switchboard.modules.contacts.syncing import sync_contacts
from switchboard.modules.contacts.writing import prepare_create
from switchboard.modules.mirror.kept import collections_in
from switchboard.ports.chores import ChoreKey
from switchboard.ports.people import PersonalScope
from switchboard.store.database import Database
from switchboard.store.modules.chores import ChoreTable
from switchboard.store.modules.migrations import migrate_modules
from switchboard.store.modules.personal import ModulePersonal
from switchboard.store.modules.stores import open_stores
from tests.calendar_house import DAY, CalendarHouse, EverybodySeen, account_at, open_house, scope_of
from tests.dav_servers import PASSWORD, DavServer, card, radicale

ISO = f"{DAY:%Y-%m-%d}"
NOT_YET = "has not been read since"
OTHERS: dict[str, dict[str, Any]] = {
    "person": {"person": "bob"},
    "group": {"person": "", "group": "family"},
    "user": {"user": "bob@home.example"},
    "server": {"url": "http://localhost:1/"},
}
"""What an account becomes."""


@pytest.fixture(scope="module")
def server() -> Iterator[DavServer]:
    with radicale() as started:
        yield started


@pytest.fixture
async def house(database: Database, server: DavServer, monkeypatch: pytest.MonkeyPatch) -> CalendarHouse:
    monkeypatch.setenv("CALENDAR_PASSWORD", PASSWORD)
    server.of_events().empty()
    server.empty()
    opened = await open_house(database, server, {"home": account_at(server.port)})
    opened.put("old", "Secret", DAY)
    await opened.sync()
    return opened


async def changed(house: CalendarHouse, database: Database, **other: Any) -> CalendarHouse:
    """The same after a change of the settings."""
    [account] = house.opened.held.accounts.values()
    return await open_house(database, house.server, {"home": replace(account, **other)})


async def exported(database: Database, person: str) -> list[Any]:
    assert CALENDAR.personal is not None
    await ChoreTable(database, "here:1").plan(ChoreKey("calendar", "home", "sync"), 300.0)
    keeper = ModulePersonal(database, CALENDAR, CALENDAR.personal)
    return [one["name"] async for one in keeper.export(PersonalScope(person, (), ()))]


@pytest.mark.parametrize("other", OTHERS)
async def test_nothing_is_told_before_the_next_sync(house: CalendarHouse, database: Database, other: str) -> None:
    assert "Secret" in (await house.call("query", day=ISO)).text
    later = await changed(house, database, **OTHERS[other])
    asker = scope_of(OTHERS[other].get("person") or "ann")
    for tool, arguments in (("query", {"day": ISO}), ("free_busy", {"day": ISO}), ("list", {}), ("find_slots", {})):
        outcome = await later.call(tool, asker, **arguments)
        assert (outcome.ok, NOT_YET in outcome.text) == (False, True), outcome.text
    assert NOT_YET in await later.refused("create", asker, title="x", start=f"{ISO} 20:00")
    same = await changed(house, database, password=PasswordPlace(env="ANOTHER"), zone="Europe/Vienna")
    assert "Secret" in (await same.call("query", day=ISO)).text, "this makes no other account"


async def test_the_new_owner_has_neither_the_old_events_nor_what_was_written(
    house: CalendarHouse, database: Database
) -> None:
    made = await house.done("create", title="Mine", start=f"{ISO} 12:00")
    assert set(await exported(database, "ann")) == {"old.ics", f"{made['id']}.ics"}
    house.server.empty()
    house.put("new", "Bob's", DAY)
    later = await changed(house, database, person="bob")
    await later.sync()
    bob = scope_of("bob")
    assert [one["title"] for one in (await later.done("query", bob, day=ISO))["events"]] == ["Bob's"]
    assert "no such" in await later.refused("undo", bob, change=made["change"])
    assert (await exported(database, "ann"), await exported(database, "bob")) == ([], ["new.ics"])
    assert NOT_YET in (await house.call("query", day=ISO)).text, "a worker that still has the older settings"


async def test_address_books_go_likewise(
    database: Database, server: DavServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALENDAR_PASSWORD", PASSWORD)
    assert await migrate_modules(database, [CONTACTS]) == {}
    stores = await open_stores(database, CONTACTS)
    server.empty()
    server.put("ben.vcf", card("Ben"))

    async def search(account: DavAccount) -> Any:
        held = ContactAccounts({"home": account}, stores, EverybodySeen())
        return (await search_for(held, scope_of(account.person), "ben", 5))["found"]

    ann = account_at(server.port)
    bob = replace(ann, person="bob")
    await sync_contacts("home", ann, stores("home"))
    assert await search(ann) == 1
    with pytest.raises(ContactsRefusal, match=NOT_YET):
        await search(bob)
    server.empty()
    await sync_contacts("home", bob, stores("home"))
    assert await search(bob) == 0


async def test_an_address_book_that_somebody_else_shares_is_no_default(
    database: Database, server: DavServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALENDAR_PASSWORD", PASSWORD)
    assert await migrate_modules(database, [CONTACTS]) == {}
    stores = await open_stores(database, CONTACTS)
    account = account_at(server.port)
    await sync_contacts("home", account, stores("home"))
    held = ContactAccounts({"home": account}, stores, EverybodySeen())
    name = [CardChange("name", "Noor")]
    assert (await prepare_create(held, scope_of(), name, "")).risk == "medium"
    await stores("home").run("collections.share", [one.collection for one in await collections_in(stores("home"))])
    for default in ("", "home"):
        with pytest.raises(ContactsRefusal, match="Nothing was written"):
            await prepare_create(held, scope_of(), name, default)
    prepared = await prepare_create(held, scope_of(), name, "Friends")
    assert (prepared.risk, prepared.why) == ("high", "others share this address book")
