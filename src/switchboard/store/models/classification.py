"""The data of routing by a model: history to show, sessions and their calls, the log of attempts, spending per day.

Called by `journey/ask.py`, `journey/route_call.py` and `journey/submit.py`, by `app/access.py` for the tokens of
sessions, and by `app/models/classifier.py` for the spending of the day. Next: `queries/classification.sql`.

Every query names its schema and carries JSON as text, so that the pool may be an embedder's own (`ForeignDatabase`).
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Final
from uuid import UUID

import asyncpg
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.classification.history import HistoryLimits
from switchboard.core.policy.budget import Amount, BudgetRefusal, Cap, Share
from switchboard.core.text.storable import storable_or_none, storable_text, to_storable_json
from switchboard.core.uuid7 import first_uuid7, uuid7_ms
from switchboard.domain.classification import Candidate, Classification, RecordedCall, Utterance
from switchboard.domain.json_values import JsonObject
from switchboard.domain.ledger import Flow
from switchboard.domain.llm import NO_USAGE, Bill
from switchboard.domain.shown import ClassificationRow, Logged
from switchboard.store.database import Database, from_json, query, row_as, rows_as, to_json
from switchboard.store.ids import new_uuid7

Pool = asyncpg.Pool
"""A pool on the database of a Switchboard; whose it is does not matter."""

SESSION_PREFIX: Final = "sb_s_"
"""The prefix of session tokens: they are looked up here, and nowhere else."""
MAX_CALLS: Final = 50
"""Maximum calls of a session that are recorded; later ones are refused."""
_MOST: Final = 2000
"""Maximum utterances that are read: more, however short they are, exceed every token limit."""
_CHARACTERS_PER_TOKEN: Final = 8
"""No estimate is less than an eighth of a text's characters (see `core/text/tokens.py`)."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NO_LIMIT: Final = 2**62
_TAKEN_OVER_AFTER: Final = timedelta(minutes=10)

_candidates: Final = msgspec.json.Decoder(tuple[Candidate, ...]).decode


class _SessionScope(Struct, frozen=True):
    """What a session is bound to, and its candidates."""

    conversation: str
    request_id: UUID
    team_id: str
    candidates: tuple[Candidate, ...]


class NewSession(_SessionScope, frozen=True):
    """The arguments for opening a session."""

    lifetime: timedelta


class ClassificationSession(_SessionScope, frozen=True):
    """An open session."""

    session_id: UUID
    expires_at: datetime


class SessionCall(Struct, frozen=True):
    """A call of `route_to_butler` as received, with the outcome. `butler` is the name as written if unknown."""

    butler: str
    ok: bool
    segment: str | None = None
    reason: str = ""
    why: str = ""


class Reservation(Struct, frozen=True):
    """The amount reserved in the spending of a day, until it is settled."""

    reservation_id: UUID
    day: date
    amount: Amount
    flow: Flow | None = None
    """The sender from whose share of turns it is reserved too."""


# History -------------------------------------------------------------------------------------------------------------


async def history(
    database: Database, conversation: str, before: UUID, limits: HistoryLimits, now: datetime
) -> list[Utterance]:
    """Both sides of a conversation: messages received before the message `before`, and replies of butlers.

    Never more than `limits` can use, each side in the order of acceptance; times alone do not give it, since a batch
    shares one time. `core/classification/history.py` then selects.
    """
    if limits.max_count == 0:
        return []
    since = _EPOCH if limits.max_age is None else now - limits.max_age
    count = min(limits.max_count or _MOST, _MOST)
    characters = _NO_LIMIT if limits.max_tokens is None else limits.max_tokens * _CHARACTERS_PER_TOKEN
    theirs = await database.rows(
        query("classification.history_in"), conversation, first_uuid7(since), before, count, characters
    )
    ours = await database.rows(query("classification.history_out"), conversation, since, count, characters)
    return rows_as(Utterance, ({**row, "cut": False} for row in (*reversed(theirs), *reversed(ours))))


async def has_month(database: Database, request_id: UUID) -> bool:
    """Whether a message with this id can be stored: a UUIDv7 of a month that has its partitions."""
    if request_id.version != 7:
        return False
    return bool(await database.value(query("classification.has_month"), uuid7_ms(request_id)))


async def is_stored(database: Database, request_id: UUID) -> bool:
    """Whether the inbox has this message."""
    return bool(await database.value(query("classification.is_stored"), request_id))


# Sessions ------------------------------------------------------------------------------------------------------------


async def open_session(database: Database, new: NewSession, digest: bytes) -> UUID:
    """Open a session under the sha256 of its token. Closes open sessions of the same message and team."""
    session_id = new_uuid7()
    await database.run(
        query("classification.open_session"),
        *(session_id, digest, new.conversation, new.request_id, new.team_id),
        *(to_json(new.candidates), new.lifetime),
    )
    return session_id


async def find_session(database: Database, digest: bytes) -> ClassificationSession | None:
    """The open session with this token; None if there is none, or it has ended."""
    row = await database.row(query("classification.find_session"), digest)
    return row_as(ClassificationSession, row and {**row, "candidates": _candidates(row["candidates"])})


async def end_session(database: Database, session_id: UUID) -> None:
    """Close the session: its token becomes invalid, and `calls_of` no longer changes."""
    await database.run(query("classification.end_session"), session_id)


