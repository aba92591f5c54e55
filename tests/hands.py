"""Workers that do only what a test tells them, engines that do what a test gives them, and questions to the books."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg

from switchboard.domain.ledger import Item
from switchboard.domain.message import RequestId
from switchboard.lanes.journal import StepLog
from switchboard.lanes.kinds import KINDS
from switchboard.lanes.worker import Worker
from switchboard.ports.engine import Journal, Turn, TurnResult
from switchboard.store.books import audit_books
from switchboard.store.database import Database
from switchboard.store.ids import new_uuid7
from switchboard.store.messages.inbox import Acceptance
from switchboard.store.work import lanes
from switchboard.store.work.lanes import NewDeadLetter, Settlement, SettlementOutcome
from switchboard.store.work.processes import NewProcess
from switchboard.store.work.steps import Step, StepWrite, write_steps
from tests.lab import Lab, submission


@dataclass(frozen=True, slots=True)
class Scripted:
    """An engine that is one function."""

    play: Callable[[Turn, Journal], Awaitable[TurnResult]]

    async def run(self, turn: Turn, journal: Journal) -> TurnResult:
        return await self.play(turn, journal)


@dataclass(frozen=True, slots=True)
class Hand:
    """A registered worker without any loop: it claims and settles when told to. Closing `connection` kills it."""

    database: Database
    worker: int
    connection: asyncpg.Connection

    @property
    def steps(self) -> StepLog:
        """Where its journals are kept."""
        return StepLog(self.database, self.worker)

    async def claim(self, *quota: int, pool: str = "work") -> list[Item]:
        """Up to so many lanes per tier; one of any tier if nothing is said."""
        if quota:
            return await lanes.claim(self.database, self.worker, tuple(KINDS), {pool: quota})
        for tier in range(4):
            if items := await self.claim(*[0] * tier, 1, pool=pool):
                return items
        return []

    async def answer(
        self, item: Item, text: str = "ok", *, pool: str | None = None, hand_on: bool = False
    ) -> SettlementOutcome:
        """Settle with a reply; `pool` as of `ReplyWays`."""
        [settled] = await lanes.settle(
            self.database,
            self.worker,
            [Settlement(item, "answered", "hand", None, hand_on=hand_on, outbox_id=new_uuid7(), text=text, pool=pool)],
        )
        return settled

    async def fail(self, item: Item, delay: float = 0.0) -> bool:
        """Put the item back for another attempt."""
        failure = Settlement(item, "failed", "hand", None, error_class="internal", error="no")
        return await lanes.retry(self.database, self.worker, failure, delay)

    async def die(self) -> None:
        """Let go of the lock without a word, as a killed process does; returns when the server knows."""
        await self.connection.close()


@asynccontextmanager
async def a_hand(database: Database, *, ttl: float = 60.0, lock: bool = True) -> AsyncIterator[Hand]:
    """A hand that lives until the end of the block."""
    connection = await database.dedicated_connection()
    try:
        worker = await lanes.register_worker(connection, NewProcess("worker", (), "test", 1, "0", ttl), lock=lock)
        yield Hand(database, worker, connection)
    finally:
        await connection.close()


async def message_of(database: Database, item: Item) -> RequestId:
    """The message of an item."""
    return RequestId(await database.value("select request_of($1, $2)", item.lane, item.seq))


@asynccontextmanager
async def at_work(*workers: Worker) -> AsyncIterator[None]:
    """Workers that run until the end of the block, and must end well."""
    tasks = [asyncio.create_task(worker.run()) for worker in workers]
    try:
        async with asyncio.timeout(20):
            for worker in workers:
                await worker.ready.wait()
        yield
    finally:
        for worker in workers:
            worker.stop()
        async with asyncio.timeout(30):
            await asyncio.gather(*tasks)


async def rescue(database: Database) -> int:
    """Free the lanes of dead workers; returns how many."""
    freed, _ = await lanes.tend(database)
    return freed


async def settled(parts: Lab) -> bool:
    """Whether no lane of the workers has anything left to do."""
    busy = "select count(*) from lane where state in ('ready', 'running') and pool in ('work', 'route')"
    return not await parts.count(busy)


async def turns(parts: Lab) -> list[tuple[str, int, str, str | None]]:
    """(lane, seq, outcome, error class) of every turn, as they ended."""
    rows = await parts.database.rows(
        "select lane_name(lane) as lane, seq, outcome, error_class from attempt order by finished_at, seq, epoch"
    )
    return [(r["lane"], r["seq"], r["outcome"], r["error_class"]) for r in rows]


async def all_dead_letters(parts: Lab) -> list[dict[str, Any]]:
    """Every dead letter, oldest first."""
    return [dict(r) for r in await parts.database.rows("select * from dead_letter order by dead_letter_id")]


async def assert_balanced(parts: Lab) -> None:
    """The books balance and nothing contradicts itself."""
    books = await audit_books(parts.database)
    assert books.balanced, books
    assert books.problems == ()


async def pass_through(parts: Lab, hand: Hand, first: int, messages: int) -> None:
    """Accept so many messages, each of a conversation of its own, twice; then claim, journal and settle their turns."""
    given = [submission(sender=f"s{first + n}", channel="api") for n in range(messages)]
    assert not any(isinstance(one, BaseException) for one in await parts.accept.accept_all(given))
    again = await parts.accept.accept_all(given)
    assert all(isinstance(one, Acceptance) and one.duplicate for one in again)
    items = await hand.claim(messages, messages, messages, messages)
    works = await lanes.load_work(parts.database, items)
    assert len(works) == messages
    steps = [
        StepWrite(item, work.request_id, Step("x", "done", "idempotent", new_uuid7(), 1))
        for item, work in zip(items, works, strict=True)
    ]
    assert all(await write_steps(parts.database, hand.worker, steps))
    ends = [
        Settlement(
            item, "answered", None, None, outbox_id=new_uuid7(), text="x", pool=("pull:telegram:bot", None)[n % 2]
        )
        for n, item in enumerate(items)
    ]
    dead_letter = NewDeadLetter(new_uuid7(), "poison", "x", None)
    ends[-1:] = [Settlement(items[-1], "failed", None, None, dead_letter=dead_letter)]
    assert all(end.ok for end in await lanes.settle(parts.database, hand.worker, ends))
