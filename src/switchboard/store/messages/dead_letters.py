"""Dead letters: undeliverable messages, whole, with the reason, who was notified, and what was done.

Read by `app/dead_letters/service.py`, `app/messages/views.py` and `app/messages/explain.py`;
`app/dead_letters/service.py` reroutes and handles them, `app/ops/maintenance.py` notifies of them and empties old ones.
They are created by `write_dead_letters` in SQL. Each writing function is one transaction. Next:
`store/connectors/heartbeats.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, NamedTuple
from uuid import UUID

import msgspec
from msgspec import Struct

from switchboard.core.policy.tiers import TIERS
from switchboard.core.text.storable import storable_text, to_storable_json
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.ledger import DeadLetterOrigin
from switchboard.domain.routing import Decision, Target, TeamId
from switchboard.domain.shown import MadeDelivery, Notice, ShownDeadLetter
from switchboard.store.database import Database, part_as, query, row_as, rows_as, seconds
from switchboard.store.ids import new_uuid7
from switchboard.store.messages.inbox import unpack_raw

Status = Literal["pending", "handled"]


class Remains(Struct, frozen=True):
    """What a dead letter keeps of its message: the envelope without `payload.raw`, and the original bytes.

    `seen`: the part of the text that reached the reader's team; None: the whole, and the reader may see the bytes.
    """

    payload: JsonMapping
    raw: bytes
    seen: str | None


class DeadLetterFilter(Struct, frozen=True):
    """Selects dead letters; None means any. They died in [since, until)."""

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


ALL_DEAD_LETTERS: Final = DeadLetterFilter()


@dataclass(frozen=True, slots=True)
class DeadLetterCase(DeadLetterOrigin):
    """What is needed to decide a dead letter's message again. `facts` is None if an old release stored none.

    `kept`: the message still exists. `taken`: the butlers that received the dead part, or had finished with it.
    `reply`: the reply that it is about, if not the message.
    """

    status: str
    handled_by_system_id: str | None
    resolution: str | None
    rerouted_n: int | None
    tier: Literal["high_priority", "interactive", "default", "passive"]
    kept: bool
    facts: Mapping[str, str] | None
    reply: UUID | None
    taken: Sequence[str]


class DeadLetterHandling(Struct, frozen=True):
    """Who handles a dead letter, and why: a system or the name of an operator's token, and a sentence."""

    by: str
    resolution: str


class HandlingOutcome(Struct, frozen=True):
    """The outcome of a reroute. `handled`: already handled, by decision `n` or, if that is None, manually.

    `taken`: the receivers already have the message, or had finished with it; nothing has changed.
    """

    state: Literal["rerouted", "handled", "taken"]
    n: int | None


class UntoldMessage(Struct, frozen=True):
    """An undeliverable message of which its sender has not been told; with the original bytes."""

    request_id: UUID
    channel: str
    endpoint: str
    envelope: JsonMapping
    raw: bytes
    media_type: str
    received_at: datetime


class DeadLetterReport(Struct, frozen=True):
    """A dead letter for the log and the webhook: without any of the sender's text.

    `reason` is only the kind of the failure where a butler or a model gave the reason, which may quote the message.
    """

    dead_letter_id: UUID
    request_id: UUID
    team_id: str
    channel: str
    category: str
    system_id: str | None
    reason: str
    created_at: datetime


class Backoff(NamedTuple):
    """Seconds to wait after the first failure, and at most."""

    base: float
    cap: float


async def list_dead_letters(
    database: Database,
    wanted: DeadLetterFilter,
    reader: TeamId | None = None,
    *,
    before: UUID | None = None,
    limit: int = 50,
) -> list[ShownDeadLetter]:
    """Newest first; `before` is the id of the last one of the page before.

    `reader`, here and below: the team that reads the texts, None: operators.
    """
    rows = await database.rows_with_custom_plan(query("dead_letters.list"), before, reader, *wanted.values(), limit)
    return rows_as(ShownDeadLetter, rows)


async def pending_ids(
    database: Database, wanted: DeadLetterFilter, *, after: UUID | None = None, limit: int
) -> list[UUID]:
    """The pending ones among `wanted`, oldest first; `after` is the last one of the previous page."""
    rows = await database.rows_with_custom_plan(query("dead_letters.pending_ids"), after, limit, *wanted.values())
    return [row["dead_letter_id"] for row in rows]


async def count_pending(
    database: Database, wanted: DeadLetterFilter = ALL_DEAD_LETTERS, *, after: UUID | None = None
) -> int:
    """How many of `wanted` are pending, from `after` on."""
    [row] = await database.rows_with_custom_plan(query("dead_letters.count_pending"), after, None, *wanted.values())
    return int(row["count"])


async def dead_letters_of(database: Database, request_id: UUID, reader: TeamId | None = None) -> list[ShownDeadLetter]:
    """The dead letters of one message."""
    return rows_as(ShownDeadLetter, await database.rows(query("dead_letters.of_message"), request_id, reader))


async def get_dead_letter(
    database: Database, dead_letter_id: UUID, reader: TeamId | None = None
) -> tuple[ShownDeadLetter, Remains] | None:
    """One dead letter with what it keeps."""
    row = await database.row(query("dead_letters.get"), dead_letter_id, reader)
    if row is None:
        return None
    return part_as(ShownDeadLetter, row), Remains(row["payload"], unpack_raw(row["raw"]), row["seen"])


