"""Bells for those who look at pages: there is something new of a kind, so fetch again what shows it.

`server/web/live.py` watches for each open page. While nobody watches, nothing is looked at, and nothing that is stored
has to tell anybody. In: marks, once a second; out: the kinds of which they changed. Next: `store/work/pulse.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Final, Literal, get_args

from switchboard.domain.errors import Unavailable
from switchboard.store.database import Database
from switchboard.store.work import pulse as store
from switchboard.store.work.pulse import PulseMarks
from switchboard.tasks import cancel_tasks

Bell = Literal["messages", "approvals", "dead", "connections", "plans", "rules"]
"""`dead`: also replies that may not have arrived; `connections`: accounts, strangers, servers and workers."""

BELLS: Final[frozenset[Bell]] = frozenset(get_args(Bell))
_LOOK_EVERY_S: Final = 1.0
_FETCHES_PER_S: Final = 8
"""By all who watch together, so that many of them cost the messages little: then each is told less often."""


class Viewer:
    """Somebody who watches: `rung` are the bells that they have not been told of; `heard` is set with the first."""

    def __init__(self, wanted: frozenset[Bell]) -> None:
        self._wanted = wanted
        self._rung: set[Bell] = set()
        self.heard = asyncio.Event()
        self.over = False
        """Nobody looks any longer."""

    def ring(self, bells: Iterable[Bell]) -> None:
        """There is something new of these kinds."""
        if new := self._wanted.intersection(bells):
            self._rung |= new
            self.heard.set()

    def take(self) -> list[Bell]:
        """What has rung since the last time."""
        rung, self._rung = sorted(self._rung), set()
        self.heard.clear()
        return rung

    def end(self) -> None:
        """Nobody looks any longer."""
        self.over = True
        self.heard.set()


class Pulse:
    """Looks once a second for all who watch, and only while somebody does."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._viewers: set[Viewer] = set()
        self._beating: asyncio.Task[None] | None = None
        self._marks = PulseMarks()

    @property
    def pause_s(self) -> float:
        """How long a viewer is not told again: so many at once would fetch too much."""
        return max(_LOOK_EVERY_S, len(self._viewers) / _FETCHES_PER_S)

    @asynccontextmanager
    async def watch(self, wanted: frozenset[Bell]) -> AsyncIterator[Viewer]:
        """Somebody who is told of all that is new from now on. Raises Unavailable."""
        if self._beating is None:
            marks = await store.read_marks(self._database)
            if self._beating is None:
                self._marks = marks
                self._beating = asyncio.create_task(self._beat())
        viewer = Viewer(wanted)
        self._viewers.add(viewer)
        try:
            yield viewer
        finally:
            self._viewers.discard(viewer)
            if not self._viewers and self._beating is not None:
                beating, self._beating = self._beating, None
                await cancel_tasks(beating)

    async def _beat(self) -> None:
        try:
            while True:
                await asyncio.sleep(_LOOK_EVERY_S)
                with suppress(Unavailable):  # their pages say so, as their sessions cannot be looked up either
                    await self._look()
        finally:
            for viewer in self._viewers:
                viewer.end()

    async def _look(self) -> None:
        before, self._marks = self._marks, await store.read_marks(self._database)
        changed = changed_bells(before, self._marks)
        for viewer in self._viewers:
            viewer.ring(changed)


def changed_bells(before: PulseMarks, now: PulseMarks) -> list[Bell]:
    """The kinds of which there is something new."""
    return [bell for bell in sorted(BELLS) if getattr(before, bell) != getattr(now, bell)]
