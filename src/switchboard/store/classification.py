"""What routing by a model keeps: history to show, sessions and their calls, the log of attempts, what a day has cost.

Called by `journey/pipeline.py` and `journey/route_call.py`, by `app/access.py` for the tokens of sessions, and by
`app/classifier.py` for the account of the day. Ids and values enter; utterances, sessions and records leave. Next:
`queries/classification.sql`.

Every query names its schema and carries JSON as text, so that the pool may be an embedder's own (see `over`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import asyncpg
import msgspec

from switchboard.core.pipeline.history import HistoryLimits
from switchboard.core.pipeline.verdict import Recorded, Verdict
from switchboard.core.policy.budget import Account, Amount, Cap, Refusal, reserve
from switchboard.core.uuid7 import MAX_MS
from switchboard.domain.pipeline import Candidate, Utterance
from switchboard.store.database import Database, Row, from_json, query, storable_text, to_json, to_storable_json
from switchboard.store.ids import new_uuid7

Pool = asyncpg.Pool
"""A pool on the database of a Switchboard; whose it is does not matter."""

SESSION_PREFIX: Final = "sb_s_"
"""With this the tokens of sessions begin: they are looked for here, and nowhere else."""
MAX_CALLS: Final = 50
"""Most calls of one session that are recorded; what comes after them is refused."""
_MOST: Final = 2000
"""Most utterances that are read: more than that, however short they are, exceed every limit of tokens."""
_CHARACTERS_PER_TOKEN: Final = 8
"""No estimate is less than an eighth of a text's characters (see `core/pipeline/tokens.py`)."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NO_LIMIT: Final = 2**62
_TAKEN_OVER_AFTER: Final = timedelta(minutes=10)

_candidates: Final = msgspec.json.Decoder(tuple[Candidate, ...]).decode


@dataclass(frozen=True, slots=True)
class Session:
    """An open session: what it is bound to, and whom alone it may name."""

    session_id: UUID
    conversation: str
    request_id: UUID
    team_id: str
    candidates: tuple[Candidate, ...]
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class NewSession:
    """What a session is opened for. `lane` and `seq`: the item that waits for it, where it is one."""

    conversation: str
    request_id: UUID
    team_id: str
    candidates: tuple[Candidate, ...]
    lifetime: timedelta
    lane: str | None = None
    seq: int | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A call of `route_to_butler` as it came in, judged. `butler` is what was written where it names no candidate."""

    butler: str
    ok: bool
    segment: str | None = None
    reason: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to classify, as it is logged. `cost` in micro-dollars, None where nobody told it."""

    request_id: UUID
    conversation: str
    team_id: str
    candidates: tuple[str, ...]
    verdict: Mapping[str, Any] = field(default_factory=dict)
    session_id: UUID | None = None
    model: str | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    cost: int | None = None
    ms: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Logged(Attempt):
    """An attempt as it is read again: its number from 1, when it ended, and what was put right, by whom and why."""

    n: int = 0
    at: datetime = _EPOCH
    corrected_to: str | None = None
    corrected_by: str | None = None
    corrected_at: datetime | None = None
    correction: str | None = None


@dataclass(frozen=True, slots=True)
class Reservation:
    """What was set aside on the account of a day, until it is settled."""

    reservation_id: UUID
    day: date
    amount: Amount


def over(pool: Pool) -> Database:
    """The tables of this module over any pool. Of `Database` only what needs no URL may be used of it."""
    return Database("", pool)


# History -------------------------------------------------------------------------------------------------------------


async def history(
    database: Database, conversation: str, before: UUID, limits: HistoryLimits, now: datetime
) -> list[Utterance]:
    """Both sides of a conversation: what came in before the message `before`, and what butlers have replied.

    Never more than `limits` can use, newest first on each side; `core/pipeline/history.py` then selects.
    """
    if limits.max_count == 0:
        return []
    since = _EPOCH if limits.max_age is None else now - limits.max_age
    count = min(limits.max_count or _MOST, _MOST)
    characters = _NO_LIMIT if limits.max_tokens is None else limits.max_tokens * _CHARACTERS_PER_TOKEN
    theirs = await database.rows(
        query("classification.history_in"), conversation, _first_id(since), before, count, characters
    )
    ours = await database.rows(query("classification.history_out"), conversation, since, count, characters)
    return [Utterance(row["at"], row["author"], row["ours"], row["text"]) for row in (*theirs, *ours)]


def _first_id(since: datetime) -> UUID:
    """No id given out at `since` or later is less: they are UUIDv7, whose first 48 bits are milliseconds."""
    milliseconds = int((since - _EPOCH).total_seconds() * 1000)
    return UUID(int=min(max(milliseconds, 0), MAX_MS) << 80)


async def butlers(database: Database) -> list[Candidate]:
    """Whom the root team can reach: its own active System1s, under their ids, and its sub-teams."""
    rows = await database.rows(query("classification.butlers"))
    return [Candidate(row["id"], row["description"], tuple(row["capabilities"])) for row in rows]


# Sessions ------------------------------------------------------------------------------------------------------------


async def open_session(database: Database, new: NewSession, digest: bytes) -> UUID:
    """Open a session under the sha256 of its token. Sessions of the same message and team that were open are over."""
    session_id = new_uuid7()
    await database.run(
        query("classification.open_session"),
        *(session_id, digest, new.conversation, new.request_id, new.lane, new.seq, new.team_id),
        *(to_json(new.candidates), new.lifetime),
    )
    return session_id


