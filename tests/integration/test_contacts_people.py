"""People of the mirror are found by any handle, name or half a name, and only in the books of their account."""

from __future__ import annotations

import pytest

from switchboard.modules.contacts.mirror import CONTACTS_SQL, CardKeeper
from switchboard.modules.contacts.resolve import Resolved, find_matches, resolve_matches
from switchboard.modules.mirror.kept import collections_in, keep_objects, write_object
from switchboard.ports.module import ModuleManifest
from switchboard.ports.module_store import ModuleStore
from switchboard.store.database import Database
from switchboard.store.modules.migrations import migrate_modules
from switchboard.store.modules.stores import open_stores
from switchboard.transport.dav.reading import DavContents, DavObject
from tests.dav_servers import card

CONTACTS = ModuleManifest("contacts", (), "nowhere:open", sql=CONTACTS_SQL)
BOOK = "/ann/friends"
PEOPLE = {
    "Ben Müller": ("TEL;TYPE=cell:0170 1234567", "EMAIL:ben@work.example", "NICKNAME:Benny", "ORG:Acme Ltd"),
    "Ben Smith": ("EMAIL:smith@home.example", "IMPP:telegram:ben_s"),
    "Benedicta Jones": ("TEL:+1 212 555 0123",),
    "100% _odd_": ("NOTE:x",),
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
        written = DavObject(f"{name}.vcf", '"1"', card(name, *lines))
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
    new = DavObject("Ben Smith.vcf", '"2"', card("Bernard", "EMAIL:new@home.example"))
    await write_object(ann, BOOK, new, '"1"', CardKeeper())
    stale = DavObject("Ben Smith.vcf", '"1"', card("Ben Smith", *PEOPLE["Ben Smith"]))
    await keep_objects(ann, book, DavContents((stale,)), {}, CardKeeper())
    assert names(await resolve_contact(ann, "new@home.example")) == ["Bernard"]
    assert (await resolve_contact(ann, "smith@home.example")).people == ()
    bad = DavObject("Ben Müller.vcf", '"2"', b"no card")
    await ann.run("objects.drop", BOOK, ["Ben Smith.vcf"], book.started)
    [later] = await collections_in(ann)
    await keep_objects(ann, later, DavContents((bad,)), {}, CardKeeper())
    assert (await resolve_contact(ann, "ben muller", "DE")).people == (), "what cannot be read is not told"
