"""Whether there is anything new to be seen, by marks that change with it. Called by `app/pulse.py`; reads only."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from switchboard.store.connectors.heartbeats import INTERVAL_S
from switchboard.store.database import Database, query, row_as, seconds

_ROWS: Final = 200
"""Of each kind that are looked at. Where there are more, newer ones are coming anyway."""


class PulseMarks(Struct, frozen=True):
    """Of each kind of what can be seen, a text that is another one once there is something new."""

    messages: str = ""
    approvals: str = ""
    dead: str = ""
    connections: str = ""
    plans: str = ""
    rules: str | None = None


async def read_marks(database: Database) -> PulseMarks:
    """As of now, by one statement."""
    return row_as(PulseMarks, await database.row(query("pulse.marks"), seconds(INTERVAL_S), _ROWS)) or PulseMarks()
