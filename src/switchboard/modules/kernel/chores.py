"""Does the chores of the modules that are open in this worker, each in a task of its own.

`app` runs a `ChoreRunner` beside the worker, with a `ChoreBook` of the store. In: which chores there are, asked again
at every look, so that modules may open later and close earlier. A chore that hangs, fails or is cut off harms no
other; `doctor` shows it. Next: `ports/chores.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from time import monotonic
from typing import Final

import structlog
from msgspec import Struct

from switchboard.domain.errors import SwitchboardError, Unavailable
from switchboard.ports.chores import ChoreBook, ChoreKey, ChoreLease, ChoreStores
from switchboard.ports.module import Chore
from switchboard.ports.module_store import ModuleStore, TakenOver
from switchboard.tasks import cancel_tasks, refuse_exit, wait_at_most

log = structlog.get_logger(__name__)

AT_ONCE: Final = 4
LIMIT_S: Final = 600.0
_AGAIN_S: Final = 1.0
"""After the database was away, and when chores may come that nobody has told of yet."""
_SHORTEST_S: Final = 0.05


class OpenChore(Struct, frozen=True):
    """A chore of a module that is open here, and where its stores come from."""

    module: str
    chore: Chore
    stores: ChoreStores

    @property
    def key(self) -> ChoreKey:
        """By which the fleet knows it."""
        return ChoreKey(self.module, self.chore.account, self.chore.name)


class ChoreRunner:
    """Runs until cancelled; what it is doing then is given back, for others to do at once.

    `find_chores`: those of the modules that are open now; what is no longer among them is cancelled. `limit_s`: for
    one run.
    """

    def __init__(
        self, book: ChoreBook, find_chores: Callable[[], Iterable[OpenChore]], *, limit_s: float = LIMIT_S
    ) -> None:
        self._book = book
        self._find_chores = find_chores
        self._limit_s = limit_s
        self._planned: dict[ChoreKey, float] = {}
        self._running: dict[ChoreKey, asyncio.Task[None]] = {}
        self._wake = asyncio.Event()

    def look_now(self) -> None:
        """Look for chores at once: a module has been opened or closed."""
        self._wake.set()

    async def run(self) -> None:
        """Take what is due, again and again."""
        try:
            while True:
                self._wake.clear()
                await wait_at_most(await self._begin_due(), self._wake)
        finally:
            await cancel_tasks(*self._running.values())

    async def _begin_due(self) -> float:
        """Begin what is due; returns the seconds until the next look."""
        chores = {chore.key: chore for chore in self._find_chores()}
        for key in self._running.keys() - chores.keys():
            self._running[key].cancel()
        # A run that has lost its lease may not have ended yet: here, too, nothing runs twice at once.
        free = [key for key in chores if key not in self._running]
        if not free or len(self._running) >= AT_ONCE:
            return _AGAIN_S if not chores else self._book.lease_s
        try:
            await self._plan_new(chores)
            taken = await self._book.take(free, AT_ONCE - len(self._running))
        except Unavailable as error:
            log.warning("chores of modules must wait", reason=error.message)
            return _AGAIN_S
        for lease in taken.leases:
            self._start(chores[lease.key], lease)
        return max(taken.wait_s, _SHORTEST_S)

    async def _plan_new(self, chores: dict[ChoreKey, OpenChore]) -> None:
        for key, one in chores.items():
            if self._planned.get(key) != one.chore.every:
                await self._book.plan(key, one.chore.every)
                self._planned[key] = one.chore.every

    def _start(self, one: OpenChore, lease: ChoreLease) -> None:
        task = self._running[one.key] = asyncio.create_task(self._do_chore(one, lease))
        task.add_done_callback(lambda _: self._forget_run(one.key))

    def _forget_run(self, key: ChoreKey) -> None:
        del self._running[key]
        self._wake.set()

    async def _do_chore(self, one: OpenChore, lease: ChoreLease) -> None:
        doing = asyncio.create_task(refuse_exit(_await_run, one.chore, one.stores.for_chore(lease)))
        keeping = asyncio.create_task(self._keep_lease(lease))
        try:
            await asyncio.wait([doing, keeping], timeout=self._limit_s, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await cancel_tasks(doing)
            with suppress(Unavailable):
                await self._book.release(lease)
            raise
        finally:
            ended, lost = doing.done(), keeping.done()
            await cancel_tasks(doing, keeping)
        await self._note_end(lease, doing, ended=ended, lost=lost)

    async def _note_end(self, lease: ChoreLease, doing: asyncio.Task[None], *, ended: bool, lost: bool) -> None:
        error = None if doing.cancelled() else doing.exception()
        if isinstance(error, TakenOver) or (lost and not ended):
            log.warning("a chore was taken over by another worker", module=lease.key.module, chore=lease.key.name)
            return
        why = f"it took longer than {self._limit_s:.0f} s" if not ended else _describe_failure(doing, error)
        if why is not None:
            log.warning("a chore failed", module=lease.key.module, chore=lease.key.name, reason=why, exc_info=error)
        with suppress(Unavailable):  # its lease ends by itself
            await self._book.finish(lease, why)

    async def _keep_lease(self, lease: ChoreLease) -> None:
        """Return when the lease is lost: it is another's, or it may be, as it could not be renewed in time."""
        renewed = monotonic()
        while monotonic() - renewed < self._book.lease_s:
            await asyncio.sleep(self._book.lease_s / 3)
            began = monotonic()
            try:
                if not await self._book.renew(lease):
                    return
            except Unavailable:
                continue
            renewed = began


async def _await_run(chore: Chore, store: ModuleStore) -> None:
    await chore.run(store)


def _describe_failure(doing: asyncio.Task[None], error: BaseException | None) -> str | None:
    """Why a run that has ended by itself has failed; None: it has not."""
    if doing.cancelled():
        return "it cancelled itself"
    if isinstance(error, SwitchboardError):  # its message is for operators as it is
        return error.message
    return None if error is None else f"{type(error).__name__}: {error}"
