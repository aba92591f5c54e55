"""The worker: claims lanes, runs their items, shows that it lives, and takes over from those who do not.

`app/wiring.py` makes one from a handler per kind of lane; the handlers are the legs of `journey/`. A worker is
crash-only: whatever goes wrong with the database ends its session, all it held is taken over, and it registers anew.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, Protocol

import asyncpg
import structlog

from switchboard import __version__
from switchboard.core.policy.shares import NO_CREDIT, shares
from switchboard.domain.errors import Unavailable
from switchboard.domain.ledger import Item
from switchboard.lanes.bell import CHANNEL, WORK, Bell
from switchboard.lanes.faults import point
from switchboard.lanes.journal import Fenced
from switchboard.store import lanes as store
from switchboard.store import schedule
from switchboard.store.database import Database, storable_text

log = structlog.get_logger(__name__)

ROUTE: Final = "route"
"""The kind of lane in which messages wait to be classified."""
_IN_A_ROW: Final = 16
"""Items that one lane may do before it lets others have its place."""
_PAUSE_AFTER_DEFECT: Final = 1.0
"""Seconds before an item is tried again that failed in a way nobody foresaw."""


@dataclass(frozen=True, slots=True)
class Hold:
    """By what right an item is worked on: this worker, and whether it wants the next item of the lane as well.

    `alive` is asked before anything begins that no step of the journal guards: a process that was stopped for long goes
    on where it was, and others may have done the item by then.
    """

    worker: int
    hand_on: bool = True
    alive: Callable[[], bool] = lambda: True


class Handler(Protocol):
    """A leg of the journey: load → core → save. Gives the next item of the lane when it was handed on."""

    async def __call__(self, item: Item, hold: Hold) -> Item | None: ...


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Seconds, except `concurrency`, how many items run at the same time, and `routes`."""

    concurrency: int = 64
    routes: int = 16
    """How many messages are classified at the same time, beside everything else."""
    ttl: float = 10.0
    poll: float = 0.5
    rescue_every: float = 0.25
    drain: float = 20.0
    use_lock: bool = True
    """False behind a transaction-mode pooler, where advisory locks are not to be had: the TTL alone serves."""


@dataclass(frozen=True, slots=True)
class Upkeep:
    """A chore that one worker of all does every `every` seconds."""

    name: str
    every: float
    run: Callable[[], Awaitable[object]]


class Worker:
    """One worker; `run` works until `stop` is called, then drains."""

    def __init__(
        self,
        database: Database,
        bell: Bell,
        handlers: Mapping[str, Handler],
        settings: WorkerSettings,
        upkeep: tuple[Upkeep, ...] = (),
    ) -> None:
        self._database = database
        self._bell = bell
        self._handlers = handlers
        self._settings = settings
        self._upkeep = upkeep
        self._stopping = asyncio.Event()
        self.ready = asyncio.Event()

    def stop(self) -> None:
        """Claim nothing more, finish what runs within the drain limit, leave the rest to others at once."""
        self._stopping.set()

    async def run(self) -> None:
        """Work until stopped; a lost database only interrupts."""
        while not self._stopping.is_set():
            session = _Session(self._database, self._bell, self._handlers, self._settings, self._upkeep, self._stopping)
            try:
                await session.run(self.ready)
            except Unavailable as error:
                log.warning("worker interrupted", reason=error.message)
                await _wait(self._stopping, 0.2 + random.random() * 0.3)


