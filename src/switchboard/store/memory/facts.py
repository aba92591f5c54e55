"""Facts learned by butlers, guarded by one function: `visible` in `sql/functions/facts.sql`.

`app/wiring.py` gives `StoredFacts` to engines; operators list, share and forget by the functions below. A statement
that reads the table `fact` directly finds nothing: its rows are under forced row security. Next:
`store/memory/history.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.memory.extraction import Learned
from switchboard.core.memory.guarding import guard_predicate
from switchboard.core.memory.predicates import (
    OTHER,
    Permanence,
    SaidBy,
    choose_permanence,
    find_predicate,
    may_be_shown_to_groups,
)
from switchboard.core.memory.settling import SELF, rivals_of
from switchboard.core.people.handle import handle_behind
from switchboard.core.text.storable import storable_text, to_storable_json
from switchboard.domain.json_values import JsonObject
from switchboard.domain.ledger import LaneKey
from switchboard.domain.message import Conversation
from switchboard.domain.routing import SystemId
from switchboard.domain.shown import FactSource, ShownFact, ShownStanding
from switchboard.ports.embedder import Embedder
from switchboard.ports.engine import Turn
from switchboard.ports.facts import EntityAlias, Fact, Reader
from switchboard.store.database import Database, query, row_as, rows_as
from switchboard.store.ids import new_uuid7
from switchboard.store.memory import aliases, told
from switchboard.store.memory.fact_terms import UnreadFact, languages_of, terms_row
from switchboard.store.memory.history import HistoryAddition, StoredReaders
from switchboard.store.memory.readers import handle_columns, reader_columns
from switchboard.store.memory.search import FactSearch
from switchboard.store.memory.standing import hold_at, settle, settle_around

_TURN_WAITS_S: Final = 0.2
"""How long a turn waits for the vector of its message."""
_MOST_STATED: Final = 100_000
"""Facts of one author among which one is looked for."""
_NOBODY: Final = ""
"""Instead of an author: a mark of words alone."""


class StoredFacts(Struct, frozen=True):
    """`Facts` in PostgreSQL."""

    database: Database
    readers: StoredReaders
    embedder: Embedder | None = None
    """Without one, facts are found by their words alone."""

    async def visible(self, turn: Turn, limit: int = 100) -> Sequence[Fact]:
        """As in the port."""
        return await self._find_visible(await self.readers.of(turn), limit)

    async def find_own(self, turn: Turn, words: str, limit: int) -> Sequence[Fact]:
        """As in the port."""
        who, search = await self.readers.of(turn), replace(self.search, own_only=True)
        return [one.fact for one in await search.search_facts(who, words, limit, turn.received_at)]

    async def choose(self, turn: Turn, limit: int) -> Sequence[Fact]:
        """As in the port."""
        who = await self.readers.of(turn)
        latest, relevant = await asyncio.gather(
            self.search.find_latest(who, limit, turn.received_at),
            replace(self.search, patience_s=_TURN_WAITS_S).search_facts(who, turn.text, limit, turn.received_at),
        )
        chosen = {one.fact_id: one for one in (*latest.of_safety, *(one.fact for one in relevant), *latest.all)}
        return list(chosen.values())[:limit]

    async def is_forgotten(self, turn: Turn, texts: Collection[str], position: int) -> bool:
        """As in the port."""
        who, keys = await self.readers.of(turn), await self.database.keys()
        marks = [UUID(keys.fact(who.system_id, who.person, text)) for text in texts]
        words = [UUID(keys.fact(who.system_id, _NOBODY, text)) for text in texts]
        given = (marks, who.system_id, who.conversation, position, turn.request_id, words, *handle_columns(who))
        return bool(await self.database.value(query("facts.is_forgotten"), *given))

    async def may_change(self, turn: Turn, fact_ids: Collection[UUID], *, as_owner: bool) -> Collection[UUID]:
        """As in the port."""
        return await told.may_change(self.database, await self.readers.of(turn), fact_ids, as_owner=as_owner)

    async def forget(self, turn: Turn, fact_ids: Collection[UUID], *, as_owner: bool) -> int:
        """As in the port."""
        theirs = await self.may_change(turn, fact_ids, as_owner=as_owner)
        return int(await self.database.value(query("told.forget"), list(theirs))) if theirs else 0

    async def aliases(self, turn: Turn) -> Sequence[EntityAlias]:
        """As in the port."""
        return await aliases.list_aliases(self.database, turn.member.system_id)

    async def link_entity(self, turn: Turn, name: str, alias: str) -> bool:
        """As in the port."""
        by = (await self.readers.of(turn)).person
        return await aliases.link(self.database, turn.member.system_id, aliases.Naming(name, alias), by)

    async def unlink_entity(self, turn: Turn, name: str, alias: str) -> bool:
        """As in the port."""
        return await aliases.unlink(self.database, turn.member.system_id, aliases.Naming(name, alias))

    async def is_learning(self, turn: Turn) -> bool:
        """As in the port."""
        return await self.database.value(query("told.is_learning"), turn.request_id) is not False

    async def share(self, turn: Turn, fact_id: UUID) -> bool:
        """As in the port."""
        who = await self.readers.of(turn)
        given = (fact_id, who.system_id, who.person, who.authentic, False)
        return bool(await self.database.value(query("facts.share"), *given, *handle_columns(who)))

    @property
    def search(self) -> FactSearch:
        """What finds facts."""
        return FactSearch(self.database, self.embedder)

    async def _find_visible(self, who: Reader, limit: int) -> list[Fact]:
        given = (*reader_columns(who), limit, *handle_columns(who))
        found = rows_as(Fact, await self.database.rows(query("facts.visible"), *given))
        settled = await settle(self.database, who, [one.fact_id for one in found])
        return hold_at(found, settled, datetime.now(UTC))


class NewFact(Struct, frozen=True):
    """A new fact. `positions`: the entries that it cites; `private`: its author was alone with the butler.

    `value`: what is said of the subject, empty: all of the text. `said_at`: None, when the entries were said, or now;
    `run`: the consolidation that found it.
    """

    author: str
    subject: str
    private: bool
    text: str
    positions: tuple[int, ...]
    predicate: str = OTHER.name
    value: str = ""
    denied: bool = False
    said_by: SaidBy = "other"
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    importance: float = 0.5
    permanence: Permanence = "stable"
    said_at: datetime | None = None
    run: UUID | None = None


def new_fact(learned: Learned, run: UUID | None = None) -> NewFact:
    """What a model has found in an entry."""
    return NewFact(
        learned.author,
        learned.subject,
        learned.private,
        learned.text,
        (learned.position,),
        learned.predicate,
        learned.value,
        learned.denied,
        learned.said_by,
        learned.valid_from,
        learned.valid_to,
        run=run,
    )


async def fact_rows(database: Database, system_id: SystemId, facts: Sequence[NewFact]) -> str:
    """The rows that `save_facts` takes."""
    languages = await languages_of(database) if facts else ()
    return to_storable_json([await _fact_row(database, system_id, one, languages) for one in facts])


async def _fact_row(database: Database, system_id: SystemId, fact: NewFact, languages: Collection[str]) -> JsonObject:
    keys, handle = await database.keys(), handle_behind(fact.author)
    predicate, fact_id = guard_predicate(find_predicate(fact.predicate), fact.text), new_uuid7()
    return {
        "fact_id": fact_id,
        "author": fact.author,
        "subject": fact.subject,
        "space": "private" if fact.private else "group",
        "text": fact.text,
        "mark": UUID(keys.fact(system_id, fact.author, fact.text)),
        "words": UUID(keys.fact(system_id, _NOBODY, fact.text)),
        "handle": None if handle is None else (handle.channel, handle.realm, handle.identity),
        "positions": fact.positions,
        "predicate": predicate.name,
        "value": fact.value,
        "denied": fact.denied,
        "said_by": "subject" if fact.subject == SELF else fact.said_by,
        "valid_from": fact.valid_from,
        "valid_to": fact.valid_to,
        "importance": fact.importance,
        "permanence": choose_permanence(predicate, fact.permanence),
        "rivals": rivals_of(fact.subject, predicate, fact.value or fact.text),
        "special": not may_be_shown_to_groups(predicate),
        "said_at": fact.said_at,
        "run": fact.run,
        "terms": terms_row(UnreadFact(fact_id, fact.subject, fact.text, predicate.name), languages),
    }


async def remembered_rows(database: Database, said: Iterable[tuple[LaneKey, HistoryAddition]]) -> str | None:
    """What `settle_turns_with_facts` takes, a row for each fact; None if there are none."""
    kept = [
        (lane, one.reader, words)
        for lane, one in said
        for words in (one.remembered if one.reader.authentic and one.reader.person else ())
    ]
    languages = await languages_of(database) if kept else ()
    rows = list[JsonObject]()
    for lane, who, words in kept:
        fact = NewFact(
            *(who.person, words.subject, who.private, words.text, (words.position,), words.predicate),
            said_by=words.said_by,
            valid_to=words.until,
        )
        rows.append({"lane": lane, **await _fact_row(database, who.system_id, fact, languages)})
    return to_storable_json(rows) if rows else None


async def save(database: Database, lane: LaneKey, system_id: SystemId, facts: Sequence[NewFact]) -> int:
    """Keep the facts learned in this lane, except forgotten ones; returns how many are new."""
    rows = await fact_rows(database, system_id, facts)
    return int(await database.value(query("facts.save"), lane, rows))


async def learn(database: Database, reader: Reader, fact: NewFact) -> int:
    """The same for one fact that this reader states outside turns."""
    rows = await fact_rows(database, reader.system_id, [fact])
    return int(await database.value(query("facts.learn"), reader.system_id, reader.conversation, rows))


async def find_stated(database: Database, reader: Reader, text: str) -> ShownFact | None:
    """The fact with these words of this author that only they are told, or everybody; None: it was forgotten."""
    keys, told_to = await database.keys(), (f"private:{reader.person}", "shared")
    mark = keys.fact(reader.system_id, reader.person, text)
    known = await list_facts(database, reader.system_id, reader.person, None, _MOST_STATED)
    same = (one for one in known if keys.fact(reader.system_id, reader.person, one.text) == mark)
    return next((one for one in same if one.space in told_to), None)


async def list_facts(
    database: Database, system_id: str | None, author: str | None, below: UUID | None, limit: int
) -> list[ShownFact]:
    """The newest first, for operators."""
    return rows_as(ShownFact, await database.rows(query("facts.list"), system_id, author, below, limit))


async def search_facts(
    database: Database, words: str, system_id: str | None, below: UUID | None, limit: int
) -> list[ShownFact]:
    """Those with any of these words, the newest first, for operators."""
    given = system_id, below, storable_text(words), limit
    return rows_as(ShownFact, await database.rows(query("facts.search"), *given))


class CountedFacts(Struct, frozen=True):
    """How many facts a butler has of an author, and since when the newest."""

    system_id: str
    author: str
    facts: int
    newest: datetime


async def count_facts(database: Database, most: int) -> list[CountedFacts]:
    """Of the newest `most` facts those that count, by butler and author, the latest learned first."""
    return rows_as(CountedFacts, await database.rows(query("facts.counted"), most))


async def list_named(database: Database, fact_ids: Collection[UUID]) -> list[ShownFact]:
    """These facts, as far as there are such."""
    return rows_as(ShownFact, await database.rows(query("facts.named"), list(fact_ids)))


async def find_standing(database: Database, fact: ShownFact) -> ShownStanding:
    """What became of a fact, as its author is told: only statements of its space have to do with it."""
    space, _, where = fact.space.partition(":")
    conversation = Conversation(where if space == "group" else "")
    reader = Reader(SystemId(fact.system_id), conversation, fact.author, private=space != "group")
    settled = await settle_around(database, reader, [fact.fact_id])
    if (found := settled.get(fact.fact_id)) is None:
        return ShownStanding(None, None, ())
    replaces = sorted(one.fact_id for one in settled.values() if one.superseded_by == fact.fact_id)
    return ShownStanding(found.superseded_by, found.confirms, found.contradicts, replaces)


async def get_fact(database: Database, fact_id: UUID) -> tuple[ShownFact, list[FactSource]] | None:
    """A fact with the entries that it cites, for operators."""
    fact = row_as(ShownFact, await database.row(query("facts.get"), fact_id))
    return None if fact is None else (fact, rows_as(FactSource, await database.rows(query("facts.sources"), fact_id)))


async def share_as_operator(database: Database, fact_id: UUID) -> bool:
    """Make a fact visible to everyone who talks to the butler. False: no such fact."""
    return bool(await database.value(query("facts.share"), fact_id, "", "", False, True, None, None, None))


async def forget(database: Database, fact_id: UUID) -> int:
    """Forget a fact permanently, with others that contain it; returns how many facts were removed."""
    return int(await database.value(query("facts.forget"), fact_id))


async def undo(database: Database, fact_id: UUID) -> bool:
    """Count a fact as never said. It stays for operators to see. False: there is none, or it was undone before."""
    return bool(await database.value(query("facts.undo"), fact_id))


async def forgotten_here(database: Database) -> str:
    """SQL that tells a newly restored schema what this one has forgotten."""
    rows = await database.rows(query("facts.forgotten"))
    sql = "insert into switchboard.forgotten (fact_id, mark) values ('{fact_id}', '{mark}') on conflict do nothing;\n"
    return "".join(sql.format(**row) for row in rows)
