"""Dead letters: what nobody could take, whole, why, who was told, and what was done with it.

Read by `app/letters.py`, `app/views.py` and `app/explain.py`; `app/letters.py` reroutes and handles them,
`app/upkeep.py` tells of them and empties old ones. They come into being in `bury` of schema.sql. Each writing function
is one transaction. Next: `store/connectors.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal
from uuid import UUID

import msgspec

from switchboard.domain.message import Conversation
from switchboard.domain.routing import Decision, Target, TeamId
from switchboard.store.database import Database, Row, query, seconds, storable_text, to_storable_json
from switchboard.store.ids import new_uuid7
from switchboard.store.inbox import TIERS, turn_lane

Status = Literal["pending", "handled"]


@dataclass(frozen=True, slots=True)
class ShownDeadLetter:
    """A dead letter without its payload; of that the sender and how the text begins, as long as it is kept.

    Of a message that a model split, `text` is of what came to the reader's team, and `part` what died here (None: all).

    `handler` is the System4 that was told, if the team has one.

    `handled_by_system_id` is a system, or the name of an operator's token; `rerouted_n` the decision that took it back.
    """

    dead_letter_id: UUID
    request_id: UUID
    conversation: str
    team_id: str
    channel: str
    category: str
    reason: str
    system_id: str | None
    handler: str | None
    status: str
    handled_by_system_id: str | None
    resolution: str | None
    received_at: datetime
    created_at: datetime
    handled_at: datetime | None
    rerouted_n: int | None
    sender_told_at: datetime | None
    emptied_at: datetime | None
    sender: str | None
    text: str | None
    part: str | None


@dataclass(frozen=True, slots=True)
class Notice:
    """A dead letter told to the System4 that handles it; a digest tells of several (`letters`)."""

    dead_letter_id: UUID
    lane: str
    seq: int
    team_id: str
    system_id: str
    state: str
    error_class: str | None
    attempts: int
    created_at: datetime
    settled_at: datetime | None
    letters: int


@dataclass(frozen=True, slots=True)
class Remains:
    """What a dead letter keeps of its message: the envelope without `payload.raw`, and the bytes as they arrived.

    `seen`: what of the text came to the reader's team; None: the whole, and he may see the bytes.
    """

    payload: Mapping[str, Any]
    raw: bytes
    seen: str | None


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Which dead letters; what is None does not count. They died in [since, until)."""

    teams: Sequence[str] | None = None
    status: Status | None = None
    category: str | None = None
    channel: str | None = None
    system_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    ids: Sequence[UUID] | None = None

    def values(self) -> list[object]:
        """As the parameters of the queries that filter."""
        teams = None if self.teams is None else list(self.teams)
        ids = None if self.ids is None else list(self.ids)
        return [teams, self.status, self.category, self.channel, self.system_id, self.since, self.until, ids]


ALL_LETTERS: Final = LetterFilter()


@dataclass(frozen=True, slots=True)
class Case:
    """What is needed to decide about a letter's message again. `facts` is None where an old release kept none.

    `taken`: the butlers that have what died of the message, or were done with it.
    """

    dead_letter_id: UUID
    request_id: UUID
    conversation: Conversation
    team_id: TeamId
    status: str
    handled_by_system_id: str | None
    resolution: str | None
    rerouted_n: int | None
    tier: Literal["high_priority", "interactive", "default", "passive"]
    facts: Mapping[str, str] | None
    taken: Sequence[str]


