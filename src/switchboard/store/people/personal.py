"""What the database keeps of a person: handed out, and erased in batches that are a transaction each.

`app/people/personal.py` calls each of `stored_personal`, in this order: what is erased of messages first is seen by
what is learned from them. Every function may be stopped and begun again. Next: `sql/functions/personal.sql`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final
from uuid import UUID

from msgspec import Struct, to_builtins

from switchboard.core.channels.registry import CHANNELS, Channels
from switchboard.core.mail.headers import address
from switchboard.core.people.handle import Handle
from switchboard.core.people.readers import person_named
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.routing import Owner
from switchboard.ports.people import KeepsPersonal, PersonalScope
from switchboard.store.database import Database, from_json, query, rows_as
from switchboard.store.memory import facts
from switchboard.store.memory.aliases import PersonalAlias
from switchboard.store.people.personal_messages import (
    StoredMessages,
    as_json,
    count_turns_of_others,
    sender_columns,
)

_AT_ONCE: Final = 200
_HISTORIES_AT_ONCE: Final = 50
_LAST: Final = UUID(int=2**128 - 1)
_ALL: Final = 2**31 - 1


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


class StoredContacts(Struct, frozen=True):
    """Who may write: held messages and names are erased; the decisions stay."""

    database: Database
    name: str = "contacts"

    async def count(self, scope: PersonalScope) -> int:
        """As in the port."""
        return len(await self.database.rows(query("personal.contacts_to_erase"), *sender_columns(scope)))

    async def export(self, scope: PersonalScope) -> AsyncIterator[JsonMapping]:
        """As in the port."""
        for row in await self.database.rows(query("personal.contacts"), *sender_columns(scope)):
            yield as_json(row)

    async def erase(self, scope: PersonalScope) -> int:
        """As in the port."""
        senders = sender_columns(scope)
        found = await self.database.rows(query("personal.contacts_to_erase"), *senders)
        for row in found:
            await self.database.run(query("personal.erase_contact"), row["contact_id"], *senders)
        return len(found)


class StoredMemoPages(Struct, frozen=True):
    """What the engine `memo` has filed."""

    database: Database
    after_batch: Callable[[str], None]
    name: str = "memos"

    async def count(self, scope: PersonalScope) -> int:
        """As in the port."""
        return int(await self.database.value(query("personal.count_memos"), scope.keys))

    async def export(self, scope: PersonalScope) -> AsyncIterator[JsonMapping]:
        """As in the port."""
        after = UUID(int=0)
        while rows := await self.database.rows(query("personal.memos"), scope.keys, after, _AT_ONCE):
            for row in rows:
                yield as_json(row)
            after = rows[-1]["memo_id"]

    async def erase(self, scope: PersonalScope) -> int:
        """As in the port."""
        sql = query("personal.erase_memos")

        async def erase_batch() -> int:
            return await self.database.change_rows(sql, scope.keys, _AT_ONCE)

        return await _repeat_batches(erase_batch, lambda: self.after_batch(self.name))


class StoredEntries(Struct, frozen=True):
    """The histories of butlers: what the person said, and what they were answered."""

    database: Database
    after_batch: Callable[[str], None]
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
                yield as_json(row) | {"calls": from_json(row["calls"] or "[]")}
            lane, position = rows[-1]["lane"], rows[-1]["position"]

    async def erase(self, scope: PersonalScope) -> int:
        """As in the port. Results of tools for these turns go from the disks of workers with the next order."""
        sql = query("personal.erase_entries")

        async def erase_batch() -> int:
            return int(await self.database.value(sql, scope.keys, _HISTORIES_AT_ONCE))

        return await _repeat_batches(erase_batch, lambda: self.after_batch(self.name))


class StoredSummaries(Struct, frozen=True):
    """What stands for older history; also that of groups in which the person wrote, as it may have their words."""

    database: Database
    name: str = "summaries"

    async def count(self, scope: PersonalScope) -> int:
        """As in the port."""
        return int(await self.database.value(query("personal.count_summaries"), *sender_columns(scope), scope.keys))

    async def export(self, scope: PersonalScope) -> AsyncIterator[JsonMapping]:
        """As in the port; those of groups have the words of others, and are not handed out."""
        for row in await self.database.rows(query("personal.summaries"), scope.keys):
            yield as_json(row)

    async def erase(self, scope: PersonalScope) -> int:
        """As in the port."""
        found = await self.database.rows(query("personal.lanes_of_summaries"), *sender_columns(scope), scope.keys)
        lanes, groups = [row["lane"] for row in found], [row["lane"] for row in found if row["among_others"]]
        sql, erased = query("personal.erase_summaries"), 0
        for start in range(0, len(lanes), _HISTORIES_AT_ONCE):
            batch = lanes[start : start + _HISTORIES_AT_ONCE]
            erased += int(await self.database.value(sql, batch, scope.keys, groups))
        return erased


class StoredPersonalFacts(Struct, frozen=True):
    """What butlers have learned from the person. Keyed hashes stay, by which it is not learned again."""

    database: Database
    after_batch: Callable[[str], None]
    name: str = "facts"

    async def count(self, scope: PersonalScope) -> int:
        """As in the port."""
        return len(await self.database.rows(query("personal.facts_by"), scope.person_id, scope.keys, _LAST, _ALL))

    async def export(self, scope: PersonalScope) -> AsyncIterator[JsonMapping]:
        """As in the port, but the newest first."""
        sql, below = query("personal.facts"), _LAST
        while rows := await self.database.rows(sql, scope.person_id, scope.keys, below, _AT_ONCE):
            for row in rows:
                yield as_json(row) | {"sources": from_json(row["sources"])}
            below = rows[-1]["fact_id"]

    async def erase(self, scope: PersonalScope) -> int:
        """As in the port, with what turns noted that were told of it."""
        sql = query("personal.facts_by")
        return await _forget_found(self.database, sql, scope, lambda: self.after_batch(self.name))


class StoredFactsAbout(Struct, frozen=True):
    """What others have said about the person. It is theirs, and not handed out."""

    database: Database
    after_batch: Callable[[str], None]
    name: str = "facts by others"

    async def count(self, scope: PersonalScope) -> int:
        """As in the port."""
        return len(await self.database.rows(query("personal.facts_about"), scope.person_id, scope.keys, _LAST, _ALL))

    async def export(self, scope: PersonalScope) -> AsyncIterator[JsonMapping]:  # noqa: ARG002
        """Nothing: others may have said it in private."""
        for item in tuple[JsonMapping, ...]():
            yield item

    async def erase(self, scope: PersonalScope) -> int:
        """As in the port."""
        sql = query("personal.facts_about")
        return await _forget_found(self.database, sql, scope, lambda: self.after_batch(self.name))


class StoredTurnsOfOthers(Struct, frozen=True):
    """What turns noted for others, where the person wrote among them: such a turn is shown what was said before."""

    database: Database
    after_batch: Callable[[str], None]
    name: str = "turns of others"

    async def count(self, scope: PersonalScope) -> int:
        """As in the port."""
        return (await count_turns_of_others(self.database, scope)).ended

    async def export(self, scope: PersonalScope) -> AsyncIterator[JsonMapping]:  # noqa: ARG002
        """Nothing: what the person said there is among their messages."""
        for item in tuple[JsonMapping, ...]():
            yield item

    async def erase(self, scope: PersonalScope) -> int:
        """As in the port."""
        sql, erased, after = query("personal.turns_of_others"), 0, UUID(int=0)
        while rows := await self.database.rows(sql, *sender_columns(scope), after, _AT_ONCE):
            ids = [row["request_id"] for row in rows]
            await self.database.run(query("personal.erase_turns"), ids)
            erased, after = erased + len(ids), ids[-1]
            self.after_batch(self.name)
        return erased


class StoredPersonalAliases(Struct, frozen=True):
    """Other names that the person, as an owner, has given whom facts are about, and those of the person's own name."""

    database: Database
    about: StoredFactsAbout
    name: str = "aliases"

    async def count(self, scope: PersonalScope) -> int:
        """As in the port."""
        return len([one async for one in self.export(scope)])

    async def export(self, scope: PersonalScope) -> AsyncIterator[JsonMapping]:
        """As in the port."""
        for one in rows_as(PersonalAlias, await self.database.rows(query("aliases.personal"), *_alias_columns(scope))):
            yield to_builtins(one)

    async def erase(self, scope: PersonalScope) -> int:
        """As in the port; first what is about such a name, which is found by it."""
        await self.about.erase(scope)
        return await self.database.change_rows(query("aliases.erase"), *_alias_columns(scope))


