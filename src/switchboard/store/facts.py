"""Facts learned by butlers, guarded by one function: `visible` in `sql/functions/facts.sql`.

`app/wiring.py` gives `StoredFacts` to engines; operators list, share and forget by the functions below. A statement
that reads the table `fact` directly finds nothing: its rows are under forced row security. Next: `store/history.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct

from switchboard.core.storable import to_storable_json
from switchboard.domain.ledger import LaneKey
from switchboard.domain.routing import SystemId
from switchboard.domain.shown import FactSource, ShownFact
from switchboard.ports.engine import Turn
from switchboard.ports.facts import Fact, Reader
from switchboard.store.database import Database, query, row_as, rows_as
from switchboard.store.history import StoredReaders
from switchboard.store.ids import new_uuid7


class StoredFacts(Struct, frozen=True):
    """`Facts` in PostgreSQL."""

    database: Database
    readers: StoredReaders

    async def visible(self, turn: Turn, limit: int = 100) -> Sequence[Fact]:
        """As in the port."""
        who = await self.readers.of(turn)
        rows = await self.database.rows(
            query("facts.visible"), who.system_id, who.conversation, who.person, who.private, who.authentic, limit
        )
        return rows_as(Fact, rows)

    async def share(self, turn: Turn, fact_id: UUID) -> bool:
        """As in the port."""
        who = await self.readers.of(turn)
        sql = query("facts.share")
        return bool(await self.database.value(sql, fact_id, who.system_id, who.person, who.authentic, False))


class NewFact(Struct, frozen=True):
    """A new fact. `positions`: the entries that it cites; `private`: its author was alone with the butler."""

    author: str
    subject: str
    private: bool
    text: str
    positions: tuple[int, ...]


async def fact_rows(database: Database, system_id: SystemId, facts: Sequence[NewFact]) -> str:
    """The rows that `save_facts` takes."""
    keys = await database.keys()
    return to_storable_json(
        [
            {
                "fact_id": new_uuid7(),
                "author": one.author,
                "subject": one.subject,
                "space": "private" if one.private else "group",
                "text": one.text,
                "mark": UUID(keys.fact(system_id, one.author, one.text)),
                "positions": one.positions,
            }
            for one in facts
        ]
    )


async def save(database: Database, lane: LaneKey, system_id: SystemId, facts: Sequence[NewFact]) -> int:
    """Keep the facts learned in this lane, except forgotten ones; returns how many are new."""
    rows = await fact_rows(database, system_id, facts)
    return int(await database.value(query("facts.save"), lane, rows))


async def learn(database: Database, reader: Reader, fact: NewFact) -> int:
    """The same for one fact that this reader states outside turns."""
    rows = await fact_rows(database, reader.system_id, [fact])
    return int(await database.value(query("facts.learn"), reader.system_id, reader.conversation, rows))


async def list_facts(
    database: Database, system_id: str | None, author: str | None, below: UUID | None, limit: int
) -> list[ShownFact]:
    """The newest first, for operators."""
    return rows_as(ShownFact, await database.rows(query("facts.list"), system_id, author, below, limit))


async def get_fact(database: Database, fact_id: UUID) -> tuple[ShownFact, list[FactSource]] | None:
    """A fact with the entries that it cites, for operators."""
    fact = row_as(ShownFact, await database.row(query("facts.get"), fact_id))
    return None if fact is None else (fact, rows_as(FactSource, await database.rows(query("facts.sources"), fact_id)))


async def share_as_operator(database: Database, fact_id: UUID) -> bool:
    """Make a fact visible to everyone who talks to the butler. False: no such fact."""
    return bool(await database.value(query("facts.share"), fact_id, "", "", False, True))


async def forget(database: Database, fact_id: UUID) -> int:
    """Forget a fact permanently, with others that contain it; returns how many facts were removed."""
    return int(await database.value(query("facts.forget"), fact_id))


async def forgotten_here(database: Database) -> str:
    """SQL that tells a newly restored schema what this one has forgotten."""
    rows = await database.rows(query("facts.forgotten"))
    sql = "insert into switchboard.forgotten (fact_id, mark) values ('{fact_id}', '{mark}') on conflict do nothing;\n"
    return "".join(sql.format(**row) for row in rows)
