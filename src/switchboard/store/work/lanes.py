"""The rows of the engine: claim, settle, retry, rescue, workers.

Called by `lanes/` (the engine) and by the legs of `journey/`; each function is one transaction.
Next: `store/messages/outbox.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

import asyncpg
from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.envelope.stored import stored_envelope
from switchboard.core.passages.own import has_others_words, part_of, passages_of
from switchboard.core.text.storable import to_storable_json
from switchboard.domain.envelope import Envelope
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.domain.ledger import Flow, Item, LaneKey, ReplyFile, TurnOutcome
from switchboard.domain.message import Conversation, RequestId
from switchboard.domain.routing import DeadLetterCategory, Decision, SystemId, TeamId
from switchboard.ports.engine import ModelUsage, StopReason
from switchboard.ports.tools import Kept
from switchboard.store.database import Database, Row, arrays, query, rows_as, seconds, to_json
from switchboard.store.ids import new_uuid7
from switchboard.store.memory.facts import remembered_rows
from switchboard.store.memory.history import HistoryAddition, entry_rows
from switchboard.store.messages.dead_letters import branch_columns
from switchboard.store.migrate import known_schema
from switchboard.store.work.processes import NewProcess, check_process_id, columns

_BUSY: Final = ("ready", "running", "paused")
LOCK_CLASS: Final = 0x5357
"""First key of the advisory locks by which workers show that they live."""


class TakenMessage(Struct, frozen=True, kw_only=True):
    """A message that is worked on now."""

    request_id: RequestId
    conversation: Conversation
    received_at: datetime
    resumed: bool
    """Whether an earlier attempt may have left steps in the journal."""


class Work(TakenMessage, frozen=True):
    """What a turn needs to know: the message, its receiver, and for a notice also the dead letter."""

    lane: LaneKey
    seq: int
    system_id: SystemId
    team_id: TeamId
    segment: int
    envelope: Envelope
    """As it arrived; but of a message that a model split, `payload.normalized_text` is the part for this butler."""
    dead_letter: JsonMapping | None
    """For a notice: dead_letter_id, team_id, category, reason, system_id; for a digest more (`lanes.load_notices`)."""
    stopped: bool = False
    """Whether the turn is to end, see `stopping.py`."""
    whole_text: str | None = None
    """The text of the whole message where this butler gets a part of it; else None."""


class NewDeadLetter(Struct, frozen=True):
    """A delivery that could not be carried out."""

    dead_letter_id: UUID
    category: DeadLetterCategory
    reason: str
    handler: SystemId | None


class Settlement(Struct, frozen=True):
    """The end of a turn. `pool` is where a reply waits: None is the mailbox that is read over the API.

    `retry_in`: seconds until the next attempt after a failure; None: the usual time.
    """

    item: Item
    outcome: TurnOutcome
    engine: str | None
    started_at: datetime | None
    error_class: str | None = None
    error: str | None = None
    stop_reason: StopReason = "end"
    usage: Sequence[ModelUsage] = ()
    hand_on: bool = True
    pause: bool = False
    outbox_id: UUID | None = None
    text: str | None = None
    pool: str | None = None
    dead_letter: NewDeadLetter | None = None
    said: HistoryAddition | None = None
    """What is kept of the turn for those that follow."""
    retry_in: float | None = None
    handed_on: Decision | None = None
    """Who gets the message instead of an answer of this turn."""
    files: Sequence[ReplyFile] = ()
    """Of the reply, each of which `blobs.sendable` has found."""


class SettlementOutcome(Struct, frozen=True):
    """Whether the settlement counted (else: fenced), and the next seq of the lane if it was handed on."""

    ok: bool
    next_seq: int | None


async def register_worker(connection: asyncpg.Connection, new: NewProcess, *, lock: bool) -> int:
    """Register the worker and, where advisory locks work, take the lock that is freed with its connection.

    The lock is taken before the row is visible, so no new worker is mistaken for a dead one. Raises ConfigurationError
    if the database has the schema of a newer release.
    """
    async with connection.transaction():
        worker = check_process_id(
            await connection.fetchval(query("lanes.register"), *columns(new), lock, known_schema())
        )
        if lock:
            await connection.execute(query("lanes.hold_lock"), LOCK_CLASS, worker)
    return worker


async def beat(database: Database, worker: int) -> bool:
    """Send a heartbeat of a worker or server. False: it was removed and its lanes taken over, or its schema is old."""
    return await database.change_rows(query("lanes.beat"), worker, known_schema()) == 1


async def tend(database: Database) -> tuple[int, int]:
    """Free the lanes of dead workers, or else wake due items; returns the numbers of lanes and of items."""
    [row] = await database.rows(query("lanes.tend"), LOCK_CLASS)
    return row["freed"], row["woken"]


class Look(Struct, frozen=True):
    """What one look finds; the statement is in `looking.sql`.

    `freed`, `woken`: lanes and items, as `tend` has them; None without a worker. `pools`: those with something to take.
    `next_in`: seconds until something else can be taken. `others`: other processes are registered. `due`: a maintenance
    task is. `version`: of the rules. `remote`: there are remote butlers. `people`: the version of the persons.
    """

    freed: int | None
    woken: int | None
    pools: Sequence[str]
    next_in: float | None
    others: bool
    due: bool
    backlog: int
    version: int
    remote: bool
    people: int


class Looker(Struct, frozen=True):
    """Who looks: the process, its worker if it has one, with the pools and maintenance tasks of that."""

    host: str
    pid: int
    worker: int | None = None
    pools: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()


async def look(database: Database, looker: Looker) -> Look:
    """Look at everything at once; with a worker, do what `tend` does, too."""
    values = (looker.worker, list(looker.pools), list(looker.tasks), looker.host, looker.pid)
    [found] = rows_as(Look, await database.rows(query("lanes.look"), LOCK_CLASS, *values))
    return found


async def release_worker(database: Database, worker: int) -> int:
    """Deregister; returns how many lanes others will take over."""
    return int(await database.value(query("lanes.release"), worker))


async def claim(
    database: Database,
    worker: int,
    kinds: Sequence[str],
    quota: Mapping[str, Sequence[int]],
    served: Sequence[tuple[str, int, Flow]] = (),
    *,
    catch_up: int = 4,
) -> list[Item]:
    """Take up to `quota[pool][tier]` ready lanes of each pool and tier, of these kinds only, flows in rotation.

    Unused quota of a tier goes to the others of its pool, the most urgent first. `served`: pool, tier and flow of
    earlier claims, one per endpoint, the most recent last. The next flows are those that follow; without it, any.
    `catch_up`: how many lanes of tier 4 an endpoint may have running in a pool. Returns the items of each pool and tier
    in the order of their turns.
    """
    places = [(pool, tier, n) for pool, tiers in quota.items() for tier, n in enumerate(tiers)]
    rows = await database.rows(
        query("lanes.claim"), worker, list(kinds), *arrays(places, 3), *arrays(served, 3), catch_up
    )
    return rows_as(Item, rows)


async def load_work(database: Database, items: Sequence[Item]) -> list[Work]:
    """The message of each item, in order. Raises `LookupError` if one has none."""
    notices = [i for i in items if i.kind == "notice"]
    turns = [i for i in items if i.kind != "notice"]
    rows = [
        *await _load_rows(database, "lanes.load_turns", turns),
        *await _load_rows(database, "lanes.load_notices", notices),
    ]
    found = {(r["lane"], r["seq"]): r for r in rows}
    if missing := [(i.lane, i.seq) for i in items if (i.lane, i.seq) not in found]:
        raise LookupError(f"nowhere: {missing}")
    return [_work(found[i.lane, i.seq]) for i in items]


async def _load_rows(database: Database, statement: str, items: Sequence[Item]) -> Sequence[Row]:
    return await database.rows(query(statement), [i.lane for i in items], [i.seq for i in items]) if items else ()


def _work(r: Row) -> Work:
    envelope = stored_envelope(r["envelope"])
    work = Work(
        lane=LaneKey(r["lane"]),
        seq=r["seq"],
        request_id=RequestId(r["request_id"]),
        conversation=Conversation(r["conversation"]),
        system_id=SystemId(r["system_id"]),
        team_id=TeamId(r["team_id"]),
        segment=r["segment"],
        envelope=envelope,
        received_at=r["received_at"],
        dead_letter=r["dead_letter"],
        resumed=r["resumed"],
        stopped=r["stopped"],
    )
    if r["text"] is None:
        return work
    whole = passages_of(envelope)
    # What is not in the text is of a transcript, and so is not what the sender wrote.
    written = r["text"] in envelope.payload.normalized_text and not has_others_words(whole)
    passages = () if written else part_of(whole, r["text"])
    part = replace(envelope.payload, normalized_text=r["text"], passages=passages)
    cut = replace(envelope, payload=part)
    return replace(work, envelope=cut, whole_text=envelope.payload.normalized_text)


async def settle(database: Database, worker: int, batch: Sequence[Settlement]) -> list[SettlementOutcome]:
    """End turns in one transaction; each one entirely or, when fenced, not at all."""
    given = [_settle_row(one) for one in batch]
    said = [(one.item.lane, one.said) for one in batch if one.said is not None]
    entries, facts = entry_rows(said), await remembered_rows(database, said)
    if entries is None:
        rows = await database.rows(query("lanes.settle"), worker, given)
    elif facts is None:
        rows = await database.rows(query("lanes.settle_with_entries"), worker, given, entries)
    else:
        rows = await database.rows(query("lanes.settle_with_facts"), worker, given, entries, facts)
    by_lane = {r["lane"]: r for r in rows}
    return [SettlementOutcome(by_lane[s.item.lane]["ok"], by_lane[s.item.lane]["next_seq"]) for s in batch]


def _settle_row(s: Settlement) -> tuple[object, ...]:
    dead_letter = s.dead_letter
    died = (
        (None,) * 4
        if dead_letter is None
        else (dead_letter.dead_letter_id, dead_letter.category, dead_letter.reason, dead_letter.handler)
    )
    return (
        *(s.item.lane, s.item.epoch, s.item.seq, s.outcome, s.error_class, s.error, s.engine, s.started_at),
        *(None if s.stop_reason == "end" else s.stop_reason, to_json(s.usage) if s.usage else None),
        *(s.hand_on, s.pause, s.outbox_id, s.text, s.pool, *died),
        to_json(s.files) if s.files else None,
    )


async def hand_on(database: Database, worker: int, settlement: Settlement, decision: Decision) -> SettlementOutcome:
    """End a turn and deliver its message to the butlers of `decision`; both or, when fenced, neither."""
    trail, branches = to_storable_json(decision.trail), branch_columns(decision)
    given = [_settle_row(settlement)]
    [row] = await database.rows(query("lanes.hand_on"), worker, given, decision.version, trail, *branches)
    return SettlementOutcome(row["ok"], row["next_seq"])


async def facts_of(database: Database, item: Item) -> Mapping[str, str]:
    """The facts of the message of a delivery when it was first decided."""
    return await database.value(query("lanes.facts"), item.lane, item.seq) or {}


async def keep(database: Database, worker: int, item: Item, within: float) -> Kept | None:
    """Reserve the next item in a running item's lane for this worker, for this many seconds. None: fenced."""
    row = await database.row(query("lanes.keep"), worker, item.lane, item.epoch, item.seq, seconds(within))
    return None if row is None else Kept(row["before"], worker)


