"""Bells for those who look at pages: there is something new of a kind, so fetch again what shows it.

`server/web/live.py` watches for each open page. While nobody watches, nothing is looked at, and nothing that is stored
has to tell anybody. In: marks and sessions, once a second; out: the kinds of
which marks changed, and whose session has ended. Next: `store/work/pulse.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from time import monotonic
from typing import Final, Literal, get_args
from uuid import UUID

import structlog

from switchboard.app.web_sessions import WebSessions
from switchboard.domain.errors import Unavailable
from switchboard.store.database import Database
from switchboard.store.work import pulse as store
from switchboard.store.work.pulse import PulseMarks

log = structlog.get_logger(__name__)

Bell = Literal["messages", "approvals", "dead", "connections", "plans", "rules"]
"""`dead`: also replies that may not have arrived; `connections`: accounts, strangers, servers and workers."""

BELLS: Final[frozenset[Bell]] = frozenset(get_args(Bell))
_LOOK_EVERY_S: Final = 1.0
_SILENT_S: Final = 6.0
_FETCHES_PER_S: Final = 3
"""By all who watch together, each of 10 ms: at most 3 % of a core. The more they are, the less often each is told."""


class Viewer:
    """Somebody who watches: `heard` is set when a bell has rung that they were not told of, and when it is `over`."""

    def __init__(self, session_id: UUID, wanted: frozenset[Bell]) -> None:
        self.session_id = session_id
        self.heard = asyncio.Event()
        self.over: Literal["", "signed-out", "away"] = ""
        """Why nobody looks for them any longer; `away`: the database is."""
        self._wanted = wanted
        self._rung: set[Bell] = set()

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

    def end(self, why: Literal["signed-out", "away"]) -> None:
        """Nobody looks for them any longer."""
        self.over = self.over or why
        self.heard.set()


class Pulse:
    """Looks once a second for all who watch, and only while somebody does."""

    def __init__(self, database: Database, sessions: WebSessions) -> None:
        self._database = database
        self._sessions = sessions
        self._viewers: set[Viewer] = set()
        self._marks = PulseMarks()
        self._looked_at = 0.0
        self._beating: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        """Where the database keeps silent, a statement that was given up ends when it speaks again."""

    @property
    def pause_s(self) -> float:
        """How long a viewer is not told again: so many at once would fetch too much."""
        return max(_LOOK_EVERY_S, len(self._viewers) / _FETCHES_PER_S)

    @property
    def is_silent(self) -> bool:
        """Whether the database has not answered for a while."""
        return self._beating is not None and monotonic() - self._looked_at > _SILENT_S

    @asynccontextmanager
    async def watch(self, session_id: UUID, wanted: frozenset[Bell]) -> AsyncIterator[Viewer]:
        """Somebody who is told of all that is new from now on. Raises Unavailable."""
        if self._beating is None:
            await self._start_watching()
        if self.is_silent:
            raise Unavailable("the database does not answer")
        viewer = Viewer(session_id, wanted)
        self._viewers.add(viewer)
        try:
            yield viewer
        finally:
            self._viewers.discard(viewer)
            if not self._viewers:
                self._stop_watching()

    async def _start_watching(self) -> None:
        marks = await store.read_marks(self._database)
        if self._beating is None:
            self._marks, self._looked_at = marks, monotonic()
            self._beating = asyncio.create_task(self._look_often())

    def _stop_watching(self) -> None:
        if self._beating is not None:
            self._ending.add(self._beating)
            self._beating.add_done_callback(self._ending.discard)
            self._beating.cancel()
            self._beating = None

    async def _look_often(self) -> None:
        beating = asyncio.current_task()
        try:
            while True:
                await asyncio.sleep(_LOOK_EVERY_S)
                await self._look_once()
        except Unavailable:
            log.info("nobody is told of anything new: the database is away")
        finally:
            if self._beating is beating:  # it was not stopped
                self._beating = None
                for viewer in self._viewers:
                    viewer.end("away")

    async def _look_once(self) -> None:
        looked_for = frozenset(self._viewers)
        live = await self._sessions.find_live({viewer.session_id for viewer in looked_for})
        before, self._marks = self._marks, await store.read_marks(self._database)
        self._looked_at = monotonic()
        changed = changed_bells(before, self._marks)
        for viewer in self._viewers:
            viewer.ring(changed)
        for viewer in looked_for:  # of those who came meanwhile, nothing is known yet
            if viewer.session_id not in live:
                viewer.end("signed-out")


def changed_bells(before: PulseMarks, now: PulseMarks) -> list[Bell]:
    """The kinds of which there is something new."""
    return [bell for bell in sorted(BELLS) if getattr(before, bell) != getattr(now, bell)]
