"""The tools of contacts, with real servers of address books: what is found, told, made and changed, and for whom."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

import pytest
from msgspec.structs import replace

from switchboard.domain.errors import ConfigurationError, Unavailable
from switchboard.modules.contacts.manifest import MANIFEST
from switchboard.modules.contacts.opened import open_contacts
from switchboard.modules.contacts.syncing import sync_contacts
from switchboard.modules.kernel.tables import read_table
from switchboard.ports.module import ModuleContext, ModuleTool
from switchboard.ports.people_seen import PEOPLE, SeenPerson
from switchboard.ports.recent_writers import RECENT_WRITERS, RecentWriter
from switchboard.ports.tools import PreparedCall, ToolOutcome, ToolScope
from switchboard.store.database import Database
from switchboard.store.modules.migrations import migrate_modules
from switchboard.store.modules.stores import open_stores
from switchboard.testing.modules import CHECKS, FixedPeople, FixedWriters, ModuleCheck, ModuleSubject
from tests.dav_servers import PASSWORD, USER, Answered, Asked, DavProxy, card, dav_proxy, radicale, xandikos

ANN: Final = SeenPerson("ann", frozenset({"family"}), private=True)
BEN: Final = card("Ben Müller", "EMAIL:ben@work.example", "TEL:0170 1234567", "ORG:Acme", "NOTE:call\u202e me", uid="1")
SMITH: Final = card("Ben Smith", "EMAIL:smith@home.example", uid="2")
WRITERS: Final = (
    RecentWriter("email", "ben@WORK.example", "Ben", datetime(2026, 3, 2, 9, 5, tzinfo=UTC), 2),
    RecentWriter("telegram", "5488", "Eve\u202e", datetime(2026, 3, 1, 9, 5, tzinfo=UTC), 1),
)
TOOLS: Final = {tool.spec.name: tool for tool in MANIFEST.tools}


@pytest.fixture(scope="module", params=[radicale, xandikos], ids=["radicale", "xandikos"])
def started(request: pytest.FixtureRequest) -> Iterator[DavProxy]:
    with ExitStack() as stack:
        yield stack.enter_context(dav_proxy(stack.enter_context(request.param())))


@pytest.fixture
def proxy(started: DavProxy, monkeypatch: pytest.MonkeyPatch) -> DavProxy:
    monkeypatch.setenv("CONTACTS_PASSWORD", PASSWORD)
    started.behave()
    started.server.empty()
    started.server.put("ben.vcf", BEN)
    started.server.put("smith.vcf", SMITH)
    return started


@dataclass
class House:
    """The opened module, who calls it, and the server of Ann's account and of the household's."""

    proxy: DavProxy
    people: FixedPeople
    subject: ModuleSubject
    module: Any
    database: Database

    async def sync(self, *names: str) -> None:
        for name in names or ("ann",):
            await sync_contacts(name, self.module.held.accounts[name], self.module.held.store_of(name))

    async def call(self, tool: str, key: UUID | None = None, **arguments: Any) -> ToolOutcome:
        return await self.call_as(scope(key), tool, **arguments)

    async def call_as(self, by: ToolScope, tool: str, **arguments: Any) -> ToolOutcome:
        return await TOOLS[f"contacts_{tool}"].run(self.module, arguments, by)

    async def approve(self, tool: str, **arguments: Any) -> ToolScope:
        """The scope of a call that a person has approved as it would be now."""
        key = uuid4()
        prepared = await self.prepared(tool, key, **arguments)
        assert prepared.risk == "high"
        return replace(scope(key), approved=True, prepared=prepared)

    async def told(self, tool: str, key: UUID | None = None, **arguments: Any) -> dict[str, Any]:
        outcome = await self.call(tool, key, **arguments)
        assert outcome.ok, outcome.text
        return dict(json.loads(outcome.text))

    async def refused(self, tool: str, **arguments: Any) -> str:
        outcome = await self.call(tool, **arguments)
        assert not outcome.ok, outcome.text
        return outcome.text

    async def prepared(self, tool: str, key: UUID | None = None, **arguments: Any) -> PreparedCall:
        prepare = tool_named(tool).prepare
        assert prepare is not None
        found = await prepare(self.module, arguments, scope(key))
        assert isinstance(found, PreparedCall), found
        return found


def tool_named(tool: str) -> ModuleTool:
    return TOOLS[f"contacts_{tool}"]


def scope(key: UUID | None = None) -> ToolScope:
    return ToolScope(Path(), frozenset(), frozenset(), key or uuid4(), uuid4(), zone="Europe/Berlin")


@pytest.fixture
async def house(proxy: DavProxy, database: Database) -> House:
    assert await migrate_modules(database, [MANIFEST]) == {}
    stores = await open_stores(database, MANIFEST)
    login = {"url": f"http://127.0.0.1:{proxy.port}/", "user": USER, "password": {"env": "CONTACTS_PASSWORD"}}
    accounts = {
        "ann": {**login, "person": "ann", "region": "DE"},
        "home": {**login, "group": "family", "region": "DE"},
        "bob": {**login, "person": "bob"},
    }
    people = FixedPeople(ANN)
    needs = {PEOPLE: people, RECENT_WRITERS: FixedWriters(WRITERS)}
    calls: dict[str, dict[str, Any]] = {
        "contacts_recent": {},
        "contacts_resolve": {"who": "ben"},
        "contacts_search": {"text": "ben"},
        "contacts_create": {"name": "Cem Öz", "email": "cem@example.org", "book": "ann"},
        "contacts_link": {"person": "ann", "channel": "telegram", "handle": "5488"},
    }
    subject = ModuleSubject(
        "switchboard.modules.contacts.manifest:MANIFEST",
        {"accounts": accounts},
        calls,
        stores=stores,
        needs=needs,
    )
    settings = read_table(MANIFEST, {"contacts": subject.settings})
    module = await open_contacts(ModuleContext(settings, stores, {}, needs))
    return House(proxy, people, subject, module, database)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_module_passes_the_checks(house: House, check: ModuleCheck) -> None:
    await house.sync()
    found = await house.told("resolve", who="ben@work.example")
    mine: dict[str, dict[str, Any]] = {"contacts_get": {"contact": found["people"][0]["id"]}}
    mine["contacts_update"] = {**mine["contacts_get"], "field": "phone", "new": "+49 30 123456"}
    await check(replace(house.subject, calls={**house.subject.calls, **mine}))


async def test_who_is_meant_is_told_with_where_it_is_from(house: House) -> None:
    await house.sync()
    found = await house.told("resolve", who="0170 1234567")
    [ben] = found["people"]
    assert (found["certain"], ben["name"], ben["why"], ben["emails"]) == (
        True,
        "Ben Müller",
        "has this number",
        ["ben@work.example"],
    )
    assert ben["from"]["account"] == "ann"
    assert found["accounts"]["ann"]["complete"] is True
    assert found["accounts"]["ann"]["as_of"].endswith("Europe/Berlin")
    assert found["accounts"]["home"] == {
        "as_of": None,
        "complete": False,
        "note": "not all of it has been fetched yet",
    }
    whole = await house.told("get", contact=ben["id"])
    assert (whole["note"], whole["organisation"], whole["from"]["last_written_by"]) == ("call me", "Acme", "others")
    two = await house.told("resolve", who="ben")
    assert (two["certain"], [one["name"] for one in two["people"]]) == (False, ["Ben Müller", "Ben Smith"])
    assert "do not choose" in two["advice"]
    assert [one["name"] for one in (await house.told("search", text="acme"))["people"]] == ["Ben Müller"]
    assert (await house.told("resolve", who="nobody"))["people"] == []


async def test_the_same_person_in_two_books_is_one(house: House) -> None:
    await house.sync("ann", "home")
    found = await house.told("resolve", who="ben müller")
    [ben] = found["people"]
    assert (found["certain"], ben["from"]["account"]) == (True, "ann")
    assert [one["from"]["account"] for one in ben["also"]] == ["home"]


async def test_who_wrote_lately_is_told_with_their_contact(house: House) -> None:
    await house.sync("ann", "home", "bob")
    ben, eve = (await house.told("recent"))["people"]
    assert (ben["handle"], ben["last"], ben["messages"]) == (
        "ben@WORK.example",
        "Mon 2026-03-02 10:05 Europe/Berlin",
        2,
    )
    [card] = ben["contacts"]
    assert (card["name"], card["from"]["account"], len(card["also"])) == ("Ben Müller", "ann", 1)
    assert eve == {
        "channel": "telegram",
        "handle": "5488",
        "name": "Eve",
        "last": "Sun 2026-03-01 10:05 Europe/Berlin",
        "messages": 1,
    }
    assert len((await house.told("recent", limit=1))["people"]) == 1


async def test_only_those_whose_account_it_is_are_told_anything(house: House) -> None:
    await house.sync("ann", "home", "bob")
    ids = {}
    for name, seen in (("ann", ANN), ("bob", SeenPerson("bob", private=True))):
        house.people.seen = seen
        ids[name] = (await house.told("resolve", who="ben@work.example"))["people"][0]["id"]
    ids["home"] = ids["ann"].replace("ann/", "home/", 1)
    for seen, own in (
        (ANN, {"ann", "home"}),
        (SeenPerson("ann", private=True), {"ann"}),
        (SeenPerson("bob", private=True), {"bob"}),
        (SeenPerson("cem", frozenset({"family"}), private=True), {"home"}),
        (SeenPerson(household=True, private=True), {"home"}),
        (SeenPerson("ann", frozenset({"family"})), set()),
        (SeenPerson(private=True), set()),
    ):
        house.people.seen = seen
        outcome = await house.call("resolve", who="ben")
        assert outcome.ok == bool(own)
        accounts = {*json.loads(outcome.text)["accounts"]} if outcome.ok else set()
        assert accounts == own
        for name, contact in ids.items():
            got = await house.call("get", contact=contact)
            change = {"contact": contact, "field": "note", "new": "seen"}
            prepared = await _prepare_anything(house, "update", change)
            assert (got.ok, isinstance(prepared, PreparedCall)) == (name in own, name in own), (seen, name)
            if name not in own:
                assert not (await house.call("update", **change)).ok
                assert not (await house.call("create", name="X", book=name)).ok
    assert house.proxy.server.objects().keys() == {"ben.vcf", "smith.vcf"}


async def _prepare_anything(house: House, tool: str, arguments: dict[str, Any]) -> object:
    prepare = tool_named(tool).prepare
    assert prepare is not None
    return await prepare(house.module, arguments, scope())


def cut_writing(asked: Asked, answered: Answered) -> Answered | None:
    """The connection ends after the server has written, and nobody can look."""
    return None if asked.method in ("PUT", "GET") else answered


async def test_a_contact_is_made_once_whatever_becomes_of_the_answer(house: House) -> None:
    await house.sync()
    new = {"name": "Cem; Öz", "email": "cem@example.org", "phone": "030 123456", "note": "a\nb", "book": "ann"}
    key = uuid4()

    house.proxy.after = cut_writing
    lost = await house.call("create", key, **new)
    assert "not certain" in lost.text
    house.proxy.behave()
    made = await house.told("create", key, **new)
    assert await house.told("create", key, **new) == made
    assert (await house.prepared("create", key, **new)).begun
    assert len(house.proxy.server.names()) == 3
    assert (made["created"]["name"], made["created"]["note"]) == ("Cem; Öz", "a\nb")
    assert made["created"]["from"]["last_written_by"].startswith("Switchboard, ")
    await house.sync()
    found = await house.told("resolve", who="cem@example.org")
    assert [one["name"] for one in found["people"]] == ["Cem; Öz"]


async def test_a_change_keeps_what_it_does_not_change_and_loses_no_race(house: House) -> None:
    await house.sync()
    [ben] = (await house.told("resolve", who="ben@work.example"))["people"]
    change = {"contact": ben["id"], "field": "email", "old": "ben@work.example", "new": "ben@new.example"}
    prepared = await house.prepared("update", **change)
    assert (prepared.risk, prepared.shown) == (
        "medium",
        f"Ben Müller ({ben['id']}): email ben@work.example → ben@new.example",
    )
    house.proxy.server.put("ben.vcf", BEN.replace(b"ORG:Acme", b"ORG:Other"))
    assert "somebody else has changed Ben Müller meanwhile" in await house.refused("update", **change)
    assert (await house.told("get", contact=ben["id"]))["organisation"] == "Other"
    assert (await house.prepared("update", **change)).digest != prepared.digest
    for _ in range(2):
        assert (await house.told("update", **change))["contact"]["emails"] == ["ben@new.example"]
    [kept] = [data for name, data in house.proxy.server.objects().items() if name == "ben.vcf"]
    assert all(part in kept for part in (b"ben@new.example", b"ORG:Other", "call\u202e me".encode()))
    assert "no email 'gone@x'" in await house.refused("update", **{**change, "old": "gone@x", "new": "y@x"})
    assert "invisible" in await house.refused("update", **{**change, "field": "note", "new": "a\u202eb"})
    house.proxy.server.delete("ben.vcf")
    assert "does not have it, or not any more" in await house.refused(
        "update", **{**change, "field": "note", "new": "x"}
    )


async def test_a_change_whose_answer_was_lost_is_no_change_by_others(house: House) -> None:
    await house.sync("home")
    [ben] = (await house.told("resolve", who="ben@work.example"))["people"]
    change = {"contact": ben["id"], "field": "note", "new": "likes tea"}
    approved = await house.approve("update", **change)
    house.proxy.after = cut_writing
    assert "not certain" in (await house.call_as(approved, "update", **change)).text
    house.proxy.behave()
    told = await house.call_as(approved, "update", **change)
    assert json.loads(told.text)["contact"]["note"] == "likes tea"
    again = await house.prepared("update", **change)
    assert (again.risk, again.begun) == ("low", True)


async def test_what_was_not_removed_is_not_told_as_removed(house: House) -> None:
    """Somebody else has added something meanwhile: all that the change would leave is there."""
    await house.sync("home")
    [ben] = (await house.told("resolve", who="ben@work.example"))["people"]
    change = {"contact": ben["id"], "field": "email", "old": "ben@work.example", "new": ""}
    approved = await house.approve("update", **change)
    house.proxy.server.put("ben.vcf", BEN.replace(b"ORG:Acme", b"ORG:Acme\r\nROLE:Cook"))
    refused = await house.call_as(approved, "update", **change)
    assert "somebody else has changed Ben Müller meanwhile" in refused.text


async def test_what_others_see_needs_an_approval(house: House) -> None:
    await house.sync("ann", "home")
    for book, risk in (("ann", "medium"), ("home", "high")):
        assert (await house.prepared("create", name="Cem", book=book)).risk == risk
        [ben] = (await house.told("resolve", who="ben@work.example"))["people"]
        contact = ben["id"].replace("ann/", f"{book}/", 1)
        prepared = await house.prepared("update", contact=contact, field="note", new="x")
        assert (prepared.risk, bool(prepared.why)) == (risk, risk == "high")


async def test_only_what_was_approved_is_written(house: House) -> None:
    await house.sync("home")
    [ben] = (await house.told("resolve", who="ben@work.example"))["people"]
    change = {"contact": ben["id"], "field": "note", "new": "likes tea"}
    approved = await house.approve("update", **change)
    house.proxy.server.put("ben.vcf", BEN.replace(b"ORG:Acme", b"ORG:Other"))
    await house.sync("home")
    there = house.proxy.server.objects()
    assert "has changed since it was approved" in (await house.call_as(approved, "update", **change)).text
    for tool, given in (("update", change), ("create", {"name": "Cem", "book": "home"})):
        assert "it needs an approval (others share this address book)" in await house.refused(tool, **given)
    assert house.proxy.server.objects() == there
    for tool, given in (("update", change), ("create", {"name": "Cem", "book": "home"})):
        assert (await house.call_as(await house.approve(tool, **given), tool, **given)).ok


async def test_an_old_mirror_is_told(house: House) -> None:
    await house.sync()
    stale = "update switchboard_contacts.collection set synced_at = now() - interval '46 minutes'"
    await house.database.run(stale)
    assert "stale" in (await house.told("resolve", who="ben"))["accounts"]["ann"]["note"]


async def test_what_is_wrong_with_an_account_is_told_plainly(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    for instead, told in (
        (Answered(401), "the account 'ann': the server refuses the user or the password"),
        (Answered(503), "the account 'ann': the server cannot be reached now"),
        (Answered(200, {"content-type": "text/html"}, b"<html>Log in"), "a page for people"),
    ):
        house.proxy.before = lambda _, instead=instead: instead  # type: ignore[misc]
        with pytest.raises(Unavailable, match=told):
            await house.sync()
    house.proxy.behave()
    monkeypatch.delenv("CONTACTS_PASSWORD")
    with pytest.raises(ConfigurationError, match="the account 'ann': the environment variable CONTACTS_PASSWORD"):
        await house.sync()
