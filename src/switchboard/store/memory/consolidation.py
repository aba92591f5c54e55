"""What was said since facts were last looked for, the runs in which models are asked for them, and what came of these.

`journey/consolidation.py` claims conversations, asks a model outside of any transaction, and commits; operators list
and undo runs. Next: `sql/functions/consolidation.sql`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, Literal
from uuid import UUID

from msgspec import Raw, Struct

from switchboard.core.memory.consolidation import ENOUGH, SaidInSpace
from switchboard.core.memory.extraction import LearnableEntry, Learned
from switchboard.core.text.storable import storable_text
from switchboard.core.uuid7 import first_uuid7
from switchboard.domain.ledger import LaneKey
from switchboard.domain.llm import Usage
from switchboard.domain.routing import SystemId
from switchboard.domain.shown import ShownRun
from switchboard.store.database import Database, query, row_as, rows_as, to_json
from switchboard.store.ids import new_uuid7
from switchboard.store.memory.compaction import read_line
from switchboard.store.memory.facts import fact_rows, new_fact

AFTER: Final = timedelta(days=1)
"""After so long, little that was said is looked through, too."""


_AT_ONCE: Final = 1000


class NewlySaid(Struct, frozen=True):
    """What was said in a conversation after the entry `after`, up to `last`. `mark` changes with it."""

    lane: LaneKey
    system_id: SystemId
    after: int
    last: int
    mark: str
    lines: tuple[LearnableEntry, ...]
    turns: tuple[UUID, ...]
    """Of each line, its turn."""


class FailingConsolidations(Struct, frozen=True):
    """In how many conversations facts were looked for in vain three times in a row, and why the last time."""

    conversations: int
    reason: str


async def claim(database: Database, limit: int, lease: timedelta) -> list[LaneKey]:
    """Conversations of butlers with enough that is new; each becomes available to others after `lease`, or longer."""
    rows = await database.rows(query("consolidation.claim"), limit, lease, ENOUGH, AFTER)
    return [LaneKey(row["lane"]) for row in rows]


async def load(database: Database, lane: LaneKey, most: int) -> NewlySaid | None:
    """What is new in a conversation, in at most so many turns; None: nothing."""
    found = await database.row(query("consolidation.news"), lane, most)
    if found is None:
        return None
    rows = await database.rows(query("consolidation.lines"), lane, found["after"] + 1, found["last"])
    where = SystemId(found["system_id"]), found["after"], found["last"], found["mark"]
    return NewlySaid(lane, *where, tuple(map(read_line, rows)), tuple(row["request_id"] for row in rows))


async def begin(database: Database, said: NewlySaid, space: SaidInSpace, tokens: int, budget: int) -> UUID | None:
    """Begin to ask for the facts of a space; None: the butler has not so many tokens left of those of a day."""
    run, known = new_uuid7(), {one.position for one in space.lines}
    turns = {turn for line, turn in zip(said.lines, said.turns, strict=True) if line.position in known}
    read = (space.lines[0].position, space.lines[-1].position, len(turns))
    begun = await database.value(query("consolidation.begin"), run, said.lane, space.person, *read, tokens, budget)
    return run if begun else None


async def note_cost(database: Database, run: UUID, model: str, spent: Usage) -> None:
    """Record what was spent, as soon as it is."""
    await database.run(query("consolidation.note"), run, model, spent.tokens, spent.cost_usd)


async def end(
    database: Database, runs: Sequence[UUID], outcome: Literal["rejected", "failed", "stale"], reason: str
) -> None:
    """Record that nothing came of runs."""
    await database.run(query("consolidation.end"), list(runs), outcome, storable_text(reason)[:500])


async def postpone(database: Database, lane: LaneKey, delay: timedelta) -> None:
    """Try a conversation again after a delay."""
    await database.run(query("consolidation.postpone"), lane, delay)


async def commit(database: Database, said: NewlySaid, found: Mapping[UUID, Sequence[Learned]]) -> bool:
    """Keep what runs have found, all of it or nothing. False: something has changed meanwhile, and nothing is done."""
    rows = list[dict[str, object]]()
    for run, facts in found.items():
        learned = await fact_rows(database, said.system_id, [new_fact(one, run) for one in facts])
        rows.append({"run": run, "facts": Raw(learned.encode())})
    given = said.lane, said.after, said.last, said.mark, to_json(rows)
    return bool(await database.value(query("consolidation.commit"), *given))


async def find_failing(database: Database) -> FailingConsolidations | None:
    """None: there are none."""
    return row_as(FailingConsolidations, await database.row(query("consolidation.failing")))


async def list_runs(database: Database, system_id: str | None, below: UUID | None, limit: int) -> list[ShownRun]:
    """The newest first, for operators."""
    return rows_as(ShownRun, await database.rows(query("consolidation.list"), system_id, below, limit))


async def undo_run(database: Database, run: UUID) -> int | None:
    """Count what a run has found as never said; returns how many facts that are. None: there is no such run."""
    found: int | None = await database.value(query("consolidation.undo"), run)
    return found


async def forget_old_runs(database: Database, keep_days: int) -> int:
    """Remove old runs, which can then no longer be undone; returns how many. What they found stays."""
    below, gone = first_uuid7(datetime.now(UTC) - timedelta(days=keep_days)), 0
    while count := await database.change_rows(query("consolidation.forget"), below, _AT_ONCE):
        gone += count
    return gone
