"""Operators' access to butlers' memory; every read of people's words, and every change, is audited.

HTTP calls `MemoryService` with the caller's `Principal`. In: ids; out: facts and summaries. Next:
`store/memory/facts.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final
from uuid import UUID

from msgspec import Struct
from msgspec.structs import astuple

from switchboard.app.access import OPERATOR, Action, Principal
from switchboard.app.cursors import uuid_cursor
from switchboard.app.runtime import Runtime
from switchboard.core.envelope.identity import chat_conversation
from switchboard.core.memory.entities import FoundEntity, find_entities, gather_entities
from switchboard.core.memory.predicates import OTHER, SaidBy
from switchboard.core.memory.settling import SELF
from switchboard.core.memory.stating import read_predicate, read_statement, read_subject
from switchboard.core.people.handle import sender_behind
from switchboard.core.people.readers import person_named
from switchboard.domain.errors import Conflict, InvalidInput, NotFound
from switchboard.domain.routing import SystemId
from switchboard.domain.shown import FactSource, ShownEntity, ShownFact, ShownRun, ShownStanding, ShownSummary
from switchboard.ports.facts import Fact, Reader
from switchboard.store.database import Database
from switchboard.store.memory import aliases, compaction, consolidation, facts
from switchboard.store.memory.facts import CountedFacts, NewFact
from switchboard.store.people import audit
from switchboard.store.people import people as known_people
from switchboard.store.people.people import StoredNames

MEMORY: Final = Action("memory", OPERATOR)
MOST_COUNTED: Final = 5_000
"""Of so many facts, the newest, it is counted whose they are."""
_ALL: Final = 100_000
"""Facts of a butler that are read to find whom they are about."""


class FactFilter(Struct, frozen=True):
    """Selects one butler and one author; None: all."""

    system_id: str | None = None
    author: str | None = None


class StatedByOperator(Struct, frozen=True):
    """What an operator says for somebody. `author`: a person's id, or an author as lists name them."""

    system_id: SystemId
    author: str
    text: str
    subject: str = SELF
    predicate: str = OTHER.name
    shared: bool = False