async def retry(database: Database, worker: int, settlement: Settlement, delay: float) -> bool:
    """Put a failed item back for another attempt after `delay` seconds; the lane waits. False: fenced.

    `settlement.item.attempts` is the number of attempts made by then.
    """
    s = settlement
    return bool(
        await database.value(
            query("lanes.retry"),
            worker,
            s.item.lane,
            s.item.epoch,
            s.item.seq,
            s.outcome,
            s.error_class,
            s.error,
            s.engine,
            s.started_at,
            seconds(delay),
            s.item.attempts,
        )
    )


async def tell_of_delay(database: Database, worker: int, item: Item, text: str, pool: str | None) -> bool:
    """Tell the sender, once per message, that the answer takes longer. False: fenced, or already told."""
    args = (worker, item.lane, item.epoch, item.seq, new_uuid7(), text, pool)
    return bool(await database.value(query("lanes.tell_of_delay"), *args))


async def list_lanes(
    database: Database,
    *,
    after: tuple[datetime, UUID] | None = None,
    limit: int = 200,
) -> list[JsonObject]:
    """Lanes that are not idle or have parked items, the longest waiting first; `after`: `ready_at` and `key` of one."""
    return [dict(r) for r in await database.rows(query("lanes.list"), list(_BUSY), *(after or (None, None)), limit)]


async def paused_lanes(database: Database, limit: int) -> list[str]:
    """The names of lanes that wait for an operator to resume them, the longest waiting first; not of parked items."""
    return [str(row[0]) for row in await database.rows(query("lanes.paused"), limit)]


async def resume_lane(database: Database, lane: str) -> bool:
    """Let a paused lane continue with its next item."""
    return bool(await database.value(query("lanes.resume"), lane))


async def try_message_now(database: Database, request_id: UUID) -> int:
    """Let what of a message waits for its next attempt, or is paused, go on at once; returns how many lanes."""
    return int(await database.value(query("lanes.try_message"), request_id))


async def late_before(database: Database, request_id: UUID) -> int | None:
    """In how many other conversations of its account late messages are in progress; None: it need not wait for them."""
    found = await database.value(query("lanes.late"), request_id)
    return None if found is None else int(found)
