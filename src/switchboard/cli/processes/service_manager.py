"""What a service manager such as systemd is told: that we are ready, alive, or stopping (the protocol of sd_notify).

Called by `running.py` and `working.py`. In: the environment that the manager gave us; out: datagrams to its socket.
Nothing is told, and nothing costs anything, where no manager asks for it.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import structlog
from msgspec import Struct

from switchboard.domain.errors import Unavailable
from switchboard.store.database import Database
from switchboard.tasks import Awaited, first_of, wait_at_most

log = structlog.get_logger(__name__)

_BEATS: Final = 4
"""So many beats in the time after which the manager takes us for dead: some may fail."""


class ServiceManager(Struct, frozen=True):
    """Who started us. `address`: its socket, empty if it wants to be told nothing.

    `watchdog_s`: the seconds after which it kills us unless it hears a beat; 0 if it waits for none.
    """

    address: str = ""
    watchdog_s: float = 0.0

    def tell(self, state: str) -> None:
        """Send a state such as `READY=1`. A manager that does not hear it changes nothing for us."""
        if not self.address:
            return
        # A name that begins with @ is one of the abstract namespace of Linux, which has no file.
        place = f"\0{self.address[1:]}" if self.address.startswith("@") else self.address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
            to.setblocking(False)
            to.sendto(state.encode(), place)


def take_service_manager() -> ServiceManager:
    """The manager that the environment names; its variables are removed, as they are not meant for our children.

    PostgreSQL, for one, would say that we are ready.
    """
    address, asked, process = (os.environ.pop(name, "") for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"))
    watched = asked.isascii() and asked.isdigit() and process in ("", str(os.getpid()))
    known = address.startswith(("/", "@"))
    return ServiceManager(address if known else "", int(asked) / 1_000_000 if watched else 0.0)


async def keep_informed(
    manager: ServiceManager, parts: Sequence[Awaited], database: Database, stop: asyncio.Event
) -> None:
    """Tell when all parts are ready, then send beats, if the manager waits for them, until `stop`.

    A beat is sent if our event loop runs and the database answers.
    """
    for part in parts:
        await first_of(part.wait(), stop.wait())
    if not stop.is_set():
        manager.tell("READY=1")
    if not manager.watchdog_s:
        await stop.wait()
    pause = manager.watchdog_s / _BEATS
    while not stop.is_set():
        if await _answers(database, pause):
            manager.tell("WATCHDOG=1")
        await wait_at_most(pause, stop)


async def _answers(database: Database, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await database.ping()
    except (Unavailable, TimeoutError) as error:
        log.warning("no beat for the service manager: the database does not answer", reason=str(error))
        return False
    return True
