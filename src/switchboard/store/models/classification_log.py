"""The log of classifications, read and corrected; and the retention of all that a classification leaves behind.

Read by `app/classification/log.py`; `app/classification/corrections.py` corrects, `app/ops/maintenance.py` removes. The
log is written by `store/models/classification.py`. Next: `queries/classification_log.sql`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from uuid import UUID

from msgspec import Struct

from switchboard.core.text.storable import storable_or_none, to_storable_json
from switchboard.domain.routing import Decision
from switchboard.domain.shown import Read
from switchboard.store.database import Database, query, row_as, rows_as
from switchboard.store.messages.dead_letters import branch_columns


class ClassificationFilter(Struct, frozen=True):
    """Which attempts; None does not count. `butler` is the one that the model named."""

    teams: Sequence[str] | None = None
    butler: str | None = None
    failed: bool = False
    corrected: bool = False


class LogScope(Struct, frozen=True):
    """Whose messages may be read: all, or those with a dead letter in one of the teams, as seen by `team`."""

    everything: bool
    dead_letters_of: Sequence[str] = ()
    team: str | None = None


class Correction(Struct, frozen=True):
    """Where a message should have gone, with author and reason; in the log of `teams` (None: of all that asked).

    Delivered is the part that reached the team `of`; None: the whole.
    """

    request_id: UUID
    to: str
    by: str
    reason: str | None
    teams: Sequence[str] | None
    of: str | None = None


class Sending(Struct, frozen=True):
    """The further decision that brings the message where it should have gone."""

    decision: Decision
    tier: int


class LoggedOutcome(Struct, frozen=True):
    """`decided` False: it waits for a model, and nothing has changed. `noted`: the log said something else before.

    `n` is the new decision, None where the butler has the message already or was not to get it.
    """

    decided: bool
    noted: bool
    n: int | None


class CorrectedMessage(Struct, frozen=True):
    """A message that went wrong, as the rules saw it, and where it should have gone."""

    request_id: UUID
    corrected_to: str
    correction: str | None
    facts: Mapping[str, str]


# The log -------------------------------------------------------------------------------------------------------------


async def list_classifications(
    database: Database,
    wanted: ClassificationFilter,
    sight: LogScope,
    *,
    before: tuple[UUID, str, int] | None = None,
    limit: int,
) -> list[Read]:
    """Newest message first; `before` is the message, team and number with which the page before ends."""
    start = before or (None, None, None)
    teams = None if wanted.teams is None else list(wanted.teams)
    values = (
        sight.everything,
        list(sight.dead_letters_of),
        *start,
        teams,
        wanted.butler,
        wanted.failed,
        wanted.corrected,
    )
    rows = await database.rows_with_custom_plan(query("classification_log.list"), *values, limit, sight.team)
    return rows_as(Read, ({**row, "candidates": tuple(row["candidates"])} for row in rows))


async def corrected(
    database: Database, team_id: str | None, limit: int, *, before: UUID | None = None
) -> list[CorrectedMessage]:
    """Messages that somebody corrected, newest first; of what an older release decided without facts there are none."""
    return rows_as(CorrectedMessage, await database.rows(query("classification_log.cases"), team_id, limit, before))


async def correct(database: Database, correction: Correction, sending: Sending | None = None) -> LoggedOutcome | None:
    """Say in the log where a message should have gone, and send it there, all or nothing. None: there is no message."""
    c = correction
    teams = None if c.teams is None else list(c.teams)
    values = (c.request_id, c.to, c.by, storable_or_none(c.reason), teams, c.of, *_columns(sending))
    return row_as(LoggedOutcome, await database.row(query("classification_log.correct"), *values))


def _columns(sending: Sending | None) -> tuple[object, ...]:
    if sending is None:
        return (None, None, None, *([] for _ in range(7)))
    decision = sending.decision
    return decision.version, to_storable_json(decision.trail), sending.tier, *branch_columns(decision)


# Retention -----------------------------------------------------------------------------------------------------------


async def forget_sessions(database: Database, after: timedelta, limit: int) -> int:
    """Remove sessions that expired so long ago; how many."""
    return await database.change_rows(query("classification_log.forget_sessions"), after, limit)


async def forget_classifications(database: Database, after: timedelta, limit: int) -> int:
    """Remove attempts that are older, but for those that were corrected; how many."""
    return await database.change_rows(query("classification_log.forget_classifications"), after, limit)


async def forget_calls(database: Database, after: timedelta, limit: int) -> int:
    """Remove what sessions called longer ago; how many."""
    return await database.change_rows(query("classification_log.forget_calls"), after, limit)


async def forget_keys(database: Database, below: UUID, limit: int) -> int:
    """Remove idempotency keys of messages whose ids are lower; how many."""
    return await database.change_rows(query("classification_log.forget_keys"), below, limit)
