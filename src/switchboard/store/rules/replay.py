"""Stored messages as rules saw them, to be decided again.

Called by `app/rules/replays.py` for backtests and for the blast radius of an edit: the newest messages, chunk by chunk,
as cases for `core/routing/backtest.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Final
from uuid import UUID

import msgspec

from switchboard.core.routing.backtest import Case
from switchboard.core.uuid7 import first_uuid7
from switchboard.store.database import Database, query

_FIRST: Final = UUID(int=0)
_AFTER_ALL: Final = UUID(int=2**128 - 1)

_facts: Final = msgspec.json.Decoder(dict[str, str]).decode


async def cases_since(
    database: Database, *, since: datetime | None, last: int | None, chunk: int
) -> AsyncIterator[list[Case]]:
    """At most `last` messages received after `since`, newest first, in chunks of at most `chunk`.

    Each as first decided, since the rules do not determine later handling of its dead letters. Messages without stored
    facts are skipped. No transaction is held in between, so the reader may be slow.
    """
    first = _FIRST if since is None else first_uuid7(since)
    before, left = _AFTER_ALL, last
    while left is None or left > 0:
        limit = chunk if left is None else min(chunk, left)
        rows = await database.rows(query("replay.cases"), first, before, limit)
        if rows:
            yield [Case(request_id, _facts(facts), pinned) for request_id, facts, pinned in rows]
        if len(rows) < limit:
            return
        before = rows[-1][0]
        left = None if left is None else left - len(rows)


async def count_cases(database: Database, *, since: datetime | None, last: int | None) -> int:
    """How many messages `cases_since` will look at, including those that it skips."""
    first = _FIRST if since is None else first_uuid7(since)
    return int(await database.value(query("replay.count"), first, last))
