"""Groups many small writes into one transaction: writes that arrive during a commit go into the next one.

No timer: waiting for more writes was measured to be slower at every load. Used by accept, load and settle; accept has
two writers, and keys for asks that must stay in order across them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

from msgspec import Struct

from switchboard.domain.errors import SwitchboardError

AskT = TypeVar("AskT")
AnswerT = TypeVar("AnswerT")


class WriteGroup(Struct, Generic[AskT, AnswerT], frozen=True):
    """Asks submitted together or joined later; once written, the answer or the error of each.

    Those with a lower `number` were submitted earlier.
    """

    number: int
    asks: list[AskT]
    keys: frozenset[Hashable]
    outcomes: asyncio.Future[Sequence[AnswerT | BaseException]]


class BatchWriter(Generic[AskT, AnswerT]):
    """Collects calls of `put` into calls of `write`, which must give one answer per ask, in order.

    If a batch fails because of its contents, each member is written alone: a bad row affects no other.

    With several `writers`, a second one starts only for `least` asks or more; fewer had better wait for others. Asks
    with the same `key` are written in the order of submission, and never concurrently.
    """

    def __init__(
        self,
        write: Callable[[Sequence[AskT]], Awaitable[Sequence[AnswerT]]],
        *,
        most: int = 500,
        least: int = 1,
        writers: int = 1,
        key: Callable[[AskT], Hashable] | None = None,
    ) -> None:
        self._write = write
        self._most = most
        self._least = least
        self._key = key
        self._free_writers = writers
        self._waiting: deque[WriteGroup[AskT, AnswerT]] = deque()
        self._handed_in = self._taken = 0
        """The number of the last group that was submitted, and of the last that does not wait any more."""
        self._size = 0
        self._at_work = 0
        self._busy: set[Hashable] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return self._size

    async def put(self, ask: AskT) -> AnswerT:
        """Submit one ask; returns after its transaction is committed. Raises the errors of its write."""
        [outcome] = await self.put_all([ask])
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    async def put_all(self, asks: Sequence[AskT]) -> Sequence[AnswerT | BaseException]:
        """Submit many at once, sharing commits of up to `most`; returns the answer or the error of each."""
        if 0 < len(asks) <= self._most:
            return await self.hand_in(*asks).outcomes
        parts = [self.hand_in(*asks[at : at + self._most]) for at in range(0, len(asks), self._most)]
        return [outcome for part in parts for outcome in await part.outcomes]

    def hand_in(self, *asks: AskT) -> WriteGroup[AskT, AnswerT]:
        """Submit at most `most` without waiting; later submissions are written later."""
        self._handed_in += 1
        outcomes = asyncio.get_running_loop().create_future()
        group = WriteGroup[AskT, AnswerT](self._handed_in, list(asks), self._keys_of(asks), outcomes)
        self._waiting.append(group)
        self._size += len(asks)
        self._start_writer()
        return group

    def join(self, group: WriteGroup[AskT, AnswerT], ask: AskT) -> bool:
        """Add one ask to a waiting group; False if the group is no longer waiting, is full, or has keys."""
        joins = group.number > self._taken and len(group.asks) < self._most and self._key is None
        if joins:
            group.asks.append(ask)
            self._size += 1
        return joins

    def _keys_of(self, asks: Sequence[AskT]) -> frozenset[Hashable]:
        return frozenset() if self._key is None else frozenset(map(self._key, asks))

    def _start_writer(self) -> None:
        if self._free_writers and self._waiting:
            self._free_writers -= 1
            task = asyncio.create_task(self._drain_waiting())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _drain_waiting(self) -> None:
        try:
            while groups := self._take():
                self._start_writer()
                await self._write_apart(groups)
        finally:
            self._free_writers += 1

    def _take(self) -> list[WriteGroup[AskT, AnswerT]]:
        """The next groups, with at most `most` asks in total; none if they must wait for running ones."""
        if self._at_work and self._size < self._least:
            return []
        taken: list[WriteGroup[AskT, AnswerT]] = []
        size = 0
        while self._waiting and (not taken or size + len(self._waiting[0].asks) <= self._most):
            if not self._busy.isdisjoint(self._waiting[0].keys):
                break
            taken.append(self._waiting.popleft())
            size += len(taken[-1].asks)
            self._taken = taken[-1].number
        self._size -= size
        return taken

    async def _write_apart(self, groups: Sequence[WriteGroup[AskT, AnswerT]]) -> None:
        keys = frozenset[Hashable]().union(*(group.keys for group in groups))
        self._busy |= keys
        self._at_work += 1
        try:
            await self._write_out(groups)
        finally:
            self._at_work -= 1
            self._busy -= keys

    async def _write_out(self, groups: Sequence[WriteGroup[AskT, AnswerT]]) -> None:
        try:
            outcomes = await self._outcomes_of([ask for group in groups for ask in group.asks])
        except asyncio.CancelledError:
            for group in groups:
                group.outcomes.cancel()
            raise
        at = 0
        for group in groups:
            if not group.outcomes.done():
                group.outcomes.set_result(outcomes[at : at + len(group.asks)])
            at += len(group.asks)

    async def _outcomes_of(self, asks: Sequence[AskT]) -> Sequence[AnswerT | BaseException]:
        try:
            answers = await self._write(asks)
        except SwitchboardError as error:
            return [error] * len(asks)
        except Exception as error:  # whatever the error, those who asked get it
            return [error] if len(asks) == 1 else await self._one_by_one(asks)
        if len(answers) == len(asks):
            return answers
        if len(asks) == 1:
            return [ValueError(f"one was handed in, {len(answers)} answered")]
        # It is unknown whose answer is missing; written alone, each ask gets its own answer or error.
        return await self._one_by_one(asks)

    async def _one_by_one(self, asks: Sequence[AskT]) -> list[AnswerT | BaseException]:
        return [outcome for ask in asks for outcome in await self._outcomes_of([ask])]