class _Session:
    """The time between registering and losing or leaving: one worker id, one connection that shows we live."""

    def __init__(
        self,
        database: Database,
        bell: Bell,
        handlers: Mapping[str, Handler],
        settings: WorkerSettings,
        upkeep: tuple[Upkeep, ...],
        stopping: asyncio.Event,
    ) -> None:
        self._database = database
        self._bell = bell
        self._handlers = handlers
        self._settings = settings
        self._upkeep = upkeep
        self._stopping = stopping
        self._worker = 0
        self._credit = NO_CREDIT
        self._route_credit = NO_CREDIT
        self._running: set[asyncio.Task[None]] = set()
        self._routing: set[asyncio.Task[None]] = set()
        """Those of `_running` that work on route lanes, which have places of their own."""
        self._wake = asyncio.Event()
        self._lost = asyncio.Event()
        self._last_beat = monotonic()

    async def run(self, ready: asyncio.Event) -> None:
        async with AsyncExitStack() as stack:
            await self._register(stack)
            # Self-fence, in whatever way we leave. From below: nothing more is claimed, what runs is cancelled, and
            # only then do we let go of the connection with the lock, after which others may take the lanes.
            stack.push_async_callback(self._cancel_running)
            stack.callback(self._bell.subscribe(WORK, self._wake.set))
            claiming = asyncio.create_task(self._claim_loop())
            chores = [claiming, *(asyncio.create_task(chore()) for chore in (self._beat_loop, self._rescue_loop))]
            if self._upkeep:
                chores.append(asyncio.create_task(self._upkeep_loop()))
            stack.push_async_callback(_cancel, chores)
            log.info("worker ready", worker=self._worker)
            ready.set()
            await self._until_over(chores)
            if not self._lost.is_set():
                await self._leave(claiming)
            elif not self._stopping.is_set():
                raise Unavailable("the session was lost")

    async def _register(self, stack: AsyncExitStack) -> None:
        connection = await self._database.dedicated()
        stack.push_async_callback(_close, connection)
        try:
            self._worker = await store.register_worker(
                connection,
                host=socket.gethostname(),
                pid=os.getpid(),
                version=__version__,
                ttl=self._settings.ttl,
                lock=self._settings.use_lock,
            )
            await self._database.listen(connection, CHANNEL, self._bell.heard)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError) as error:
            raise Unavailable(f"the worker could not register: {error}") from error
        connection.add_termination_listener(lambda _: self._lost.set())

    async def _until_over(self, chores: list[asyncio.Task[None]]) -> None:
        """Until we are told to stop, are lost, or a chore fails."""
        ends = [asyncio.create_task(event.wait()) for event in (self._stopping, self._lost)]
        try:
            done, _ = await asyncio.wait([*chores, *ends], return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _cancel(ends)
        for task in done:
            if task in chores and task.exception() is not None:
                self._lost.set()
                log.warning("worker chore failed", error=repr(task.exception()))

    async def _leave(self, claiming: asyncio.Task[None]) -> None:
        """In good order: end claiming first (a claim that came after our release would be nobody's), then drain."""
        self._wake.set()
        await self._unless_lost(asyncio.wait([claiming], timeout=self._settings.drain))
        if self._running:
            log.info("draining", running=len(self._running), limit_s=self._settings.drain)
            await self._unless_lost(asyncio.wait(self._running, timeout=self._settings.drain))
        if self._lost.is_set():
            return  # the others see it by the lock, or by the beat
        await _cancel([claiming])
        await self._cancel_running()
        await store.release_worker(self._database, self._worker)
        self._bell.ring(WORK)

    async def _unless_lost(self, waiting: Coroutine[Any, Any, object]) -> None:
        tasks = [asyncio.create_task(waiting), asyncio.create_task(self._lost.wait())]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        await _cancel(tasks)

    async def _cancel_running(self) -> None:
        await _cancel(tuple(self._running))

    async def _claim_loop(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            free = self._settings.concurrency - (len(self._running) - len(self._routing))
            routes = self._settings.routes - len(self._routing)
            items = await self._claim(free, routes) if free > 0 or routes > 0 else []
            if items:
                point("after_claim")
            for item in items:
                self._start(item)
            classified = sum(item.kind == ROUTE for item in items)
            filled = 0 < free == len(items) - classified or 0 < routes == classified
            if not filled:
                await _wait(self._wake, self._settings.poll)

    def _start(self, item: Item) -> None:
        task = asyncio.create_task(self._work(item))
        self._running.add(task)
        if item.kind == ROUTE:
            self._routing.add(task)
        task.add_done_callback(self._finished)

    async def _claim(self, free: int, routes: int) -> list[Item]:
        """Places go to the tiers by weight; what a tier leaves over goes to the others, the highest first."""
        quota, self._credit = shares(self._credit, free)
        route_quota, self._route_credit = shares(self._route_credit, routes)
        items = await store.claim(self._database, self._worker, quota, route_quota)
        work = [item for item in items if item.kind != ROUTE]
        waiting = [item for item in items if item.kind == ROUTE]
        work = await self._claim_left(work, quota, store.WORK_POOL)
        return work + await self._claim_left(waiting, route_quota, store.ROUTE_POOL)

    async def _claim_left(self, items: list[Item], quota: Sequence[int], pool: str) -> list[Item]:
        for tier, places in enumerate(quota):
            left = sum(quota) - len(items)
            if left > 0 and sum(item.tier == tier for item in items) == places:
                items += await store.claim(self._database, self._worker, [0] * tier + [left], pool=pool)
        return items

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._routing.discard(task)
        self._wake.set()
        if task.cancelled() or task.exception() is not None:
            # The item is still ours in the database, but nothing works on it: only a new session sets it free.
            self._lost.set()

    async def _work(self, item: Item) -> None:
        for n in range(_IN_A_ROW):
            last = n == _IN_A_ROW - 1 or self._stopping.is_set()
            following = await self._run_one(item, Hold(self._worker, hand_on=not last, alive=self._is_alive))
            if following is None:
                return
            item = following

    async def _run_one(self, item: Item, hold: Hold) -> Item | None:
        try:
            return await self._handlers[item.kind](item, hold)
        except Fenced:
            log.info("fenced", lane=item.lane, seq=item.seq, epoch=item.epoch)
            return None
        except Unavailable:
            raise
        except (Exception, asyncio.CancelledError) as error:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            await self._put_back(item, error)
            return None

    async def _put_back(self, item: Item, error: BaseException) -> None:
        """A defect of ours: never silent, never a stuck lane. It counts as an attempt, and the limit ends it."""
        what = storable_text("".join(traceback.format_exception_only(error)).strip())[:2000]
        failed = store.Settlement(item, "failed", None, None, error_class="internal", error=what)
        await store.retry(self._database, self._worker, failed, _PAUSE_AFTER_DEFECT)
        where = storable_text("".join(traceback.format_exception(error)))
        log.error("item failed unexpectedly", lane=item.lane, seq=item.seq, exception=where)

    async def _beat_loop(self) -> None:
        self._last_beat = monotonic()
        while True:
            await asyncio.sleep(self._settings.ttl / 8)
            # A process that was stopped for long finds itself here with an old beat, and must not go on.
            if not self._is_alive():
                raise Unavailable("no beat got through in time")
            started = monotonic()
            async with asyncio.timeout(self._settings.ttl / 4):
                if not await store.beat(self._database, self._worker):
                    raise Unavailable("the worker was declared dead by another")
            self._last_beat = started

    def _is_alive(self) -> bool:
        return monotonic() - self._last_beat <= self._settings.ttl / 2

    async def _rescue_loop(self) -> None:
        while True:
            await asyncio.sleep(self._settings.rescue_every * random.uniform(0.8, 1.2))
            if freed := await store.rescue(self._database):
                log.info("took over", lanes=freed)
                self._bell.ring(WORK)

    async def _upkeep_loop(self) -> None:
        await schedule.plan(self._database, {chore.name: chore.every for chore in self._upkeep})
        while True:
            for name in await schedule.due(self._database, [chore.name for chore in self._upkeep]):
                await self._do_chore(name)
            await asyncio.sleep(0.5)

    async def _do_chore(self, name: str) -> None:
        for chore in self._upkeep:
            if chore.name == name:
                try:
                    await chore.run()
                    await schedule.done(self._database, name, None)
                except Unavailable:
                    raise
                except Exception as error:
                    log.exception("upkeep failed", chore=name)
                    await schedule.done(self._database, name, repr(error)[:500])


async def _wait(event: asyncio.Event, timeout: float) -> None:
    try:
        async with asyncio.timeout(timeout):
            await event.wait()
    except TimeoutError:
        pass


async def _cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    cancelled = tuple(tasks)
    for task in cancelled:
        task.cancel()
    await asyncio.gather(*cancelled, return_exceptions=True)


async def _close(connection: asyncpg.Connection) -> None:
    if not connection.is_closed():
        try:
            await connection.close(timeout=2)
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
            connection.terminate()
