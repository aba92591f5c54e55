"""What a process has once its database is open: `running.py` opens it, `working.py` works with it."""

from __future__ import annotations

import asyncio
import socket

from msgspec import Struct

from switchboard.app.checked import CheckedSettings
from switchboard.cli.parts import ProcessParts
from switchboard.store.database import Database


class OpenedProcess(Struct, frozen=True):
    """`listener`: where the server listens, if there is to be one. `stop` is set when the process shall end."""

    checked: CheckedSettings
    parts: ProcessParts
    database: Database
    listener: socket.socket | None
    stop: asyncio.Event
