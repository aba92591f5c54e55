"""Registers a program like a worker: it claims no lane by itself, and its lanes are free again when it dies.

`hosting.py` opens it, `agent.py` claims lanes with it. Next: `store/work/lanes.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import structlog

from switchboard import __version__
from switchboard.domain.errors import Unavailable
from switchboard.domain.message import RequestId
from switchboard.lanes.journal import StepLog
from switchboard.lanes.kinds import Claim
from switchboard.store.database import Database
from switchboard.store.work import embedded_turns as store
from switchboard.store.work import lanes, processes
from switchboard.store.work.processes import NewProcess
from switchboard.tasks import cancel_tasks
from switchboard.turns.engine import Calls

log = structlog.get_logger(__name__)

_TTL_S: Final = 10.0


class Registration:
    """Reports that this process is alive, as workers do, so that the turns of its calls are left to it.

    `claim` is replaced after the process was considered dead, or could not give back a lane.
    """

    def __init__(self, database: Database, claim: Claim, calls: Calls) -> None:
        self._database = database
        self._calls = calls
        self._lost = False
        self._former: list[int] = []
        self.claim = claim

    @classmethod
    @asynccontextmanager
    async def open(cls, database: Database, calls: Calls) -> AsyncIterator[Registration]:
        """Registered until the end. Raises `Unavailable`, and ConfigurationError for a newer schema."""
        registration = cls(database, await _register_process(database), calls)
        beating = asyncio.create_task(registration._beat_steadily())
        try:
            yield registration
        finally:
            await cancel_tasks(beating)
            with contextlib.suppress(Unavailable):
                for worker in (*registration._former, registration.claim.worker):
                    await lanes.release_worker(database, worker)

    def lose(self) -> None:
        """A lane could not be given back: release all lanes of this process as soon as the database is available."""
        self._lost = True

    async def ask_if_new(self, before: int, request_id: RequestId) -> None:
        """Ask for a turn again if this process has registered again while it was stored. Raises `Unavailable`."""
        if (now := self.claim.worker) != before:
            await store.ask_anew(self._database, now, before, [request_id])

    async def _beat_steadily(self) -> None:
        """Beat whatever happens; a repeated error is logged once."""
        problem = ""
        while True:
            try:
                await self._beat_once()
                problem = ""
            except Unavailable:  # the next beat follows
                pass
            except Exception as error:
                if str(error) != problem:
                    log.exception("turns cannot continue")
                problem = str(error)
            await asyncio.sleep(_TTL_S / 8)

    async def _beat_once(self) -> None:
        before = self.claim.worker
        if self._lost or not await lanes.beat(self._database, before):
            self.claim = await _register_process(self._database)
            self._lost = False
            self._former.append(before)
        while self._former:  # whatever fails is tried again with the next beat
            await self._replace_registration(self._former[0])
            del self._former[0]
        await lanes.tend(self._database)

    async def _replace_registration(self, before: int) -> None:
        """Ask for the turns that this process has asked for as `before`, and end that registration."""
        # In this order, so that no worker comes in between.
        await store.ask_anew(self._database, self.claim.worker, before, self._calls.asked())
        await lanes.release_worker(self._database, before)


async def _register_process(database: Database) -> Claim:
    new = NewProcess("program", (), socket.gethostname(), os.getpid(), __version__, _TTL_S)
    worker = await processes.register(database, new)
    return Claim(worker, StepLog(database, worker), keeps=lambda: False)
