"""The resources of a process whose database is open: `running.py` opens them, `working.py` uses them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from msgspec import Struct

from switchboard.app.checked import CheckedSettings
from switchboard.cli.processes.parts import ProcessParts
from switchboard.cli.processes.service_manager import ServiceManager
from switchboard.store.database import Database


class OpenedProcess(Struct, frozen=True):
    """`listener`: the server's socket, if there is a server. `stop` is set when the process must end.

    `restart` sets it, too, and has the process start again; None: it cannot, since somebody else started it and waits.
    `connectors`: the processes of accounts, if this process has them; it ends after `stop`. They wait for `begin`.
    """

    checked: CheckedSettings
    parts: ProcessParts
    database: Database
    listener: socket.socket | None
    stop: asyncio.Event
    connectors: asyncio.Task[None] | None
    begin: asyncio.Event
    manager: ServiceManager
    restart: Callable[[], None] | None
