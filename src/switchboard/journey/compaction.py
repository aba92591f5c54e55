"""Compaction: asks a model to summarise the oldest entries of histories, and keeps valid results.

`app/wiring.py` makes one per worker that has models, and a maintenance task starts due work; `turns/hosting.py` makes
one for the sessions of a program. The model runs outside lanes and transactions; failures change nothing, and are tried
again. Next: `core/memory/compaction.py`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

from switchboard.core.memory.compaction import Compacted, merge_parts, parse_compaction, parts_of, request_for
from switchboard.core.turns.window import WINDOW
from switchboard.domain.ledger import LaneKey
from switchboard.domain.message import Conversation
from switchboard.domain.routing import SystemId
from switchboard.journey.background import BackgroundWork
from switchboard.lanes.faults import point
from switchboard.ports.models import Asking, Models
from switchboard.store.database import Database
from switchboard.store.memory import compaction as store
from switchboard.store.memory.compaction import CompactionStanding, Range

ASKER: Final = "compaction"
"""What models are asked for, in the rows of usage."""
_LEASE: Final = timedelta(minutes=2)
_DEADLINE_S: Final = 90.0
"""For all parts of a range together: when the lease is over, another process begins with it."""
_TOO_FEW: Final = "it has too few entries without a summary"


OwnsButler = Callable[[SystemId, str], bool]
"""Whether the author with this key owns the butler."""


def owns_nothing(_: SystemId, _author: str) -> bool:
    """Where it is not known who owns what."""
    return False


class Compactor:
    """`start_due` returns at once; the work it starts ends on its own, or with `aclose`. `clock`: monotonic seconds."""

    def __init__(
        self,
        database: Database,
        models: Models,
        names: Sequence[str],
        *,
        owns: OwnsButler = owns_nothing,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._models = models
        self._names = tuple(names)
        self._owns = owns
        self._clock = clock
        self._background = BackgroundWork(ASKER, self.compact, _TOO_FEW)

    async def start_due(self) -> int:
        """Start compacting a few of the lanes that are due; returns how many."""
        lanes = await store.claim(self._database, self._background.free, _LEASE)
        self._background.start(lanes)
        return len(lanes)

    async def compact_due(self, system_id: SystemId, conversations: Sequence[Conversation]) -> list[str | None]:
        """Compact the due conversations among these of a butler. Failures are logged, and tried again.

        Returns None for each that was compacted, and why each of the others that have entries was not.
        """
        lanes = await store.claim_of(self._database, system_id, conversations, _LEASE)
        outcomes = await asyncio.gather(*map(self._background.try_lane, lanes))
        standings = await store.standings(self._database, system_id, conversations)
        return [*outcomes, *(_why_not(one) for one in standings if one.lane not in lanes)]

    async def aclose(self) -> None:
        """Stop running work, which then has no effect."""
        await self._background.aclose()

    async def compact(self, lane: LaneKey) -> str | None:
        """Compact the oldest entries of a lane; returns why it was not, or None. Raises `Unavailable`."""
        read = await store.load(self._database, lane)
        if read is None:
            return _TOO_FEW
        point("before_summary")
        made = await self._compact_range(read)
        if isinstance(made, str):
            return made
        point("before_compaction")
        committed = await store.commit(self._database, read, made)
        point("after_compaction")
        return None if committed else "the entries have changed meanwhile"

    async def _compact_range(self, read: Range) -> Compacted | str:
        made: list[Compacted] = []
        ends = self._clock() + _DEADLINE_S
        for part in parts_of(read.lines, read.summary, read.before):
            left = ends - self._clock()
            if left <= 0:
                return f"the models took more than {_DEADLINE_S:g} s"
            request = request_for(part.lines, part.summary, left)
            report = await self._models.ask(request, Asking(self._names, ASKER, butler=read.system_id))
            if report.reply is None:
                return str(report.failure)
            owners = {line.person for line in part.own if self._owns(read.system_id, line.person)}
            one = parse_compaction(report.reply.text, part.own, owners)
            if isinstance(one, str):
                return one
            made.append(one)
        return merge_parts(made)


def _why_not(one: CompactionStanding) -> str:
    if one.entries < WINDOW:
        return f"{one.entries} entries have no summary yet; compaction starts at {WINDOW}"
    if one.tries >= store.MOST_TRIES:
        return f"{one.tries} tries have failed; the next turn starts another one"
    return "another process is at it, or its try has just failed"
