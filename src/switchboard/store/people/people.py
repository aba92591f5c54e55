"""Persons: what operators have linked; as a whole for those who keep it in memory, in pages for those who look.

`app/people/service.py` changes it, in a transaction that begins with `begin_change`; `journey/people_book.py` reads it
all; `app/ops/engines.py` gives `StoredNames` to engines. Next: `core/people/known.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from switchboard.core.passages.names import person_name
from switchboard.core.people.handle import Handle, handle_behind
from switchboard.core.people.known import KnownPeople
from switchboard.core.text.storable import storable_text
from switchboard.domain.message import RequestId
from switchboard.domain.people import Known
from switchboard.store.database import Database, arrays, part_as, query, rows_as


class StoredHandle(Struct, frozen=True):
    """A handle, and since when and by whom it is linked."""

    person_id: str
    channel: str
    realm: str
    identity: str
    linked_at: datetime
    linked_by: str


class StoredPerson(Struct, frozen=True):
    """A person without handles."""

    person_id: str
    name: str
    groups: Sequence[str]
    created_at: datetime


class StoredOwner(Struct, frozen=True):
    """A handle and whose it is."""

    person_id: str
    handle: Handle


class SenderNaming(Struct, frozen=True):
    """What a sender is called, by who linked the handle and by themselves. `n`: their place in the question."""

    n: int
    person: str | None
    display_name: str | None


class StoredNames(Struct, frozen=True):
    """`Names` in PostgreSQL."""

    database: Database

    async def of(self, people: Collection[str]) -> Mapping[str, str]:
        """As in the port."""
        known = await find_linked(self.database, people)
        return {key: person_name(one.name, one.person_id) for key, one in known.items()}


class LinkedPerson(Struct, frozen=True):
    """The person whose handle it is."""

    person_id: str
    name: str


async def find_linked(database: Database, keys: Collection[str]) -> Mapping[str, LinkedPerson]:
    """Of these keys of `person_of` those that are a person's."""
    found = {key: handle for key in keys if (handle := handle_behind(key)) is not None}
    if not found:
        return {}
    columns = zip(*map(_handle_columns, found.values()), strict=True)
    rows = await database.rows(query("people.names"), list(found), *map(list, columns))
    return {row["key"]: LinkedPerson(row["person_id"], row["name"]) for row in rows}


async def read_version(database: Database) -> int:
    """How often persons were changed."""
    return int(await database.value(query("people.version")))


async def load(database: Database) -> KnownPeople:
    """Everything, at one version."""
    async with database.snapshot() as connection:
        version = int(await connection.fetchval(query("people.version")))
        rows = await connection.fetch(query("people.handles"))
        persons = await connection.fetch(query("people.ids"))
        groups = await connection.fetch(query("people.groups"))
    return KnownPeople(
        version,
        {part_as(Handle, row): Known(row["person"], tuple(row["groups"])) for row in rows},
        frozenset(row["person_id"] for row in persons),
        frozenset(row["name"] for row in groups),
    )


async def begin_change(one: Database) -> None:
    """Make a new version. Changes wait for each other from here on, until the end of the transaction."""
    await one.run(query("people.new_version"))


async def list_people(
    database: Database, *, after: str | None = None, only: str | None = None, limit: int = 1
) -> list[StoredPerson]:
    """By id; `after`: the last one of the previous page; `only`: a single one."""
    return rows_as(StoredPerson, await database.rows(query("people.page"), after, only, limit))


async def list_handles(database: Database, person_ids: Sequence[str]) -> list[StoredHandle]:
    """The handles of these persons, by channel."""
    return rows_as(StoredHandle, await database.rows(query("people.handles_of"), list(person_ids)))


async def find_person(database: Database, handle: Handle) -> str | None:
    """The id of the person whose handle it is."""
    found: str | None = await database.value(query("people.owner_of_handle"), *_handle_columns(handle))
    return found


async def list_called(
    database: Database, asked: Sequence[tuple[Handle | None, RequestId | None]]
) -> list[SenderNaming]:
    """What the senders with these handles, of these messages, are called; either may be unknown."""
    nobody = "", "", ""
    rows = (
        (n, *(nobody if handle is None else _handle_columns(handle)), request_id)
        for n, (handle, request_id) in enumerate(asked)
    )
    return rows_as(SenderNaming, await database.rows(query("people.called"), *arrays(rows, 5)))


async def create(one: Database, person_id: str, name: str) -> bool:
    """False: there is one with this id."""
    return await one.change_rows(query("people.create"), person_id, storable_text(name)) == 1


async def rename(one: Database, person_id: str, name: str) -> bool:
    """False: there is no such person."""
    return await one.change_rows(query("people.rename"), person_id, storable_text(name)) == 1


async def delete(one: Database, person_id: str) -> bool:
    """Delete a person, with handles and groups. False: there is no such person."""
    return await one.change_rows(query("people.delete"), person_id) == 1


async def link(one: Database, person_id: str, handle: Handle, by: str) -> bool:
    """Link a handle to an existing person. False: it is linked already, perhaps to another."""
    return await one.change_rows(query("people.link"), person_id, *_handle_columns(handle), by) == 1


async def unlink(one: Database, person_id: str, handle: Handle) -> bool:
    """False: it is not a handle of this person."""
    return await one.change_rows(query("people.unlink"), person_id, *_handle_columns(handle)) == 1


async def lock(one: Database) -> None:
    """As `begin_change`, where it is not known yet whether anything changes."""
    await one.row(query("people.lock"))


class AskedCode(Struct, frozen=True):
    """A code that a handle has asked for, which links another one to its person."""

    handle: Handle
    code: str
    valid: timedelta


async def keep_code(one: Database, asked: AskedCode) -> bool:
    """Keep the keyed hash of a code in place of the one before. False: it is nobody's handle."""
    key = (await one.keys()).of("link", asked.code.encode())
    return bool(await one.rows(query("people.new_code"), *_handle_columns(asked.handle), key, asked.valid))


async def use_code(one: Database, code: str, request_id: RequestId) -> StoredOwner | None:
    """Who asked for a code that is valid; it counts for this message from now on. None: it was a wrong try."""
    key = (await one.keys()).of("link", code.encode())
    row = await one.row(query("people.use_code"), key, request_id)
    if row is None:
        await one.run(query("people.count_try"))
        return None
    return StoredOwner(row["person_id"], Handle(row["channel"], row["realm"], row["identity"]))


async def lock_code(one: Database, code: str) -> None:
    """It does not count any more."""
    await one.run(query("people.lock_code"), (await one.keys()).of("link", code.encode()))


async def join_group(one: Database, person_id: str, group: str) -> bool:
    """Add an existing person to a group. False: they are in it."""
    return await one.change_rows(query("people.join"), person_id, group) == 1


async def leave_group(one: Database, person_id: str, group: str) -> bool:
    """False: they are not in it."""
    return await one.change_rows(query("people.leave"), person_id, group) == 1


async def tell_owners(one: Database, person_id: str, author: str, reason: str) -> bool:
    """Make a new version of the rules, with which members are read, if a butler names this person as an owner."""
    await one.run(query("people.lock_owners"))
    return bool(await one.rows(query("people.owners_changed"), person_id, author, reason))


def _handle_columns(handle: Handle) -> tuple[str, str, str]:
    return handle.channel, handle.realm, storable_text(handle.identity)
