"""The journal of a turn: what was done is never done again, what may have happened is never repeated blindly.

`journey/turn.py` opens one per attempt; an engine runs each part of its turn through `Journal.step`. On resume a
finished step gives its recorded result. Next: `store/lanes.py`, where the steps are kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, Self
from uuid import UUID, uuid5

from switchboard.domain.ledger import Item
from switchboard.lanes.faults import point
from switchboard.store import lanes as store
from switchboard.store.database import Database, storable_json
from switchboard.store.lanes import Effect, Step

_NAMESPACE = UUID("6f0b2f0a-6a0e-5d3e-9c3b-0f6f0d1c7a11")


NOT_DONE: Final = object()
"""What `ask` answers when the step has had no effect."""


class Fenced(Exception):
    """Somebody else has taken the lane over; whatever this turn still does is void. Stop at once, write nothing."""


class OutcomeUnknown(Exception):
    """A step with an effect was begun and its end was never recorded; only a person or the other side can know."""


def idempotency_key(item: Item, n: int) -> UUID:
    """The same for every attempt of step `n` of this item; hand it to the other side where it takes one."""
    return uuid5(_NAMESPACE, f"{item.lane}\n{item.seq}\n{n}")


class Journal:
    """The steps of one item, in the order in which the engine asks for them."""

    def __init__(self, database: Database, worker: int, item: Item, done: dict[int, Step]) -> None:
        self._database = database
        self._worker = worker
        self._item = item
        self._known = done
        self._n = 0

    @classmethod
    async def open(cls, database: Database, worker: int, item: Item, *, resumed: bool = True) -> Self:
        """Begin or resume. A first attempt may have steps, too: one that was cut short by a stop did not count."""
        known = await store.load_steps(database, item) if resumed else {}
        return cls(database, worker, item, known)

    async def step(
        self,
        name: str,
        act: Callable[[UUID], Awaitable[Any]],
        *,
        effect: Effect = "idempotent",
        ask: Callable[[UUID], Awaitable[Any]] | None = None,
    ) -> Any:
        """Run `act(idempotency_key)` once and return its JSON value; on resume return what it gave then.

        idempotent: repeated with the same key when its end is not on record. queryable: `ask(key)` tells what became
        of it (`NOT_DONE`: nothing, so do it). effectful: raises `OutcomeUnknown`. Raises `Fenced` when the lane has
        moved on.
        """
        n, known = self._place(name)
        key = idempotency_key(self._item, n)
        if known is not None and known.state == "done":
            return known.result
        result = await self._resolve(known, key, effect, ask)
        if result is NOT_DONE:
            if effect != "idempotent":
                await self._write(Step(n, name, "started", key, None), effect)
            result = storable_json(await act(key))
            point("before_journal")
        await self._write(Step(n, name, "done", key, result), effect)
        point("between_steps")
        return result

    def _place(self, name: str) -> tuple[int, Step | None]:
        """The number of the step that comes next, and what is on record of it."""
        self._n += 1
        known = self._known.get(self._n)
        if known is not None and known.name != name:
            raise OutcomeUnknown(f"step {self._n} was {known.name!r} before the interruption and is {name!r} now")
        return self._n, known

    async def _resolve(
        self, known: Step | None, key: UUID, effect: Effect, ask: Callable[[UUID], Awaitable[Any]] | None
    ) -> Any:
        if known is None or effect == "idempotent":
            return NOT_DONE
        if effect == "queryable" and ask is not None:
            return await ask(key)
        raise OutcomeUnknown(f"{known.name} was begun and interrupted; whether it took effect is not known")

    async def _write(self, step: Step, effect: Effect) -> None:
        if not await store.write_step(self._database, self._worker, self._item, step, effect):
            raise Fenced


class NamedJournal(Journal):
    """Steps known by their names, not by their order: for work that may take another course at the next attempt.

    A name that is asked for twice in one attempt is two steps.
    """

    def __init__(self, database: Database, worker: int, item: Item, done: dict[int, Step]) -> None:
        super().__init__(database, worker, item, done)
        self._recorded: dict[str, deque[Step]] = {}
        for n in sorted(done):
            self._recorded.setdefault(done[n].name, deque()).append(done[n])
        self._n = max(done, default=0)

    def _place(self, name: str) -> tuple[int, Step | None]:
        steps = self._recorded.get(name)
        if steps:
            known = steps.popleft()
            return known.n, known
        self._n += 1
        return self._n, None
