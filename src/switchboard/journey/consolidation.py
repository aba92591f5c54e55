"""Consolidation: asks a model for the facts of what was said since it was last asked, and keeps those that stand.

`app/ops/periodic.py` makes one per worker that has models. The model runs outside lanes and transactions; what it found
in all spaces of a conversation is kept in one transaction, together with the place up to which it was looked through.
Without anything new no model is asked. Next: `core/memory/consolidation.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final
from uuid import UUID

from switchboard.core.memory.consolidation import (
    MOST_EPISODES,
    SaidInSpace,
    most_tokens,
    parse_consolidation,
    request_for,
    spaces_of,
)
from switchboard.core.memory.extraction import Learned
from switchboard.domain.ledger import LaneKey
from switchboard.domain.llm import NO_USAGE, Report
from switchboard.journey.background import BackgroundWork
from switchboard.journey.compaction import OwnsButler, owns_nothing
from switchboard.lanes.faults import point
from switchboard.ports.models import Asking, Models
from switchboard.store.database import Database
from switchboard.store.memory import consolidation as store
from switchboard.store.memory.consolidation import NewlySaid

ASKER: Final = "consolidation"
"""What models are asked for, in the rows of usage."""
_LEASE: Final = timedelta(minutes=5)
_DEADLINE_S: Final = 240.0
"""For all spaces of a conversation together: when the lease is over, another process begins with it."""
_USED_UP: Final = timedelta(hours=1)
"""When a butler's tokens of the day are used up, it is tried again after this."""
NOTHING_NEW: Final = "nothing has been said since"


class Consolidator:
    """`start_due` returns at once; the work it starts ends on its own, or with `aclose`.

    `budget`: tokens of a butler in 24 hours. `clock`: monotonic seconds.
    """

    def __init__(
        self,
        database: Database,
        models: Models,
        names: Sequence[str],
        budget: int,
        *,
        owns: OwnsButler = owns_nothing,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._models = models
        self._names = tuple(names)
        self._budget = budget
        self._owns = owns
        self._clock = clock
        self._background = BackgroundWork(ASKER, self.consolidate, NOTHING_NEW)

    async def start_due(self) -> int:
        """Start with a few of the conversations that are due; returns how many."""
        free = self._background.free
        lanes = await store.claim(self._database, free, _LEASE) if free else []
        self._background.start(lanes)
        return len(lanes)

    async def aclose(self) -> None:
        """Stop running work, which then has no effect."""
        await self._background.aclose()

    async def consolidate(self, lane: LaneKey) -> str | None:
        """Look for facts in what is new in a conversation; returns why not, or None. Raises `Unavailable`."""
        said = await self._load_affordable(lane)
        if said is None:
            return NOTHING_NEW
        point("before_consolidation_model")
        found = dict[UUID, Sequence[Learned]]()
        problem = await self._ask_for_spaces(said, found)
        if problem is not None:
            await store.end(self._database, list(found), "stale", f"of another space: {problem}")
            return problem
        point("before_consolidation")
        committed = await store.commit(self._database, said, found)
        point("after_consolidation")
        if not committed:
            problem = "what was read has changed meanwhile"
            await store.end(self._database, list(found), "stale", problem)
        return problem

    async def _load_affordable(self, lane: LaneKey) -> NewlySaid | None:
        """What is new, in as many turns as half the tokens of a day suffice for: more might wait for ever."""
        most = MOST_EPISODES
        while True:
            said = await store.load(self._database, lane, most)
            if said is None or most == 1 or 2 * _cost_of(said) <= self._budget:
                return said
            most //= 2

    async def _ask_for_spaces(self, said: NewlySaid, found: dict[UUID, Sequence[Learned]]) -> str | None:
        """Add the facts of each space by its run; returns why that failed, or None."""
        ends, later = self._clock() + _DEADLINE_S, _cost_of(said)
        for space in spaces_of(said.lines):
            left = ends - self._clock()
            if left <= 0:
                return f"the models took more than {_DEADLINE_S:g} s"
            request = request_for(space, left)
            tokens = most_tokens(request)
            later -= tokens  # nothing is asked for one space if there is not enough for those after it
            run = await store.begin(self._database, said, space, tokens, self._budget - later)
            if run is None:
                await store.postpone(self._database, said.lane, _USED_UP)
                return "the butler's tokens of the day are used up"
            report = await self._models.ask(request, Asking(self._names, ASKER, butler=said.system_id))
            await self._note_cost(run, report)
            facts = self._parse(report, said, space)
            if isinstance(facts, str):
                await store.end(self._database, [run], "failed" if report.reply is None else "rejected", facts)
                return facts
            found[run] = facts
        return None

    async def _note_cost(self, run: UUID, report: Report) -> None:
        spent = sum((one.usage for one in report.attempts), NO_USAGE)
        spent = report.reply.usage if report.reply is not None and not spent.tokens else spent
        name = "" if report.last is None else report.last.name
        await store.note_cost(self._database, run, name, spent)

    def _parse(self, report: Report, said: NewlySaid, space: SaidInSpace) -> tuple[Learned, ...] | str:
        if report.reply is None:  # of messages of providers nothing is kept, which may repeat what they were sent
            return ", ".join(f"{one.name}: {one.outcome}" for one in report.attempts) or "no model could be asked"
        owners = {one.person for one in space.lines if self._owns(said.system_id, one.person)}
        return parse_consolidation(report.reply.text, space, owners)


def _cost_of(said: NewlySaid) -> int:
    """The tokens that it may take to look through all spaces."""
    return sum(most_tokens(request_for(space)) for space in spaces_of(said.lines))
