"""Keeps a running server registered, alongside the workers.

`wiring.py` runs it in the background. It shows which releases are running; no lane depends on it. Next:
`store/work/processes.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from typing import Final

import structlog

from switchboard import __version__
from switchboard.domain.errors import ConfigurationError, Unavailable
from switchboard.lanes.kinds import KINDS
from switchboard.store.database import Database
from switchboard.store.work import lanes, processes
from switchboard.store.work.processes import NewProcess

log = structlog.get_logger(__name__)

_BEAT_S: Final = 10.0
_TTL_S: Final = 40.0
_LEAVE_WITHIN_S: Final = 2.0
"""Nobody waits for it: without a beat the row disappears by itself."""


async def stay_registered(database: Database, every: float = _BEAT_S) -> None:
    """Register this process as a server, again if removed. Runs until cancelled, then deregisters.

    With the schema of a newer release it may not continue, and shuts down as if told to.
    """
    server = NewProcess("server", tuple(KINDS), socket.gethostname(), os.getpid(), __version__, _TTL_S)
    process: int | None = None
    try:
        while True:
            with contextlib.suppress(Unavailable):  # the next beat will come
                if process is None or not await lanes.beat(database, process):
                    process = await processes.register(database, server)
            await asyncio.sleep(every)
    except ConfigurationError as error:
        log.critical("shutting down", reason=error.message)
        signal.raise_signal(signal.SIGTERM)
    finally:
        if process is not None:
            await _leave_registry(database, process)


async def _leave_registry(database: Database, process: int) -> None:
    with contextlib.suppress(Unavailable, TimeoutError):
        async with asyncio.timeout(_LEAVE_WITHIN_S):
            await processes.remove(database, process)
