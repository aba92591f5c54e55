"""Many small writes as one transaction: whatever arrives while a commit is under way goes into the next one.

No timer: waiting for company was measured to be slower at every load. Used by accept, load and settle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from switchboard.domain.errors import SwitchboardError

Ask = TypeVar("Ask")
Answer = TypeVar("Answer")


class Batch(Generic[Ask, Answer]):
    """Collects calls of `put` into calls of `write`, which must give one answer per ask, in order.

    When a batch fails because of what is in it, each member is written alone: a bad row costs nothing else.
    """

    def __init__(
        self, write: Callable[[Sequence[Ask]], Awaitable[Sequence[Answer]]], *, most: int = 500, writers: int = 1
    ) -> None:
        self._write = write
        self._most = most
        self._free_writers = writers
        self._waiting: list[tuple[Ask, asyncio.Future[Answer]]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    async def put(self, ask: Ask) -> Answer:
        """Hand in one; returns after its transaction is committed. Raises what its write raised."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((ask, future))
        self._start_writer()
        return await future

    async def put_all(self, asks: Sequence[Ask]) -> list[Answer | BaseException]:
        """Hand in many at once; per ask its answer or what it raised."""
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[Answer]] = [loop.create_future() for _ in asks]
        self._waiting.extend(zip(asks, futures, strict=True))
        self._start_writer()
        return await asyncio.gather(*futures, return_exceptions=True)

    def _start_writer(self) -> None:
        if self._free_writers:
            self._free_writers -= 1
            task = asyncio.create_task(self._drain())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _drain(self) -> None:
        try:
            while self._waiting:
                taken, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
                await self._write_out(taken)
        finally:
            self._free_writers += 1

    async def _write_out(self, taken: Sequence[tuple[Ask, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await self._write([ask for ask, _ in taken])
            if len(answers) != len(taken):
                # Nobody can say whose answer is missing; alone, everyone gets his own or hears of it.
                raise ValueError(f"{len(taken)} were handed in, {len(answers)} answered")  # noqa: TRY301
        except SwitchboardError as error:
            _fail(taken, error)
        except asyncio.CancelledError as error:
            _fail(taken, error)
            raise
        except Exception as error:  # whatever it is, it goes to those who asked
            if len(taken) == 1:
                _fail(taken, error)
            else:
                for one in taken:
                    await self._write_out([one])
        else:
            for (_, future), answer in zip(taken, answers, strict=True):
                if not future.done():
                    future.set_result(answer)


def _fail(taken: Sequence[tuple[Ask, asyncio.Future[Answer]]], error: BaseException) -> None:
    for _, future in taken:
        if future.done():
            continue
        if isinstance(error, asyncio.CancelledError):
            future.cancel()
        else:
            future.set_exception(error)
