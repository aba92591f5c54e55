"""The oldest entries of histories, and the summaries and facts that replace them.

`journey/compaction.py` claims lanes that are due, asks a model outside of any transaction, and commits. Next:
`sql/functions/compaction.sql`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final
from uuid import UUID

from msgspec import Struct

from switchboard.core.memory.compaction import Compacted, audience_of
from switchboard.core.memory.extraction import LearnableEntry
from switchboard.core.turns.entries import with_own_words
from switchboard.core.turns.window import STRIDE, WINDOW
from switchboard.domain.ledger import LaneKey
from switchboard.domain.message import Conversation
from switchboard.domain.routing import SystemId
from switchboard.domain.shown import ShownSummary
from switchboard.ports.history import Entry
from switchboard.store.database import Database, Row, part_as, query, rows_as
from switchboard.store.ids import new_uuid7
from switchboard.store.memory.facts import fact_rows, new_fact

RESTORABLE: Final = timedelta(days=30)
"""For so long compacted entries stay, and can be restored."""
MOST_TRIES: Final = 3
"""After so many, a lane waits for its next turn; the statements have the number, too."""


class Range(Struct, frozen=True):
    """The entries to compact, as read. `mark` changes with them; `before` is (person, private) of `summary`.

    `told`: whether any of it has others' words, or was written after others' words were read.
    """

    lane: LaneKey
    system_id: SystemId
    first: int
    last: int
    mark: str
    lines: tuple[LearnableEntry, ...]
    summary: str = ""
    before: tuple[tuple[str, bool], ...] = ()
    told: bool = False


class CompactionStanding(Struct, frozen=True):
    """How many entries of a lane no summary stands for, and how often one was tried in vain."""

    lane: LaneKey
    entries: int
    tries: int


async def claim(database: Database, limit: int, lease: timedelta) -> list[LaneKey]:
    """Lanes that are due; each becomes available to others after `lease`."""
    return [LaneKey(row["lane"]) for row in await database.rows(query("compaction.claim"), limit, lease)]


async def claim_of(
    database: Database, system_id: SystemId, conversations: Sequence[Conversation], lease: timedelta
) -> list[LaneKey]:
    """The same for the lanes of a butler in these conversations."""
    rows = await database.rows(query("compaction.claim_of"), system_id, conversations, lease)
    return [LaneKey(row["lane"]) for row in rows]


async def standings(
    database: Database, system_id: SystemId, conversations: Sequence[Conversation]
) -> list[CompactionStanding]:
    """Those of these conversations of a butler that have entries without a summary."""
    return rows_as(CompactionStanding, await database.rows(query("compaction.standings"), system_id, conversations))


async def load(database: Database, lane: LaneKey) -> Range | None:
    """The entries to compact; None if there are none any more."""
    found = await database.row(query("compaction.range"), lane, STRIDE, WINDOW)
    if found is None:
        await database.run(query("compaction.not_due"), lane, WINDOW)
        return None
    rows = await database.rows(query("compaction.lines"), lane, found["first"], found["last"])
    lines = tuple(map(read_line, rows))
    before = found["text"] is not None and bool(found["text"])
    return Range(
        lane,
        SystemId(found["system_id"]),
        found["first"],
        found["last"],
        found["mark"],
        lines,
        found["text"] if before else "",
        ((found["person"], found["private"]),) if before else (),
        any(one.told for one in lines) or (before and found["told"] is not False),
    )


def read_line(row: Row) -> LearnableEntry:
    """An entry; of one in which nobody noted whose words it has, the text is read."""
    noted = {"own": row["own"], "told": bool(row["told"])}
    if row["told"] is None:
        read = with_own_words(Entry(row["role"], row["text"], row["person"]))
        noted = {"own": read.own, "told": bool(read.told)}
    return part_as(LearnableEntry, {**row, **noted})


async def commit(database: Database, read: Range, made: Compacted) -> bool:
    """Replace the entries by summary and facts. False: something changed meanwhile, and nothing is done."""
    told = [*read.before, *((one.person, one.private) for one in read.lines if one.learn)]
    whose = audience_of(told)
    person, private = whose or ("", True)
    summary_id = new_uuid7()
    learned = await fact_rows(database, read.system_id, [new_fact(one) for one in made.facts])
    async with database.transaction() as one:
        committed = await one.value(
            query("compaction.commit"),
            *(read.lane, read.first, read.last, read.mark, summary_id, person, private),
            *("" if whose is None else made.summary, learned, WINDOW),
        )
        await one.run(query("compaction.note_told"), summary_id, read.told)
    return bool(committed)


async def list_summaries(
    database: Database, system_id: str | None, below: UUID | None, limit: int
) -> Sequence[ShownSummary]:
    """The newest first, for operators."""
    return rows_as(ShownSummary, await database.rows(query("compaction.list"), system_id, below, limit))


async def restore(database: Database, summary_id: UUID) -> int | None:
    """Restore the entries of a summary, and of those after it; returns how many. None: no such summary."""
    if not await database.value(query("compaction.exists"), summary_id):
        return None
    return int(await database.value(query("compaction.restore"), summary_id))


async def erase_summaries(database: Database, below: UUID, limit: int) -> int:
    """Erase the text of at most `limit` summaries before an id; returns how many."""
    return await database.change_rows(query("compaction.erase_summaries"), below, limit)


async def erase(database: Database, limit: int) -> int:
    """Erase entries that can no longer be restored; returns how many."""
    return await database.change_rows(query("compaction.erase"), RESTORABLE, limit)
