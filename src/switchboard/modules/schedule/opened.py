"""The module as it is open in a worker. The kernel calls `open_schedule`; `tools.py` and `due.py` work with it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from switchboard.modules.schedule.due import DueTasks
from switchboard.modules.schedule.ledger import look_around
from switchboard.modules.schedule.settings import TaskLimits
from switchboard.ports.front_door import FRONT_DOOR, FrontDoor
from switchboard.ports.gates import GATES, Gates, NoGates
from switchboard.ports.module import Chore, ModuleContext
from switchboard.ports.module_store import ModuleStore

ACCOUNT: Final = ""
"""The module has no accounts."""


class OpenSchedule:
    """Tasks, their store, the door through which they are carried out, and the gates before it."""

    def __init__(self, store: ModuleStore, door: FrontDoor, settings: TaskLimits, gates: Gates | None = None) -> None:
        self.store = store
        self.door = door
        self.settings = settings
        self.gates = gates or NoGates()
        self._due = DueTasks(door, settings, self.gates)

    @property
    def chores(self) -> Sequence[Chore]:
        """What is due is looked for every second, the rules of time zones every hour."""
        return (
            Chore("due", 1.0, self._due.carry_out),
            Chore("zones", 3600.0, self._due.follow_zone_rules),
            Chore("forget", 86_400.0, self._due.forget_old),
        )

    async def read_clock(self) -> datetime:
        """By the clock of the database, which decides when something is due."""
        return (await look_around(self.store)).now

    async def aclose(self) -> None:
        """Nothing is open."""


async def open_schedule(context: ModuleContext) -> OpenSchedule:
    """Raises LookupError if nobody offers the front door, or gates."""
    settings = context.settings if isinstance(context.settings, TaskLimits) else TaskLimits()
    return OpenSchedule(context.stores(ACCOUNT), context.needs[FRONT_DOOR], settings, context.needs[GATES])