@dataclass(frozen=True, slots=True)
class MadeDelivery:
    """A delivery that a reroute made."""

    lane: str
    seq: int
    system_id: str
    team_id: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Who says what becomes of a letter, and why: a system or the name of an operator's token, and a sentence."""

    by: str
    resolution: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a reroute. `handled`: it was before, by decision `n` or, where that is None, by hand.

    `taken`: whoever would get it has the message already, or was done with it; nothing has changed.
    """

    state: Literal["rerouted", "handled", "taken"]
    n: int | None


@dataclass(frozen=True, slots=True)
class Untold:
    """A message whose sender does not know yet that nobody could take it; the bytes are those that arrived."""

    request_id: UUID
    channel: str
    endpoint: str
    envelope: Mapping[str, Any]
    raw: bytes
    media_type: str
    received_at: datetime


def _shown(row: Row) -> ShownDeadLetter:
    return ShownDeadLetter(**{name: row[name] for name in ShownDeadLetter.__slots__})


async def list_dead_letters(
    database: Database,
    wanted: LetterFilter,
    reader: TeamId | None = None,
    *,
    before: UUID | None = None,
    limit: int = 50,
) -> list[ShownDeadLetter]:
    """Newest first; `before` is the id of the last one of the page before.

    `reader`, here and below: the team for whom the texts are, None: for operators.
    """
    rows = await _planned(database, "dead_letters.list", before, limit, *wanted.values(), reader)
    return [_shown(row) for row in rows]


async def pending_ids(
    database: Database, wanted: LetterFilter, *, after: UUID | None = None, limit: int = 100
) -> list[UUID]:
    """Those of `wanted` that nobody has handled yet, oldest first; `after` is the last one of the page before."""
    rows = await _planned(database, "dead_letters.pending_ids", after, limit, *wanted.values())
    return [row["dead_letter_id"] for row in rows]


async def count_pending(database: Database, wanted: LetterFilter = ALL_LETTERS, *, after: UUID | None = None) -> int:
    """How many of `wanted` nobody has handled yet, from `after` on."""
    [row] = await _planned(database, "dead_letters.count_pending", after, *wanted.values())
    return int(row["count"])


async def _planned(database: Database, name: str, *values: object) -> Sequence[Row]:
    """The rows of a query that filters. A plan for all filters at once would read the whole table for each of them."""
    async with database.connection() as connection, connection.transaction(readonly=True):
        await connection.execute("set local plan_cache_mode = force_custom_plan")
        rows: Sequence[Row] = await connection.fetch(query(name), *values)
        return rows


async def dead_letters_of(database: Database, request_id: UUID, reader: TeamId | None = None) -> list[ShownDeadLetter]:
    """The dead letters of one message."""
    return [_shown(row) for row in await database.rows(query("dead_letters.of_message"), request_id, reader)]


async def get_dead_letter(
    database: Database, dead_letter_id: UUID, reader: TeamId | None = None
) -> tuple[ShownDeadLetter, Remains] | None:
    """One dead letter with what it keeps."""
    row = await database.row(query("dead_letters.get"), dead_letter_id, reader)
    return (_shown(row), Remains(row["payload"], row["raw"], row["seen"])) if row else None


async def get_case(database: Database, dead_letter_id: UUID) -> Case | None:
    """One dead letter as a case to be decided again."""
    row = await database.row(query("dead_letters.case"), dead_letter_id)
    return Case(**{name: row[name] for name in Case.__slots__}) if row else None


async def reroute(database: Database, case: Case, decision: Decision, verdict: Verdict) -> Outcome | None:
    """Give what died of it to whom `decision` chose, at the end of their lanes; None: there is no such letter."""
    row = await database.row(
        query("dead_letters.reroute"),
        case.dead_letter_id,
        verdict.by,
        storable_text(verdict.resolution),
        decision.version,
        to_storable_json(decision.trail),
        TIERS[case.tier],
        [turn_lane(c.system_id, case.conversation) for c in decision.chosen],
        [c.system_id for c in decision.chosen],
        [c.team_id for c in decision.chosen],
        [new_uuid7() for _ in decision.unrouted],
        [u.team_id for u in decision.unrouted],
        [u.category for u in decision.unrouted],
        [u.reason for u in decision.unrouted],
        [u.handler for u in decision.unrouted],
    )
    return Outcome(row["outcome"], row["n"]) if row else None


async def rerouted(database: Database, request_id: UUID, n: int) -> list[MadeDelivery]:
    """The deliveries that decision `n` made."""
    rows = await database.rows(query("dead_letters.rerouted"), request_id, n)
    return [MadeDelivery(row["lane"], row["seq"], row["system_id"], row["team_id"]) for row in rows]


async def rerouted_to(database: Database, request_id: UUID, n: int) -> Sequence[Target]:
    """To whom decision `n`, a reroute, was ordered to send the message; empty: to whomever the rules say."""
    row = await database.row(query("dead_letters.rerouted_to"), request_id, n)
    return () if row is None else msgspec.convert(row["targets"], tuple[Target, ...])


async def handle(database: Database, dead_letter_id: UUID, verdict: Verdict) -> bool:
    """Close a letter that nothing more is to be done with. False: it is not pending, or not there."""
    values = (dead_letter_id, verdict.by, storable_text(verdict.resolution))
    return await database.run(query("dead_letters.handle"), *values) == "UPDATE 1"


async def notices_of(database: Database, request_id: UUID) -> list[Notice]:
    """Who was told of the dead letters of one message."""
    rows = await database.rows(query("dead_letters.notices"), request_id)
    return [Notice(**{name: row[name] for name in Notice.__slots__}) for row in rows]


async def waiting_handlers(database: Database) -> list[str]:
    """The System4s for whom letters wait to be told in a digest."""
    return [row["handler"] for row in await database.rows(query("dead_letters.waiting_handlers"))]


async def digest(database: Database, handler: str) -> int:
    """Tell a System4 in one notice of letters that wait for it, a few hundred at most; returns of how many."""
    return int(await database.value(query("dead_letters.digest"), handler))


async def untold(database: Database, since: UUID, limit: int) -> list[Untold]:
    """Messages that died after `since` (a dead letter's id), whose sender may have to be told."""
    rows = await database.rows(query("dead_letters.untold"), since, limit)
    return [Untold(**{name: row[name] for name in Untold.__slots__}) for row in rows]


async def tell_sender(database: Database, request_id: UUID, text: str, pool: str | None) -> bool:
    """Reply to a message that nobody could take. False: not now, or not any more. `pool` is where replies wait."""
    return bool(await database.value(query("dead_letters.tell_sender"), request_id, new_uuid7(), text, pool))


async def spare_sender(database: Database, request_id: UUID) -> None:
    """Never tell the sender of this message anything."""
    await database.run(query("dead_letters.spare_sender"), request_id)


async def empty(database: Database, *, keep_days: int, limit: int) -> int:
    """Throw away payload and bytes of letters that were handled long ago; the rows stay. Returns how many."""
    tag = await database.run(query("dead_letters.empty"), seconds(keep_days * 86_400), limit)
    return int(tag.rpartition(" ")[2])