async def find_session(database: Database, digest: bytes) -> Session | None:
    """The open session with this token; None when there is none, or it is over."""
    row = await database.row(query("classification.find_session"), digest)
    if row is None:
        return None
    return Session(
        row["session_id"],
        row["conversation"],
        row["request_id"],
        row["team_id"],
        _candidates(row["candidates"]),
        row["expires_at"],
    )


async def end_session(database: Database, session_id: UUID) -> None:
    """From now on its token opens nothing, and `calls_of` does not change any more."""
    await database.run(query("classification.end_session"), session_id)


async def record_call(database: Database, session_id: UUID, call: Call) -> bool:
    """Put a call on record, in the order of their coming; a refused one on the audit trail as well.

    False: the session is over, or has called too often.
    """
    texts = (storable_text(call.butler), None if call.segment is None else storable_text(call.segment))
    more = (storable_text(call.reason), call.ok, storable_text(call.why), new_uuid7())
    tag = await database.run(query("classification.record_call"), session_id, MAX_CALLS, *texts, *more)
    return tag == "INSERT 0 1"


async def calls_of(database: Database, conversation: str, session_id: UUID) -> list[Recorded]:
    """What a session called, in order."""
    rows = await database.rows(query("classification.calls"), conversation, session_id)
    return [Recorded(row["butler"], row["ok"], row["segment"], row["why"]) for row in rows]


# The log -------------------------------------------------------------------------------------------------------------


def verdict_record(verdict: Verdict) -> dict[str, Any]:
    """A verdict as the log keeps it."""
    return {
        "routed": [{"butler": r.butler, "segment": r.segment, "reason": r.reason} for r in verdict.routed],
        "acked": list(verdict.acked),
        "failed": [{"butler": f.butler, "kind": f.kind, "why": f.why} for f in verdict.failed],
        "inferred": verdict.inferred,
    }


async def log_attempt(database: Database, attempt: Attempt) -> None:
    """Write one row, numbered after those of the same message and team."""
    a = attempt
    row = (
        *(a.request_id, a.conversation, a.team_id, a.session_id, list(a.candidates)),
        *(to_storable_json(dict(a.verdict)), _clean(a.model), a.tokens_in, a.tokens_out, a.cost, a.ms),
        _clean(a.error),
    )
    # Two that log the same message at once meet at the number; who comes second takes the next.
    while await database.run(query("classification.log"), *row) != "INSERT 0 1":
        pass


def _clean(text: str | None) -> str | None:
    return None if text is None else storable_text(text)[:2000]


async def attempts(database: Database, request_id: UUID) -> list[Logged]:
    """All attempts of a message, as they ended."""
    rows = await database.rows(query("classification.attempts"), request_id)
    return [
        Logged(**{**dict(row), "candidates": tuple(row["candidates"]), "verdict": from_json(row["verdict"])})
        for row in rows
    ]


# Dedupe of messages that are in no inbox -----------------------------------------------------------------------------


async def claim_key(database: Database, source: str, key: str, request_id: UUID) -> UUID | None:
    """Take an idempotency key for a message; the id of the message that has it already, None if this one got it.

    A key whose message was begun long ago and never came to an end is taken over: its process died over it.
    """
    stale = _first_id(datetime.now(UTC) - _TAKEN_OVER_AFTER)
    if await database.value(query("classification.claim_key"), source, key, request_id, stale) == request_id:
        return None
    holder: UUID | None = await database.value(query("classification.key_holder"), source, key)
    # Released between the two statements: whoever had it failed, so this one is no duplicate.
    return holder if holder is not None else await claim_key(database, source, key, request_id)


async def keep_key(database: Database, source: str, key: str, request_id: UUID) -> None:
    """A key is taken until `classify.keep_days` are over: its message came to something."""
    await database.run(query("classification.keep_key"), source, key, request_id)


async def release_key(database: Database, source: str, key: str, request_id: UUID) -> None:
    """Give a key back: nothing became of its message, so it may come again."""
    await database.run(query("classification.release_key"), source, key, request_id)


# The account of a day ------------------------------------------------------------------------------------------------


async def reserve_day(
    database: Database, day: date, wanted: Amount, cap: Cap, lifetime: timedelta
) -> Reservation | Refusal:
    """Set `wanted` aside on the account of `day`, shared by all processes, or say why not.

    What nobody settles within `lifetime` is free again: its process died, and what it spent is not known.
    """
    async with database.connection() as connection, connection.transaction():
        await connection.execute(query("classification.open_day"), day)
        spent = await connection.fetchrow(query("classification.lock_day"), day)
        held = await connection.fetchrow(query("classification.reserved"), day)
        account = Account(day, _amount(spent), _amount(held))
        refused = reserve(account, wanted, cap)
        if isinstance(refused, Refusal):
            await connection.execute(query("classification.refuse"), day)
            return refused
        made = Reservation(new_uuid7(), day, wanted)
        await connection.execute(
            query("classification.reserve"), made.reservation_id, day, wanted.tokens, wanted.micros, lifetime
        )
        return made


async def settle_day(database: Database, reservation: Reservation, actual: Amount) -> None:
    """Book what a call really cost, on the day on which it was begun, and free what was set aside for it."""
    await database.run(
        query("classification.settle"), reservation.reservation_id, reservation.day, actual.tokens, actual.micros
    )


async def spent_on(database: Database, day: date) -> Amount:
    """What models have cost on a day, without what is set aside."""
    return _amount(await database.row(query("classification.spent"), day))


def _amount(row: Row | None) -> Amount:
    return Amount() if row is None else Amount(int(row["tokens"]), int(row["micros"]))
