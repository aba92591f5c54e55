"""Modules that harm workers: what they did, and which are in quarantine.

`app/ops/modules.py` gives `StoredQuarantine` to the modules of a worker, and releases them for operators. In: what
happened; out: names of modules, each with the reason. Next: `modules/kernel/quarantine.py`, the port.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from msgspec import Struct

from switchboard.core.text.storable import storable_text
from switchboard.store.database import Database, query, rows_as

_SILENCE: Final = timedelta(seconds=10)
"""After so long without a beat, whoever called a module has died."""
_MOST_WHY: Final = 1000


class QuarantinedModule(Struct, frozen=True):
    """A module in quarantine."""

    module: str
    why: str
    since: datetime


class ModuleFailure(Struct, frozen=True):
    """A module that could not be opened on a host."""

    module: str
    host: str
    why: str
    at: datetime


class StoredQuarantine(Struct, frozen=True):
    """`Quarantine` in PostgreSQL, for the worker on this host."""

    database: Database
    host: str

    async def read_quarantine(self) -> Mapping[str, str]:
        """As in the port."""
        return {one.module: one.why for one in await list_quarantined(self.database)}

    async def note_hold(self, module: str) -> None:
        """As in the port."""
        await self.database.run(query("quarantined_modules.harm"), module, "hold")
        await self.database.run(query("quarantined_modules.judge"))

    async def mark(self, module: str, instance: UUID) -> None:
        """As in the port."""
        await self.database.run(query("quarantined_modules.mark"), module, instance)

    async def beat(self, instance: UUID) -> None:
        """As in the port."""
        await self.database.run(query("quarantined_modules.beat"), instance)
        await self.database.run(query("quarantined_modules.note_deaths"), _SILENCE)
        await self.database.run(query("quarantined_modules.judge"))

    async def unmark(self, modules: Collection[str], instance: UUID) -> None:
        """As in the port."""
        await self.database.run(query("quarantined_modules.unmark"), instance, list(modules))

    async def note_state(self, module: str, why: str) -> None:
        """As in the port."""
        if why:
            told = storable_text(why)[:_MOST_WHY]
            await self.database.run(query("quarantined_modules.failed"), module, self.host, told)
        else:
            await self.database.run(query("quarantined_modules.opened"), module, self.host)


async def list_quarantined(database: Database) -> list[QuarantinedModule]:
    """The modules in quarantine, by name."""
    return rows_as(QuarantinedModule, await database.rows(query("quarantined_modules.quarantined")))


async def list_failures(database: Database) -> list[ModuleFailure]:
    """The modules that could not be opened when that was last tried, by name and host."""
    return rows_as(ModuleFailure, await database.rows(query("quarantined_modules.failures")))


async def release_module(database: Database, module: str) -> bool:
    """Release a module, and forget what it did. Whether it was in quarantine."""
    return await database.value(query("quarantined_modules.release"), module) is not None
