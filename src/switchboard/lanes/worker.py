"""The worker: claims lanes, runs their items, sends heartbeats, and takes over the lanes of dead workers.

`app/wiring.py` makes one from a handler per kind of lane (`kinds.py`); the handlers are the legs of `journey/`. A
worker is crash-only: any trouble with the database ends its session, its lanes are taken over, and it registers
again.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import traceback
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from time import monotonic
from typing import Final

import asyncpg
import structlog
from msgspec import Struct, field

from switchboard import __version__
from switchboard.core.policy.tiers import LATE
from switchboard.core.text.storable import storable_text
from switchboard.domain.errors import Unavailable
from switchboard.domain.ledger import Item
from switchboard.lanes.faults import point
from switchboard.lanes.journal import StepLog
from switchboard.lanes.kinds import Claim, Handler, LaneKind
from switchboard.lanes.notifier import CHANNEL, WORK, Notifier
from switchboard.lanes.places import Places, Quota, Turns, used_up
from switchboard.ports.engine import Fenced, Parked
from switchboard.ports.maintenance import MaintenanceTask
from switchboard.store.database import Database
from switchboard.store.pooler import is_direct
from switchboard.store.work import lanes as store
from switchboard.store.work import maintenance
from switchboard.store.work.lanes import Look, Looker
from switchboard.store.work.processes import NewProcess
from switchboard.tasks import cancel_tasks, first_of, wait_at_most

log = structlog.get_logger(__name__)

_IN_A_ROW: Final = 16
"""Items that one lane may run before it yields its slot to others."""
_KEPT_FOR: Final = 0.05
"""Seconds after which it yields its slot in any case: who waits for one waits for one long item, not for sixteen."""
_LOOK_AGAIN: Final = 0.02
"""Seconds after the end of an item until the worker looks for more, where probably nothing waits."""
_PAUSE_AFTER_DEFECT: Final = 1.0
"""Seconds before an item is retried after an unexpected error."""


_NOT_AT_ONCE: Final = 0.01
"""Seconds until the next look, although a time is even nearer: what comes then is found together."""
_LOCAL_TASKS: Final = 0.5
"""Seconds after which to look which tasks of this machine are due."""
_NEVER: Final = float("inf")


class WorkerSettings(Struct, frozen=True):
    """Seconds, except `pools`: how many items of a pool run concurrently, if it differs from `kinds.py`."""

    pools: Mapping[str, int] = field(default_factory=dict)
    catch_up: int = 4
    """How many lanes of an endpoint run at once, in each pool and of all workers, whose messages came late."""
    ttl: float = 10.0
    poll: float = 1.0
    """How often to look for what others have left, while this process is alone and idle."""
    rescue_every: float = 0.25
    """The same while something is going on, and where other processes may die or leave something."""
    drain: float = 20.0
    use_lock: bool = True
    """Whether an advisory lock shows that we are alive; never behind a pooler. Without it only the TTL counts."""


class Worker:
    """One worker; `run` works until `stop` is called, then drains."""

    def __init__(
        self,
        database: Database,
        notifier: Notifier,
        handlers: Mapping[LaneKind, Handler],
        settings: WorkerSettings,
        maintenance: tuple[MaintenanceTask, ...] = (),
    ) -> None:
        self._database = database
        self._notifier = notifier
        self._handlers = handlers
        self._settings = settings
        self._maintenance = maintenance
        self._stopping = asyncio.Event()
        self.ready = asyncio.Event()
        self.number = 0
        """By which others know it, in `switchboard explain`; it changes when it must register again."""

    def stop(self) -> None:
        """Claim nothing more, finish running items within the drain limit, and then release the rest at once."""
        self._stopping.set()

    async def run(self) -> None:
        """Work until stopped; a lost database only interrupts."""
        while not self._stopping.is_set():
            session = _Session(
                self._database, self._notifier, self._handlers, self._settings, self._maintenance, self._stopping
            )
            try:
                await session.run(self._note_registration)
            except Unavailable as error:
                log.warning("worker interrupted", reason=error.message)
                await wait_at_most(0.2 + random.random() * 0.3, self._stopping)

    def _note_registration(self, number: int) -> None:
        self.number = number
        self.ready.set()


class _Session:
    """From registration to loss or exit: one worker id, and one connection that proves that we are alive."""

    def __init__(
        self,
        database: Database,
        notifier: Notifier,
        handlers: Mapping[LaneKind, Handler],
        settings: WorkerSettings,
        maintenance: tuple[MaintenanceTask, ...],
        stopping: asyncio.Event,
    ) -> None:
        self._database = database
        self._notifier = notifier
        self._kinds = {kind.name: kind for kind in handlers}
        self._handlers = {kind.name: handler for kind, handler in handlers.items()}
        self._settings = settings
        self._maintenance = maintenance
        self._stopping = stopping
        self._worker = 0
        self._steps = StepLog(database, 0)
        pools = {kind.pool for kind in handlers}
        self._places = Places({pool.name: settings.pools.get(pool.name, pool.places) for pool in pools})
        self._turns = Turns()
        self._running: set[asyncio.Task[bool]] = set()
        self._wake = asyncio.Event()
        self._look_again: asyncio.TimerHandle | None = None
        self._active = asyncio.Event()
        """Something is going on: a claim found work, or an item has ended."""
        self._due = asyncio.Event()
        """A maintenance task is due."""
        self._lost = asyncio.Event()
        self._last_beat = monotonic()

    async def run(self, registered: Callable[[int], None]) -> None:
        async with AsyncExitStack() as stack:
            await self._register_process(stack)
            # Self-fence, in whatever way we leave. From below: nothing more is claimed, what runs is cancelled, and
            # only then do we let go of the connection with the lock, after which others may take the lanes.
            stack.push_async_callback(self._cancel_running)
            stack.enter_context(self._notifier.subscribe(WORK, self._wake.set))
            claiming = asyncio.create_task(self._claim_loop())
            loops = [claiming, *(asyncio.create_task(loop()) for loop in (self._beat_loop, self._look_loop))]
            if self._maintenance:
                loops.append(asyncio.create_task(self._maintenance_loop()))
            stack.push_async_callback(cancel_tasks, *loops)
            log.info("worker ready", worker=self._worker)
            registered(self._worker)
            await self._until_over(loops)
            if not self._lost.is_set():
                await self._leave_in_order(claiming)
            elif not self._stopping.is_set():
                raise Unavailable("the session was lost")

    async def _register_process(self, stack: AsyncExitStack) -> None:
        connection = await self._database.dedicated_connection()
        stack.push_async_callback(_close_connection, connection)
        try:
            lock = self._settings.use_lock and await self._can_lock(connection)
            self._worker = await store.register_worker(connection, self._describe_process(), lock=lock)
            self._steps = StepLog(self._database, self._worker, self._is_alive)
            await self._database.listen(connection, CHANNEL, self._notifier.handle_notification)
            stack.enter_context(self._notifier.heard_by_a_worker())
        except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError) as error:
            raise Unavailable(f"the worker could not register: {error}") from error
        connection.add_termination_listener(lambda _: self._lost.set())

    async def _can_lock(self, connection: asyncpg.Connection) -> bool:
        direct = await is_direct(connection)
        if not direct:
            log.warning(
                "advisory locks are off, because the database is behind a pooler: a dead worker is noticed late",
                after_s=self._settings.ttl,
                advice="set database_direct_url to PostgreSQL itself",
            )
        return direct

    def _describe_process(self) -> NewProcess:
        return NewProcess(
            "worker", tuple(self._kinds), socket.gethostname(), os.getpid(), __version__, self._settings.ttl
        )

    async def _until_over(self, loops: list[asyncio.Task[None]]) -> None:
        """Run until told to stop, until the session is lost, or a loop fails. Raises Unavailable with the reason."""
        ends = [asyncio.create_task(event.wait()) for event in (self._stopping, self._lost)]
        try:
            done, _ = await asyncio.wait([*loops, *ends], return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_tasks(*ends)
        for task in done:
            if task in loops and (error := task.exception()) is not None:
                self._lost.set()
                if isinstance(error, Unavailable):
                    raise error
                log.error("a loop of the worker failed; the worker starts again", exc_info=error)

    async def _leave_in_order(self, claiming: asyncio.Task[None]) -> None:
        """Leave in order: stop claiming first (a claim after our release would have no owner), then drain."""
        self._wake.set()
        await first_of(asyncio.wait([claiming], timeout=self._settings.drain), self._lost.wait())
        if self._running:
            log.info("draining", running=len(self._running), limit_s=self._settings.drain)
            running = list(self._running)  # that set may be empty by the time the wait begins, which is an error
            await first_of(asyncio.wait(running, timeout=self._settings.drain), self._lost.wait())
        if self._lost.is_set():
            return  # the others notice by the lock or the heartbeat
        await cancel_tasks(claiming)
        await self._cancel_running()
        await store.release_worker(self._database, self._worker)
        self._notifier.notify(WORK)

    async def _cancel_running(self) -> None:
        await cancel_tasks(*self._running)

    async def _claim_loop(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            if self._look_again is not None:
                self._look_again.cancel()
                self._look_again = None
            quota = self._places.deal()
            items = await self._claim_items(quota)
            if items:
                point("after_claim")
                self._active.set()
            for item in items:
                self._start(item)
            if not used_up(quota, map(self._place_of, items)):
                await self._wake.wait()

    def _start(self, item: Item) -> None:
        task = asyncio.create_task(self._work_lane(item))
        self._running.add(task)
        pool, _ = self._place_of(item)
        self._places.take(pool)
        task.add_done_callback(lambda task: self._finish_task(task, item, pool))

    async def _claim_items(self, quota: Quota) -> list[Item]:
        if not quota:
            return []
        served = list(self._turns.served_flows(quota))
        items = await store.claim(
            self._database, self._worker, tuple(self._kinds), quota, served, catch_up=self._settings.catch_up
        )
        for item in items:
            self._turns.take(*self._place_of(item), item.flow)
        return items

    def _place_of(self, item: Item) -> tuple[str, int]:
        return self._kinds[item.kind].pool.name, item.tier

    def _finish_task(self, task: asyncio.Task[bool], item: Item, pool: str) -> None:
        self._running.discard(task)
        self._active.set()
        was_full = self._places.give_back(pool)
        if task.cancelled() or task.exception() is not None:
            # The item is still ours in the database, but nothing works on it: only a new session releases it.
            self._lost.set()
        elif was_full or item.tier == LATE or task.result():  # only a limited number of late lanes may run at once
            self._wake.set()
        elif self._look_again is None:
            self._look_again = asyncio.get_running_loop().call_later(_LOOK_AGAIN, self._wake.set)

    async def _work_lane(self, item: Item) -> bool:
        """Run the item, and those that follow in its lane; returns whether others may have to continue with it."""
        began = monotonic()
        left = _IN_A_ROW
        kept = False
        following: Item | None = item

        def keeps() -> bool:
            nonlocal kept
            kept = left > 0 and monotonic() - began < _KEPT_FOR and not self._stopping.is_set()
            return kept

        claim = Claim(self._worker, self._steps, keeps, self._is_alive, self._stopping)
        while following is not None:
            left -= 1
            kept = False
            following = await self._run_one(following, claim)
        return not kept

    async def _run_one(self, item: Item, claim: Claim) -> Item | None:
        try:
            return await self._handle_item(item, claim)
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

    async def _handle_item(self, item: Item, claim: Claim) -> Item | None:
        try:
            return await self._handlers[item.kind](item, claim)
        except Parked as parked:
            await self._park_item(item, parked)
            return None

    async def _park_item(self, item: Item, parked: Parked) -> None:
        point("before_park")
        if await self._steps.park(item, parked.keys):
            point("after_park")
            self._wake.set()
        else:
            log.info("fenced", lane=item.lane, seq=item.seq, epoch=item.epoch)

    async def _put_back(self, item: Item, error: BaseException) -> None:
        """Put back an item after a bug, logged and without blocking the lane. It counts as an attempt."""
        what = storable_text("".join(traceback.format_exception_only(error)).strip())[:2000]
        failed = store.Settlement(item, "failed", None, None, error_class="internal", error=what)
        await store.retry(self._database, self._worker, failed, _PAUSE_AFTER_DEFECT)
        where = storable_text("".join(traceback.format_exception(error)))
        log.error("item failed unexpectedly", lane=item.lane, seq=item.seq, attempt=item.attempts, exception=where)

    async def _beat_loop(self) -> None:
        self._last_beat = monotonic()
        while True:
            # Counted from the start of the last: one that took long is followed sooner, and not late.
            await asyncio.sleep(max(self._last_beat + self._settings.ttl / 4 - monotonic(), 0.0))
            # A process suspended for long resumes here with an old heartbeat, and must not continue.
            if not self._is_alive():
                raise Unavailable("no beat got through in time")
            started = monotonic()
            try:
                async with asyncio.timeout(self._settings.ttl / 4):
                    registered = await store.beat(self._database, self._worker)
            except TimeoutError:
                raise Unavailable("a beat took too long: the database or this machine is overloaded") from None
            if not registered:
                raise Unavailable("the worker was declared dead by another")
            self._last_beat = started

    def _is_alive(self) -> bool:
        return monotonic() - self._last_beat <= self._settings.ttl / 2

    async def _look_loop(self) -> None:
        """Look at everything at once, often while something is going on, and when a time has come that was found."""
        looks, pools = self._notifier.looks, frozenset(kind.pool.name for kind in self._kinds.values())
        shared = tuple(task.name for task in self._maintenance if not task.local)
        looker = Looker(socket.gethostname(), os.getpid(), self._worker, tuple(pools), shared)
        while True:
            self._active.clear()
            look = await store.look(self._database, looker)
            looks.publish(look)
            if look.freed:
                log.info("took over", lanes=look.freed)
            if look.woken:
                point("after_wake")
            if look.freed or look.woken:
                self._notifier.notify(WORK)
            if not pools.isdisjoint(look.pools):
                self._wake.set()
            if look.due:
                self._due.set()
            await self._pause_until(look)

    async def _pause_until(self, look: Look) -> None:
        """Until the next look; an item that has begun or ended meanwhile may have set a nearer time than was found."""
        often, seldom = self._settings.rescue_every * random.uniform(0.8, 1.2), self._settings.poll
        next_in = _NEVER if look.next_in is None else max(look.next_in, _NOT_AT_ONCE)
        self._notifier.looks.expect(min(often if look.others or self._running else seldom, next_in))
        await asyncio.sleep(min(often, next_in))
        if next_in > often and not look.others and not self._running:
            await wait_at_most(min(seldom, next_in) - often, self._active)

    async def _maintenance_loop(self) -> None:
        shared = {task.name: task for task in self._maintenance if not task.local}
        here = {task: 0.0 for task in self._maintenance if task.local}
        await maintenance.plan(self._database, {task.name: task.every for task in shared.values()})
        while True:
            self._due.clear()
            for name in await maintenance.due(self._database, list(shared)):
                await maintenance.done(self._database, name, await _failure_of(shared[name]))
            await _run_due(here)  # also if another shared task is due already
            while not self._due.is_set():
                await wait_at_most(_LOCAL_TASKS, self._due)
                await _run_due(here)


async def _run_due(here: dict[MaintenanceTask, float]) -> None:
    """Run the tasks of this process that are due; each is due again after its period."""
    for task in [task for task, due in here.items() if due <= monotonic()]:
        here[task] = monotonic() + task.every
        await _failure_of(task)


async def _failure_of(task: MaintenanceTask) -> str | None:
    """Run a task; returns what went wrong. Raises `Unavailable`."""
    try:
        await task.run()
    except Unavailable:
        raise
    except Exception as error:
        log.exception("maintenance failed", task=task.name)
        return repr(error)[:500]
    return None


async def _close_connection(connection: asyncpg.Connection) -> None:
    if not connection.is_closed():
        try:
            await connection.close(timeout=2)
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
            connection.terminate()