async def get_case(database: Database, dead_letter_id: UUID) -> DeadLetterCase | None:
    """One dead letter as a case to be decided again."""
    return row_as(DeadLetterCase, await database.row(query("dead_letters.case"), dead_letter_id))


async def reroute(
    database: Database, case: DeadLetterCase, decision: Decision, handling: DeadLetterHandling
) -> HandlingOutcome | None:
    """Deliver the dead part to the butlers of `decision`, at the end of their lanes; None: no such dead letter."""
    row = await database.row(
        query("dead_letters.reroute"),
        case.dead_letter_id,
        handling.by,
        storable_text(handling.resolution),
        decision.version,
        to_storable_json(decision.trail),
        TIERS[case.tier],
        *branch_columns(decision),
    )
    return HandlingOutcome(row["outcome"], row["n"]) if row else None


def branch_columns(decision: Decision) -> tuple[list[object], ...]:
    """The receivers of a further decision, and its dead letters, as `decide_again` takes them."""
    return (
        [c.system_id for c in decision.chosen],
        [c.team_id for c in decision.chosen],
        [new_uuid7() for _ in decision.unrouted],
        [u.team_id for u in decision.unrouted],
        [u.category for u in decision.unrouted],
        [u.reason for u in decision.unrouted],
        [u.handler for u in decision.unrouted],
    )


async def rerouted(database: Database, request_id: UUID, n: int) -> list[MadeDelivery]:
    """The deliveries that decision `n` made."""
    return rows_as(MadeDelivery, await database.rows(query("dead_letters.rerouted"), request_id, n))


async def rerouted_to(database: Database, request_id: UUID, n: int) -> Sequence[Target]:
    """The receivers that decision `n`, a reroute, was ordered to use; empty: left to the rules."""
    row = await database.row(query("dead_letters.rerouted_to"), request_id, n)
    return () if row is None else msgspec.convert(row["targets"], tuple[Target, ...])


async def handle(database: Database, dead_letter_id: UUID, handling: DeadLetterHandling) -> bool:
    """Close a dead letter that needs no further action. False: it is not pending, or does not exist."""
    values = (dead_letter_id, handling.by, storable_text(handling.resolution))
    return await database.change_rows(query("dead_letters.handle"), *values) == 1


async def notices_of(database: Database, request_id: UUID) -> list[Notice]:
    """The notices of the dead letters of one message."""
    return rows_as(Notice, await database.rows(query("dead_letters.notices"), request_id))


async def waiting_handlers(database: Database) -> list[str]:
    """The System4s whose dead letters wait for a digest."""
    return [row["handler"] for row in await database.rows(query("dead_letters.waiting_handlers"))]


async def digest(database: Database, handler: str) -> int:
    """Notify a System4 of its waiting dead letters, up to a few hundred, in one digest; returns how many."""
    return int(await database.value(query("dead_letters.digest"), handler))


async def untold(database: Database, since: UUID, limit: int) -> list[UntoldMessage]:
    """Messages that died after `since` (a dead letter's id), whose senders may have to be told."""
    rows = await database.rows(query("dead_letters.untold"), since, limit)
    return rows_as(UntoldMessage, ({**row, "raw": unpack_raw(row["raw"])} for row in rows))


async def tell_sender(database: Database, request_id: UUID, text: str, pool: str | None) -> bool:
    """Reply to an undeliverable message. False: not now, or no longer. `pool` is where replies wait."""
    return bool(await database.value(query("dead_letters.tell_sender"), request_id, new_uuid7(), text, pool))


async def spare_sender(database: Database, request_id: UUID) -> None:
    """Never tell the sender of this message."""
    await database.run(query("dead_letters.spare_sender"), request_id)


async def log(database: Database, limit: int, write: Callable[[DeadLetterReport], None]) -> int:
    """Call `write` with up to `limit` dead letters that are not logged yet; returns how many.

    They count as logged once all of them are; if this process dies before, they are logged again.
    """
    async with database.connection() as connection, connection.transaction():
        reports = rows_as(DeadLetterReport, await connection.fetch(query("dead_letters.log"), limit))
        for report in sorted(reports, key=lambda one: one.dead_letter_id):
            write(report)
    return len(reports)


async def to_tell(database: Database, limit: int, backoff: Backoff) -> list[DeadLetterReport]:
    """Up to `limit` pending dead letters that the webhook has not accepted and that are due now.

    Each is due again after a pause, which doubles each time, until `told` is called or it is handled.
    """
    rows = await database.rows(query("dead_letters.tell"), limit, seconds(backoff.base), seconds(backoff.cap))
    return sorted(rows_as(DeadLetterReport, rows), key=lambda one: one.dead_letter_id)


async def told(database: Database, dead_letter_id: UUID) -> None:
    """The webhook has accepted this dead letter."""
    await database.run(query("dead_letters.told"), dead_letter_id)


async def empty(database: Database, *, keep_days: int, limit: int) -> int:
    """Remove payload and bytes of dead letters handled long ago; the rows stay. Returns how many."""
    return await database.change_rows(query("dead_letters.empty"), seconds(keep_days * 86_400), limit)