async def record_call(database: Database, session_id: UUID, call: SessionCall) -> bool:
    """Record a call, in order of arrival; a refused one in the audit trail as well.

    False: the session has ended, or made too many calls.
    """
    texts = (storable_text(call.butler), storable_or_none(call.segment))
    more = (storable_text(call.reason), call.ok, storable_text(call.why), new_uuid7())
    return await database.change_rows(query("classification.record_call"), session_id, MAX_CALLS, *texts, *more) == 1


async def calls_of(database: Database, request_id: UUID, session_id: UUID) -> list[RecordedCall]:
    """The calls of a session, in order."""
    return rows_as(RecordedCall, await database.rows(query("classification.calls"), request_id, session_id))


# The log -------------------------------------------------------------------------------------------------------------


def classification_record(found: Classification) -> JsonObject:
    """A classification as the log keeps it."""
    return {
        "routed": [{"butler": r.butler, "segment": r.segment, "reason": r.reason} for r in found.routed],
        "acked": list(found.acked),
        "failed": [{"butler": f.butler, "kind": f.kind, "why": f.why} for f in found.failed],
        "inferred": found.inferred,
    }


async def log_attempt(database: Database, row: ClassificationRow) -> None:
    """Write one row, numbered after those of the same message and team."""
    micros = None if row.cost_usd is None else round(row.cost_usd * 1_000_000)
    values = (
        *(row.request_id, row.conversation, row.team_id, row.session_id, list(row.candidates)),
        *(to_storable_json(dict(row.result)), _clean(row.model), row.tokens_in, row.tokens_out, micros),
        row.duration_ms,
        _clean(row.error),
    )
    # Two processes that log the same message at once conflict on the number; the second takes the next.
    while not await database.change_rows(query("classification.log"), *values):
        pass


def _clean(text: str | None) -> str | None:
    return None if text is None else storable_text(text)[:2000]


async def attempts(database: Database, request_id: UUID) -> list[Logged]:
    """All finished attempts for a message."""
    rows = await database.rows(query("classification.attempts"), request_id)
    return rows_as(
        Logged,
        ({**row, "candidates": tuple(row["candidates"]), "result": from_json(row["result"])} for row in rows),
    )


# Dedupe of messages that are not in the inbox (yet) -----------------------------------------------------------------


async def claim_key(database: Database, key: str, request_id: UUID) -> UUID | None:
    """Take the key of an event, hashed by `Keys`, while its message is classified.

    Returns the id of the message that already has it, here or in the inbox; None if this one received it. A key whose
    message was begun long ago but never finished is taken over: its process died.
    """
    stale = first_uuid7(datetime.now(UTC) - _TAKEN_OVER_AFTER)
    if await database.value(query("classification.claim_key"), key, request_id, stale) == request_id:
        return None
    holder: UUID | None = await database.value(query("classification.key_holder"), key)
    # Released between the two statements: its holder failed, so this is not a duplicate.
    return holder if holder is not None else await claim_key(database, key, request_id)


async def is_of_another(database: Database, key: str, body: str) -> bool:
    """Whether the inbox has this key for a message with different content."""
    return bool(await database.value(query("classification.is_of_another"), key, body))


async def keep_key(database: Database, key: str, body: str, request_id: UUID) -> None:
    """Keep a key whose message was handed on to another program, so that the inbox also knows it.

    It is kept as long as classifications (`classify.keep_days`). A key that the inbox already has is released.
    """
    await database.run(query("classification.keep_key"), key, request_id, body)


async def release_key(database: Database, key: str, request_id: UUID) -> None:
    """Release a key: its message failed, so it may be submitted again."""
    await database.run(query("classification.release_key"), key, request_id)


# The spending of a day -----------------------------------------------------------------------------------------------


async def reserve_day(
    database: Database, wanted: Reservation, cap: Cap, lifetime: timedelta, share: Share | None = None
) -> Reservation | BudgetRefusal:
    """Reserve an amount in the shared spending of its day and in a sender's share; or say why not.

    A reservation not settled within `lifetime` is released: its process died, and its actual cost is unknown.
    """
    values = (wanted.reservation_id, wanted.day, wanted.amount.tokens, wanted.amount.micros, lifetime)
    caps = (cap.tokens, cap.micros, *((None, None) if share is None else (share.request_id, share.tokens)))
    [row] = await database.rows(query("classification.reserve_spending"), *values, *caps)
    if row["scope"] is None:
        return replace(wanted, flow=row["flow"])
    asked = wanted.amount.tokens if row["unit"] == "tokens" else wanted.amount.micros
    return BudgetRefusal(row["scope"], row["unit"], row["cap"], row["used"], asked, row["held"])


async def settle_day(database: Database, reservation: Reservation, bill: Bill | None) -> None:
    """Book the actual cost of a session, on the day when it began, and release its reservation."""
    usage, micros = (NO_USAGE, 0) if bill is None else (bill.usage, bill.micros)
    of = (None, "", None, False) if bill is None else (bill.asker, bill.butler, bill.model, bill.failed)
    tokens = (usage.input_tokens, usage.output_tokens, usage.cache_read, usage.cache_write)
    key = (reservation.reservation_id, reservation.day, reservation.flow)
    await database.run(query("classification.settle_spending"), *key, micros, *of, *tokens)
