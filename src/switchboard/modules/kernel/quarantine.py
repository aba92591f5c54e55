"""Modules that harm workers, and are left alone by all of them until an operator releases them.

`Quarantine` is implemented over tables in `store/models/module_quarantine.py`. `ModuleUse` tells it which modules this
worker is calling, before it calls them: what a worker dies of cannot be told afterwards. Next: `holding.py`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from time import monotonic
from typing import Final, Protocol
from uuid import UUID, uuid4

import structlog

from switchboard.domain.errors import Unavailable
from switchboard.tasks import cancel_tasks

log = structlog.get_logger(__name__)

BEAT_S: Final = 2.0
"""Seconds between signs of life while modules are being called."""
_IDLE_S: Final = 10.0
"""Seconds without a call after which a module is not in use any more."""


class Quarantine(Protocol):
    """Raises `Unavailable`."""

    async def read_quarantine(self) -> Mapping[str, str]:
        """Why each module in quarantine is there, by its name."""
        ...

    async def note_hold(self, module: str) -> None:
        """A module has held the loop of a worker for too long."""
        ...

    async def mark(self, module: str, instance: UUID) -> None:
        """An instance is about to call a module."""
        ...

    async def beat(self, instance: UUID) -> None:
        """It still lives; whoever has not said so for 10 s has died of the modules that it had marked."""
        ...

    async def unmark(self, modules: Collection[str], instance: UUID) -> None:
        """It does not call these any more."""
        ...

    async def note_state(self, module: str, why: str) -> None:
        """A module could not be opened here, and why; empty: it is open."""
        ...


class NoQuarantine:
    """Where there is no database, such as in tests of modules: nothing is remembered."""

    async def read_quarantine(self) -> Mapping[str, str]:
        """As in the port."""
        return {}

    async def note_hold(self, module: str) -> None:
        """As in the port."""

    async def mark(self, module: str, instance: UUID) -> None:
        """As in the port."""

    async def beat(self, instance: UUID) -> None:
        """As in the port."""

    async def unmark(self, modules: Collection[str], instance: UUID) -> None:
        """As in the port."""

    async def note_state(self, module: str, why: str) -> None:
        """As in the port."""


class ModuleUse:
    """The modules that this worker calls. Close it at the end."""

    def __init__(self, quarantine: Quarantine) -> None:
        self._quarantine = quarantine
        self._instance = uuid4()
        self._calls = Counter[str]()
        self._used: dict[str, float] = {}
        """When each marked module was last called, by the monotonic clock."""
        self._beating: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def calling(self, module: str) -> AsyncIterator[None]:
        """While a call of a module runs. Without a database, it runs unmarked."""
        if module not in self._used:
            try:
                await self._quarantine.mark(module, self._instance)
            except Unavailable as error:
                log.warning("the use of a module could not be recorded", module=module, reason=error.message)
        if self._beating is None:
            self._beating = asyncio.create_task(self._send_beats())
        self._used[module] = monotonic()
        self._calls[module] += 1
        try:
            yield
        finally:
            self._calls[module] -= 1
            self._used[module] = monotonic()

    async def aclose(self) -> None:
        """Nothing is called any more."""
        if self._beating is not None:
            await cancel_tasks(self._beating)
        await self._unmark_modules([*self._used])

    async def _send_beats(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            now = monotonic()
            idle = [name for name, at in self._used.items() if not self._calls[name] and now - at > _IDLE_S]
            await self._unmark_modules(idle)
            try:
                await self._quarantine.beat(self._instance)
            except Unavailable as error:
                log.warning("the use of modules could not be recorded", reason=error.message)

    async def _unmark_modules(self, modules: Collection[str]) -> None:
        for name in modules:
            del self._used[name]
        try:
            if modules:
                await self._quarantine.unmark(modules, self._instance)
        except Unavailable as error:
            log.warning("the use of modules could not be recorded", reason=error.message)