class MemoryService:
    """For operators only: turns read by `StoredFacts` and `StoredHistory`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._database = runtime.database

    async def count_by_author(self) -> list[CountedFacts]:
        """How many facts there are by butler and author, of the newest; tells nothing of what they say."""
        return await facts.count_facts(self._database, MOST_COUNTED)

    async def facts(
        self, caller: Principal, wanted: FactFilter, *, limit: int, cursor: str | None
    ) -> tuple[list[ShownFact], str | None]:
        """A page, newest first, and the cursor of the next. Raises InvalidInput."""
        below = uuid_cursor(cursor)
        page = await facts.list_facts(self._database, wanted.system_id, wanted.author, below, limit)
        await _record_in_audit(
            self._database, caller, "read", {"system_id": wanted.system_id, "author": wanted.author, "facts": len(page)}
        )
        return page, str(page[-1].fact_id) if len(page) == limit else None

    async def search(
        self, caller: Principal, words: str, system_id: str | None, *, limit: int, cursor: str | None
    ) -> tuple[list[ShownFact], str | None]:
        """A page of facts with any of these words, newest first, and the cursor of the next. Raises InvalidInput."""
        below = uuid_cursor(cursor)
        page = await facts.search_facts(self._database, words, system_id, below, limit)
        await _record_in_audit(
            self._database, caller, "read", {"system_id": system_id, "words": words, "facts": len(page)}
        )
        return page, str(page[-1].fact_id) if len(page) == limit else None

    async def entities(self, caller: Principal, system_id: SystemId, words: str) -> list[ShownEntity]:
        """Whom and what facts of a butler are about; those that the words may mean, or all without words."""
        known = [_as_known(one) for one in await facts.list_facts(self._database, system_id, None, None, _ALL)]
        names = await StoredNames(self._database).of({one.author for one in known})
        gathered = gather_entities(known, await aliases.list_aliases(self._database, system_id), names)
        found = find_entities(words, gathered) if words else [FoundEntity(one, 0, "") for one in gathered]
        await _record_in_audit(self._database, caller, "read", {"system_id": system_id, "entities": len(found)})
        return [_show_entity(system_id, one) for one in found]

    async def add(self, caller: Principal, stated: StatedByOperator) -> ShownFact:
        """Keep a fact as if its author had said it alone with the butler. Raises NotFound, InvalidInput, Conflict."""
        reader, subject = await self._find_reader(stated), read_subject(stated.subject)
        text, owns = read_statement(stated.text, subject), self._runtime.rule_book.owns(reader.system_id, reader.person)
        said_by: SaidBy = "subject" if subject == SELF else "owner" if owns else "other"
        predicate = read_predicate(stated.predicate, text, said_by)
        fact = NewFact(reader.person, subject, True, text, (), predicate.name, said_by=said_by)
        async with self._database.transaction() as one:
            found = await facts.find_stated(one, reader, text)
            if found is None:
                await facts.learn(one, reader, fact)
                found = await facts.find_stated(one, reader, text)
                if found is None:
                    raise Conflict("these words were forgotten, and are not kept again; say it in other words")
                detail = {"fact_id": str(found.fact_id), "author": reader.person}
                await _record_in_audit(one, caller, "added", detail)
            if stated.shared:
                await self._share_fact(one, caller, found.fact_id, None)
        return found if not stated.shared else replace(found, space="shared")

    async def _find_reader(self, stated: StatedByOperator) -> Reader:
        """The author, alone with the butler."""
        if stated.system_id not in self._runtime.rule_book.rules.members:
            raise NotFound(f"there is no agent {stated.system_id!r}; see `switchboard agents list`")
        author = stated.author if "/" in stated.author else await self._find_author(stated.author)
        sender = sender_behind(author)
        if sender is None:
            raise InvalidInput(
                f"{author!r} is no author: name one as `switchboard memory list` does, such as telegram/bot/42",
                field="author",
            )
        self._runtime.channels.known(sender.channel, "author")
        named = astuple(sender)
        return Reader(stated.system_id, chat_conversation(*named), person_named(*named), private=True)

    async def _find_author(self, person_id: str) -> str:
        """A person as one of their handles that prove who writes; which one does not matter, since they are linked."""
        if not await known_people.list_people(self._database, only=person_id):
            raise NotFound(f"there is no person {person_id!r}; see `switchboard people list`")
        for one in await known_people.list_handles(self._database, [person_id]):
            if self._runtime.channels[one.channel].vouched:
                return person_named(one.channel, one.realm, one.identity)
        raise InvalidInput(
            f"no handle of {person_id!r} proves who writes; link one with `switchboard people link`", field="author"
        )

    async def undo(self, caller: Principal, fact_id: UUID, reason: str | None = None) -> None:
        """Count a fact as never said. Raises NotFound, Conflict."""
        async with self._database.transaction() as one:
            if not await facts.undo(one, fact_id):
                if await facts.get_fact(one, fact_id) is None:
                    raise _no_fact(fact_id)
                raise Conflict(f"fact {fact_id} counts as never said already")
            await _record_in_audit(one, caller, "undone", {"fact_id": str(fact_id)}, reason)

    async def fact(self, caller: Principal, fact_id: UUID) -> tuple[ShownFact, ShownStanding, list[FactSource]]:
        """A fact with what became of it, and its sources. Raises NotFound."""
        found = await facts.get_fact(self._database, fact_id)
        if found is None:
            raise _no_fact(fact_id)
        await _record_in_audit(self._database, caller, "read", {"fact_id": str(fact_id)})
        fact, sources = found
        return fact, await facts.find_standing(self._database, fact), sources

    async def find_facts(self, caller: Principal, fact_ids: Collection[UUID]) -> dict[UUID, ShownFact]:
        """These facts by their ids, as far as there are such."""
        if not fact_ids:
            return {}
        found = await facts.list_named(self._database, fact_ids)
        await _record_in_audit(self._database, caller, "read", {"fact_ids": sorted(map(str, fact_ids))})
        return {one.fact_id: one for one in found}

    async def share(self, caller: Principal, fact_id: UUID, reason: str | None = None) -> None:
        """Make a fact visible to everyone who talks to the butler. Raises NotFound."""
        async with self._database.transaction() as one:
            await self._share_fact(one, caller, fact_id, reason)

    async def _share_fact(self, one: Database, caller: Principal, fact_id: UUID, reason: str | None) -> None:
        found = await facts.get_fact(one, fact_id)
        if found is not None and found[0].space == "shared":
            return
        if not await facts.share_as_operator(one, fact_id):
            raise _no_fact(fact_id)
        await _record_in_audit(one, caller, "shared", {"fact_id": str(fact_id)}, reason)

    async def forget(self, caller: Principal, fact_id: UUID, reason: str | None = None) -> int:
        """Forget a fact and others that contain it; returns how many facts were removed. Raises NotFound."""
        async with self._database.transaction() as one:
            gone = await facts.forget(one, fact_id)
            if not gone:
                raise _no_fact(fact_id)
            await _record_in_audit(one, caller, "forgotten", {"fact_id": str(fact_id), "facts": gone}, reason)
        return gone

    async def runs(
        self, caller: Principal, system_id: str | None, *, limit: int, cursor: str | None
    ) -> tuple[list[ShownRun], str | None]:
        """A page of the runs that looked for facts, newest first, and the cursor of the next. Raises InvalidInput."""
        below = uuid_cursor(cursor)
        page = await consolidation.list_runs(self._database, system_id, below, limit)
        await _record_in_audit(self._database, caller, "read", {"system_id": system_id, "runs": len(page)})
        return page, str(page[-1].run) if len(page) == limit else None

    async def undo_run(self, caller: Principal, run: UUID, reason: str | None = None) -> int:
        """Count what a run has found as never said; returns how many facts that are. Raises NotFound."""
        async with self._database.transaction() as one:
            undone = await consolidation.undo_run(one, run)
            if undone is None:
                raise NotFound(f"there is no run {run}; see `switchboard memory runs`")
            if undone:
                await _record_in_audit(one, caller, "undone", {"run": str(run), "facts": undone}, reason)
        return undone

    async def summaries(
        self, caller: Principal, system_id: str | None, *, limit: int, cursor: str | None
    ) -> tuple[list[ShownSummary], str | None]:
        """A page, newest first, and the cursor of the next. Raises InvalidInput."""
        below = uuid_cursor(cursor)
        page = list(await compaction.list_summaries(self._database, system_id, below, limit))
        await _record_in_audit(self._database, caller, "read", {"system_id": system_id, "summaries": len(page)})
        return page, str(page[-1].summary_id) if len(page) == limit else None

    async def restore(self, caller: Principal, summary_id: UUID, reason: str | None = None) -> int:
        """Restore the entries of a summary, and of those after it; returns how many. Raises NotFound, Conflict."""
        async with self._database.transaction() as one:
            restored = await compaction.restore(one, summary_id)
            if restored is None:
                raise NotFound(f"there is no summary {summary_id}")
            if not restored:
                raise Conflict(
                    f"nothing of summary {summary_id} can be restored: that was done, or is over after 30 days"
                )
            detail = {"summary_id": str(summary_id), "entries": restored}
            await _record_in_audit(one, caller, "restored", detail, reason)
        return restored


async def _record_in_audit(
    database: Database, caller: Principal, done: str, detail: Mapping[str, object], reason: str | None = None
) -> None:
    given = {"reason": reason} if reason else {}
    await audit.append(database, caller.name, f"memory:{done}", {**detail, **given})


def _show_entity(system_id: SystemId, found: FoundEntity) -> ShownEntity:
    one = found.entity
    return ShownEntity(system_id, one.name, [alias.alias for alias in one.also], len(one.facts), found.why)


def _as_known(shown: ShownFact) -> Fact:
    return Fact(shown.fact_id, shown.author, shown.subject, shown.space, shown.text, shown.created_at)


def _no_fact(fact_id: UUID) -> NotFound:
    return NotFound(f"there is no fact {fact_id}: it was forgotten, or never existed")
