"""People of the mirror are found by any handle, name or half a name, and only in the books of their account."""

from __future__ import annotations

from importlib.resources import files

import pytest

from switchboard.modules.contacts.mirror import CONTACTS_SQL, CardKeeper
from switchboard.modules.contacts.resolve import MOST_FOUND, Resolved, find_matches, resolve_matches
from switchboard.modules.mirror.kept import collections_in, keep_objects, write_object
from switchboard.ports.collection_server import ServerContents, ServerObject
from switchboard.ports.module import ModuleManifest
from switchboard.ports.module_store import ModuleStore
from switchboard.store.database import Database
from switchboard.store.modules.migrations import migrate_modules
from switchboard.store.modules.stores import open_stores
from tests.dav_servers import card

CONTACTS = ModuleManifest("contacts", (), "nowhere:open", sql=CONTACTS_SQL)
BOOK = "/ann/friends"
LONG = "\u3300" * 500
"""One word, of 2,500 signs once it is without accents: more than an index takes."""
PEOPLE = {
    "Ben Müller": ("TEL;TYPE=cell:0170 1234567", "EMAIL:ben@work.example", "NICKNAME:Benny", "ORG:Acme Ltd"),
    "Ben Smith": ("EMAIL:smith@home.example", "IMPP:telegram:ben_s"),
    "Benedicta Jones": ("TEL:+1 212 555 0123",),
    "100% _odd_": ("NOTE:x",),
    LONG: ("NOTE:x",),
}


@pytest.fixture
async def stores(database: Database) -> tuple[ModuleStore, ModuleStore]:
    """The accounts of Ann, who knows these people, and of Eve, who knows nobody."""
    assert await migrate_modules(database, [CONTACTS]) == {}
    opened = await open_stores(database, CONTACTS)
    for account in ("ann", "eve"):
        described = ("http://127.0.0.1:1/ann/friends/", "Friends", True, "", "")
        await opened(account).run("collections.find", BOOK, *described)
    for name, lines in PEOPLE.items():
        written = ServerObject(f"{name[:20]}.vcf", '"1"', card(name, *lines))
        await write_object(opened("ann"), BOOK, written, "", CardKeeper("DE"))
    return opened("ann"), opened("eve")


async def resolve_contact(store: ModuleStore, sought: str, region: str = "") -> Resolved:
    return resolve_matches(await find_matches(store, "ann", sought, region))


def names(resolved: Resolved) -> list[str]:
    return [person.cards[0].shown for person in resolved.people]


@pytest.mark.parametrize(
    ("sought", "found", "certain"),
    [
        ("ben@WORK.example", ["Ben Müller"], True),
        ("+49 170 1234567", ["Ben Müller"], True),
        ("(212) 555-0123", [], False),
        ("+12125550123", ["Benedicta Jones"], True),
        ("@Ben_S", ["Ben Smith"], True),
        ("ben muller", ["Ben Müller"], True),
        ("Müller, Ben", ["Ben Müller"], True),
        ("benny", ["Ben Müller"], True),
        ("acme", ["Ben Müller"], True),
        ("jon", ["Benedicta Jones"], True),
        ("ben", ["Ben Müller", "Ben Smith", "Benedicta Jones"], False),
        ("%", [], False),
        ("", [], False),
        ("odd", ["100% _odd_"], True),
        (LONG, [LONG], True),
    ],
)
async def test_who_is_meant(
    stores: tuple[ModuleStore, ModuleStore], sought: str, found: list[str], certain: bool
) -> None:
    ann, eve = stores
    resolved = await resolve_contact(ann, sought, "DE")
    assert names(resolved) == found
    assert (resolved.certain is not None) == certain
    assert (await resolve_contact(eve, sought, "DE")).people == ()


async def test_a_changed_card_is_found_by_what_it_has_now(stores: tuple[ModuleStore, ModuleStore]) -> None:
    ann, _ = stores
    [book] = await collections_in(ann)
    new = ServerObject("Ben Smith.vcf", '"2"', card("Bernard", "EMAIL:new@home.example"))
    await write_object(ann, BOOK, new, '"1"', CardKeeper())
    stale = ServerObject("Ben Smith.vcf", '"1"', card("Ben Smith", *PEOPLE["Ben Smith"]))
    await keep_objects(ann, book, ServerContents((stale,)), {}, CardKeeper())
    assert names(await resolve_contact(ann, "new@home.example")) == ["Bernard"]
    assert (await resolve_contact(ann, "smith@home.example")).people == ()
    bad = ServerObject("Ben Müller.vcf", '"2"', b"no card")
    await ann.run("objects.drop", BOOK, ["Ben Smith.vcf"], book.started)
    [later] = await collections_in(ann)
    await keep_objects(ann, later, ServerContents((bad,)), {}, CardKeeper())
    assert (await resolve_contact(ann, "ben muller", "DE")).people == (), "what cannot be read is not told"


async def test_whoever_is_called_just_so_is_among_many_with_longer_names(database: Database) -> None:
    assert await migrate_modules(database, [CONTACTS]) == {}
    store = (await open_stores(database, CONTACTS))("ann")
    await store.run("collections.find", BOOK, "http://127.0.0.1:1/ann/friends/", "Friends", True, "", "")
    cards = {f"{number}.vcf": card(f"Ben {number}") for number in range(MOST_FOUND + 1)}
    for name, data in {**cards, "last.vcf": card("Ben"), "group.vcf": card("Ben", "KIND:group")}.items():
        await write_object(store, BOOK, ServerObject(name, '"1"', data), "", CardKeeper())
    found = await find_matches(store, "ann", "ben")
    assert (found[0].name, found[0].why, len(found)) == ("last.vcf", "is called so", MOST_FOUND)
    assert resolve_matches(found).certain is not None


@pytest.mark.usefixtures("stores")
async def test_what_was_kept_before_is_found_by_whole_names(database: Database) -> None:
    async with database.transaction() as one:
        await one.run("set local search_path = switchboard_contacts")
        before = await one.rows("select name, word from word order by name, word")
        await one.run("delete from word where word like '=%'")
        migration = files("switchboard.modules.contacts.sql") / "migrations/0004_whole_names.sql"
        await one.run(migration.read_text(encoding="utf-8"))
        assert await one.rows("select name, word from word order by name, word") == before
