"""What became of facts by the time they are read: which still hold, which confirm and which contradict each other.

`StoredFacts` and whoever searches facts call `settle`. In: for whom is read, and ids of facts they may see; out: the
standing of each, from all statements with which these have to do and that the same reader may see. Who is one person
is looked up again each time, so that a link that ends leaves nothing behind. Next: `core/memory/settling.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from itertools import groupby
from typing import TypeVar
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.memory.settling import (
    SELF,
    FactStanding,
    FactTopic,
    SettledFacts,
    StatedFact,
    same_value,
    settle_facts,
)
from switchboard.ports.facts import Fact, Reader
from switchboard.store.database import Database, Row, query, to_json
from switchboard.store.memory.readers import handle_columns, reader_columns

_Fact = TypeVar("_Fact", bound=Fact)


class SettledFact(Struct, frozen=True):
    """What became of a fact. `said_at`: when it was last said, in whatever words; it is active if no other fact took
    its place or is the one it confirms.
    """

    fact_id: UUID
    said_at: datetime
    superseded_by: UUID | None = None
    confirms: UUID | None = None
    contradicts: tuple[UUID, ...] = ()
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    """The time for which it was last said."""

    @property
    def active(self) -> bool:
        """Whether it holds, and is the one by which it is known."""
        return self.superseded_by is None and self.confirms is None


async def settle(
    database: Database, reader: Reader, fact_ids: Collection[UUID], as_of: datetime | None = None
) -> Mapping[UUID, SettledFact]:
    """The standing of those of these facts that the reader may see. Raises `Unavailable`.

    `as_of`: as it was then, without what was said, or held, only later.
    """
    settled = await settle_around(database, reader, fact_ids, as_of)
    return {fact_id: settled[fact_id] for fact_id in fact_ids if fact_id in settled}


async def settle_around(
    database: Database, reader: Reader, fact_ids: Collection[UUID], as_of: datetime | None = None
) -> Mapping[UUID, SettledFact]:
    """The same, and the standing of all facts with which these have to do."""
    if not fact_ids:
        return {}
    given = (*reader_columns(reader), list(fact_ids), *handle_columns(reader))
    said = map(statement_of, await database.rows(query("facts.statements"), *given))
    return settle_statements(
        (fact_id, one) for fact_id, one in said if as_of is None or (one.valid_from or one.said_at) <= as_of
    )


def settle_statements(statements: Iterable[tuple[UUID, StatedFact]]) -> Mapping[UUID, SettledFact]:
    """The standing of facts, from what was said of each, and when."""
    told = {one.fact_id: (fact_id, one) for fact_id, one in statements}
    settled = settle_facts(one for _, one in told.values())
    fact_of = {statement_id: fact_id for statement_id, (fact_id, _) in told.items()}
    in_order = sorted(told, key=lambda one: (fact_of[one], told[one][1].said_at, one))
    standings = {
        fact_id: _standing_of(fact_id, [settled.standings[one] for one in same], fact_of)
        for fact_id, same in groupby(in_order, fact_of.__getitem__)
    }
    said = [(one, stated.said_at) for one, (_, stated) in told.items()]
    last, rivals = _find_last(said, settled, fact_of), _find_rivals(settled, fact_of)
    periods = {fact_of[one]: (told[one][1].valid_from, told[one][1].valid_to) for one in in_order}
    return {
        fact_id: SettledFact(
            fact_id, last[fact_id], one.superseded_by, one.confirms, tuple(sorted(rivals[fact_id])), *periods[fact_id]
        )
        for fact_id, one in standings.items()
    }


def statement_of(row: Row) -> tuple[UUID, StatedFact]:
    """A fact as it was said once: that of oneself is about the person, that in private is for one person.

    What is said, where and when makes its id, so that statements of one instant have an order that no arrival changes.
    """
    person, where, said_at = row["person"], str(row["conversation"]), row["said_at"]
    parts = to_json((row["author"], row["text"], row["space"], where, said_at))
    space = {"private": f"private {person}", "group": f"group {where}"}.get(row["space"], row["space"])
    subject = f"{SELF} {person}" if row["subject"] == SELF else same_value(row["subject"])
    topic, value = FactTopic(subject, row["predicate"], space), row["value"] or row["text"]
    statement_id = UUID(bytes=sha256(parts.encode()).digest()[:16])
    how = row["said_by"], row["denied"], row["valid_from"], row["valid_to"]
    return row["fact_id"], StatedFact(statement_id, topic, value, person, said_at, *how)


def hold_at(facts: Sequence[_Fact], settled: Mapping[UUID, SettledFact], now: datetime) -> list[_Fact]:
    """Those of these facts that are active and not over, as they stand."""
    known = [(one, found) for one in facts if (found := settled.get(one.fact_id)) is not None and found.active]
    return [
        replace(
            one,
            said_at=found.said_at,
            contradicts=found.contradicts,
            valid_from=found.valid_from,
            valid_to=found.valid_to,
        )
        for one, found in known
        if found.valid_to is None or now < found.valid_to
    ]


def _standing_of(fact_id: UUID, said: Sequence[FactStanding], fact_of: Mapping[UUID, UUID]) -> FactStanding:
    """The standing of a fact, from those of its statements, the oldest first: one that holds is enough."""
    holding = [one for one in said if one.superseded_by is None]
    if not holding:
        by = said[-1].superseded_by
        return FactStanding(superseded_by=None if by is None else fact_of[by])
    confirmed = [fact_id if one.confirms is None else fact_of[one.confirms] for one in holding]
    return FactStanding(None if fact_id in confirmed else confirmed[0])


def _find_last(
    said: Iterable[tuple[UUID, datetime]], settled: SettledFacts, fact_of: Mapping[UUID, UUID]
) -> Mapping[UUID, datetime]:
    """When each fact was said for the last time, or confirmed."""
    last = dict[UUID, datetime]()
    for statement_id, at in said:
        head = settled.standings[statement_id].confirms or statement_id
        for fact_id in {fact_of[statement_id], fact_of[head]}:
            last[fact_id] = max(at, last.get(fact_id, at))
    return last


def _find_rivals(settled: SettledFacts, fact_of: Mapping[UUID, UUID]) -> Mapping[UUID, set[UUID]]:
    """With which other facts each one cannot be true."""
    rivals = defaultdict[UUID, set[UUID]](set)
    for one, other in settled.contradictions:
        if fact_of[one] != fact_of[other]:
            rivals[fact_of[one]].add(fact_of[other])
            rivals[fact_of[other]].add(fact_of[one])
    return rivals
