"""What the database keeps of a person: handed out, and erased in batches that are a transaction each.

`app/people/personal.py` calls each of `stored_personal`, in this order: what is erased of messages first is seen by
what is learned from them. Every function may be stopped and begun again. Next: `sql/functions/personal.sql`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from msgspec import Struct, to_builtins

from switchboard.core.mail.headers import address
from switchboard.core.people.handle import Handle
from switchboard.core.people.readers import person_named
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.routing import Owner
from switchboard.ports.people import KeepsPersonal, PersonalScope
from switchboard.store.database import Database, Row, from_json, part_as, query, rows_as
from switchboard.store.models import facts

_AT_ONCE: Final = 200
_HISTORIES_AT_ONCE: Final = 50
_ZERO: Final = UUID(int=0)


class OpenMessages(Struct, frozen=True):
    """Messages whose words are there: those that can be erased now, and those with which something is to be done."""

    ended: int
    open: int


async def find_scope(database: Database, person_id: str, handles: Sequence[Handle], *, mail: set[str]) -> PersonalScope:
    """All names under which rows of these handles may be kept; `mail`: the channels whose identities are addresses."""
    senders: dict[Owner, None] = {}
    for handle in handles:
        senders.update(dict.fromkeys(await _senders_of(database, handle, by_address=handle.channel in mail)))
    keys = tuple(person_named(one.channel, one.endpoint, one.identity) for one in senders)
    return PersonalScope(person_id, tuple(senders), keys)


async def _senders_of(database: Database, handle: Handle, *, by_address: bool) -> list[Owner]:
    found = await database.rows(query("personal.senders"), handle.channel, handle.realm, handle.identity)
    written = [one for one in rows_as(Owner, found) if _is_identity(one.identity, handle, by_address=by_address)]
    accounts = [row["endpoint"] for row in await database.rows(query("personal.endpoints"), handle.channel)]
    endpoints = (handle.realm,) if handle.realm else accounts
    return [*written, *(Owner(handle.channel, one, handle.identity) for one in endpoints)]


def _is_identity(sender: str, handle: Handle, *, by_address: bool) -> bool:
    return sender == handle.identity or (by_address and address(sender) == handle.identity)


async def count_open(database: Database, scope: PersonalScope) -> OpenMessages:
    """How many messages can be erased, and how many must end first."""
    return part_as(OpenMessages, await _only_row(database, "personal.count_messages", *_sender_columns(scope)))


class StoredContacts(Struct, frozen=True):
    """Who may write: held messages and names are erased; the decisions stay."""

    database: Database
    name: str = "contacts"

    async def count(self, scope: PersonalScope) -> int:
        """As in the port."""
        return len(await self.database.rows(query("personal.contacts_to_erase"), *_sender_columns(scope)))

    async def export(self, scope: PersonalScope) -> AsyncIterator[JsonMapping]:
        """As in the port."""
        for row in await self.database.rows(query("personal.contacts"), *_sender_columns(scope)):
            yield _as_json(row)

    async def erase(self, scope: PersonalScope) -> int:
        """As in the port."""
        senders = _sender_columns(scope)
        found = await self.database.rows(query("personal.contacts_to_erase"), *senders)
        for row in found:
            await self.database.run(query("personal.erase_contact"), row["contact_id"], *senders)
        return len(found)


class StoredMessages(Struct, frozen=True):
    """Messages with their bytes and files, what turns noted for them, and replies. Those that are open stay."""

    database: Database
    name: str = "messages"

    async def count(self, scope: PersonalScope) -> int:
        """As in the port."""
        return (await count_open(self.database, scope)).ended

    async def export(self, scope: PersonalScope) -> AsyncIterator[JsonMapping]:
        """As in the port."""
        after = _ZERO
        while rows := await self.database.rows(query("personal.messages"), *_sender_columns(scope), after, _AT_ONCE):
            for row in rows:
                yield _as_json(row) | {"envelope": from_json(row["envelope"])}
            after = rows[-1]["request_id"]

    async def erase(self, scope: PersonalScope) -> int:
        """As in the port."""
        erased, after = 0, _ZERO
        while rows := await self.database.rows(
            query("personal.messages_to_erase"), *_sender_columns(scope), after, _AT_ONCE
        ):
            ids = [row["request_id"] for row in rows]
            erased += int(await self.database.value(query("personal.erase_messages"), ids))
            after = ids[-1]
        return erased


class StoredMemoPages(Struct, frozen=True):
    """What the engine `memo` has filed."""

    database: Database
    name: str = "memos"

    async def count(self, scope: PersonalScope) -> int:
        """As in the port."""
        return int(await self.database.value(query("personal.count_memos"), scope.keys))

    async def export(self, scope: PersonalScope) -> AsyncIterator[JsonMapping]:
        """As in the port."""
        for row in await self.database.rows(query("personal.memos"), scope.keys):
            yield _as_json(row)

    async def erase(self, scope: PersonalScope) -> int:
        """As in the port."""
        sql = query("personal.erase_memos")
        return await _repeat_batches(lambda: self.database.change_rows(sql, scope.keys, _AT_ONCE))


class StoredEntries(Struct, frozen=True):
    """The histories of butlers: what the person said, and what they were answered."""

    database: Database
    name: str = "history"

    async def count(self, scope: PersonalScope) -> int:
        """As in the port."""
        return int(await self.database.value(query("personal.count_entries"), scope.keys))

    async def export(self, scope: PersonalScope) -> AsyncIterator[JsonMapping]:
        """As in the port."""
        lane: UUID | None = None
        position = 0
        while rows := await self.database.rows(query("personal.entries"), scope.keys, lane, position, _AT_ONCE):
            for row in rows:
                yield _as_json(row) | {"calls": from_json(row["calls"] or "[]")}
            lane, position = rows[-1]["lane"], rows[-1]["position"]

    async def erase(self, scope: PersonalScope) -> int:
        """As in the port. Results of tools for these turns go from the disks of workers within the hour."""
        sql = query("personal.erase_entries")

        async def erase_batch() -> int:
            return int(await self.database.value(sql, scope.keys, _HISTORIES_AT_ONCE))

        return await _repeat_batches(erase_batch)


class StoredSummaries(Struct, frozen=True):
    """What stands for older history; also that of groups in which the person wrote, as it may have their words."""

    database: Database
    name: str = "summaries"

    async def count(self, scope: PersonalScope) -> int:
        """As in the port."""
        return int(await self.database.value(query("personal.count_summaries"), *_sender_columns(scope), scope.keys))

    async def export(self, scope: PersonalScope) -> AsyncIterator[JsonMapping]:
        """As in the port; those of groups have the words of others, and are not handed out."""
        for row in await self.database.rows(query("personal.summaries"), scope.keys):
            yield _as_json(row)

    async def erase(self, scope: PersonalScope) -> int:
        """As in the port."""
        return await self.database.change_rows(query("personal.erase_summaries"), *_sender_columns(scope), scope.keys)


class StoredPersonalFacts(Struct, frozen=True):
    """What butlers have learned. Keyed hashes stay, by which it is not learned again."""

    database: Database
    name: str = "facts"

    async def count(self, scope: PersonalScope) -> int:
        """As in the port."""
        return len([one async for one in self.export(scope)])

    async def export(self, scope: PersonalScope) -> AsyncIterator[JsonMapping]:
        """As in the port, but the newest first."""
        for key in scope.keys:
            below: UUID | None = None
            while page := await facts.list_facts(self.database, None, key, below, _AT_ONCE):
                for one in page:
                    yield to_builtins(one)
                below = page[-1].fact_id

    async def erase(self, scope: PersonalScope) -> int:
        """As in the port."""
        erased = 0
        for key in scope.keys:
            while page := await facts.list_facts(self.database, None, key, None, _AT_ONCE):
                erased += sum([await facts.forget(self.database, one.fact_id) for one in page])
        return erased


def stored_personal(database: Database) -> tuple[KeepsPersonal, ...]:
    """Everything in the database that keeps something of a person."""
    return (
        StoredContacts(database),
        StoredMessages(database),
        StoredMemoPages(database),
        StoredEntries(database),
        StoredSummaries(database),
        StoredPersonalFacts(database),
    )


async def _repeat_batches(erase_batch: Callable[[], Awaitable[int]]) -> int:
    erased = 0
    while count := await erase_batch():
        erased += count
    return erased


async def _only_row(database: Database, name: str, *args: object) -> Row:
    [row] = await database.rows(query(name), *args)
    return row


def _sender_columns(scope: PersonalScope) -> tuple[list[str], list[str], list[str]]:
    senders = scope.senders
    return [one.channel for one in senders], [one.endpoint for one in senders], [one.identity for one in senders]


def _as_json(row: Row) -> dict[str, object]:
    return {name: _as_text(value) for name, value in row.items()}


def _as_text(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, UUID) else value