def _alias_columns(scope: PersonalScope) -> tuple[list[str], str]:
    return list(scope.keys), scope.person_id


def stored_personal(
    database: Database, channels: Channels = CHANNELS, after_batch: Callable[[str], None] = lambda _: None
) -> tuple[KeepsPersonal, ...]:
    """Everything in the database that keeps something of a person.

    `after_batch` is called after each transaction that has erased something, with what is kept there.
    """
    about = StoredFactsAbout(database, after_batch)
    return (
        StoredContacts(database),
        StoredMessages(database, channels, after_batch),
        StoredMemoPages(database, after_batch),
        StoredEntries(database, after_batch),
        StoredSummaries(database),
        StoredPersonalFacts(database, after_batch),
        about,
        StoredTurnsOfOthers(database, after_batch),
        StoredPersonalAliases(database, about),
    )


async def _forget_found(database: Database, sql: str, scope: PersonalScope, after_batch: Callable[[], None]) -> int:
    """Forget all facts that a statement finds, and what turns noted that were told of them."""
    erased = 0
    while found := await database.rows(sql, scope.person_id, scope.keys, _LAST, _AT_ONCE):
        await database.run(query("personal.erase_told"), [row["text"] for row in found])
        erased += sum([await facts.forget(database, row["fact_id"]) for row in found])
        after_batch()
    return erased


async def _repeat_batches(erase_batch: Callable[[], Awaitable[int]], after_batch: Callable[[], None]) -> int:
    erased = 0
    while count := await erase_batch():
        erased += count
        after_batch()
    return erased
