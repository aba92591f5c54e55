"""The journal of an item: finished steps never run again, and uncertain ones are never repeated blindly.

The legs of `journey/` open one per attempt; an engine runs each part of its work through `Journal.step`. A step is
known by its path (`request:2`, `tool:2:call_7`, `s3/2`), so steps may run in parallel, and in another order at the next
attempt. Next: `store/work/steps.py`, which stores them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha1
from types import TracebackType
from typing import Any, Literal, Self
from uuid import UUID

from msgspec.structs import replace

from switchboard.core.text.storable import storable_json
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.ledger import Item
from switchboard.domain.message import RequestId
from switchboard.lanes.batch import BatchWriter, WriteGroup
from switchboard.lanes.faults import point
from switchboard.ports.engine import (
    NOT_DONE,
    Act,
    Ask,
    Costed,
    Decided,
    Effect,
    EngineFailure,
    Fenced,
    OnRecord,
    OutcomeUnknown,
    Parked,
    StepFailed,
)
from switchboard.ports.tools import Kept
from switchboard.store.database import Database
from switchboard.store.work import approvals, lanes
from switchboard.store.work import steps as store
from switchboard.store.work.steps import Step, StepWrite

_NAMESPACE = UUID("6f0b2f0a-6a0e-5d3e-9c3b-0f6f0d1c7a11")

_Outcomes = asyncio.Future[Sequence[bool | BaseException]]
_Writes = WriteGroup[StepWrite, bool]


def keys_of(item: Item) -> Callable[[str], UUID]:
    """The idempotency keys of an item's steps, by path: the same in every attempt, for services that accept them.

    Each is the `uuid5` of lane, number and path; their common part is hashed once.
    """
    begun = sha1(_NAMESPACE.bytes + f"{item.lane}\n{item.seq}\n".encode(), usedforsecurity=False)

    def key(path: str) -> UUID:
        one = begun.copy()
        one.update(path.encode())
        return UUID(bytes=one.digest()[:16], version=5)

    return key


class StepLog:
    """Where the journals of one worker write: their steps share commits, in the order of submission.

    `alive`: whether no other worker can have taken over; a suspended process resumes where it was.
    """

    def __init__(self, database: Database, worker: int, alive: Callable[[], bool] = lambda: True) -> None:
        self._database = database
        self._worker = worker
        self.alive = alive
        self._batch: BatchWriter[StepWrite, bool] = BatchWriter(
            lambda batch: store.write_steps(database, worker, batch)
        )

    async def load(self, item: Item, request_id: RequestId) -> dict[str, Step]:
        """The recorded steps of an item, by path."""
        return await store.load_steps(self._database, item, request_id)

    def write(self, write: StepWrite, beside: _Writes | None = None) -> _Writes:
        """Submit a step at once, with the waiting ones; for each, whether it counted (otherwise: fenced), or an error.

        The outcomes are available once it is committed.
        """
        if beside is not None and self._batch.join(beside, write):
            return beside
        return self._batch.hand_in(write)

    async def expect(self, write: StepWrite, within: float | None, ask: Ask | None = None) -> bool:
        """Register the event that the step awaits, for at most `within` seconds; people decide about `ask`.

        False: fenced.
        """
        if ask is None:
            return await store.expect(self._database, self._worker, write, within)
        if within is None:
            raise ValueError(f"step {write.step.path!r} asks people, and they need a time until which they can answer")
        return await approvals.ask(self._database, self._worker, write, within, ask)

    async def keep(self, item: Item, within: float) -> Kept | None:
        """Reserve the next item of this lane for this worker, for this many seconds. None: fenced."""
        return await lanes.keep(self._database, self._worker, item, within)

    async def park(self, item: Item, keys: Sequence[UUID]) -> bool:
        """Park the item until one of these events is decided. False: fenced."""
        return await store.park(self._database, self._worker, item, keys)


class StoredJournal:
    """The steps of one item. Use it as a context manager: on exit, all pending writes are committed.

    That includes the exit of a failed attempt, so that the next one does not repeat finished steps.
    """

    def __init__(self, log: StepLog, item: Item, request_id: RequestId, known: Mapping[str, Step]) -> None:
        self._log = log
        self._item = item
        self._request_id = request_id
        self._key = keys_of(item)
        self._known = dict(known)
        self._records = _Records(self._known)
        self._asked: set[str] = set()
        self._ends: _Writes | None = None
        """The last that were submitted of those for which nothing waits."""
        self._unwritten: set[_Outcomes] = set()
        self._broken: BaseException | None = None
        self.progressed = False
        """Whether a step has ended in this attempt that had not before."""

    @classmethod
    async def open(cls, log: StepLog, item: Item, request_id: RequestId, *, resumed: bool = True) -> Self:
        """Begin or resume. A first attempt may have steps too: one cut short by a stop did not count."""
        known = await log.load(item, request_id) if resumed else {}
        return cls(log, item, request_id, known)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, Parked):
            await self.flush()
        if isinstance(error, Parked):
            error.keys = self._undecided_keys()  # other branches may have continued meanwhile
        elif isinstance(error, Exception) and not isinstance(error, Fenced):
            with contextlib.suppress(Exception):  # the caller needs to know why the attempt failed
                await self.flush()

    async def step(
        self,
        path: str,
        act: Act,
        *,
        effect: Effect = "idempotent",
        ask: Act | None = None,
        reserve: int = 0,
    ) -> Any:
        """Run `act(idempotency_key)` once and return its JSON value; on resume return the recorded value.

        idempotent: repeated with the same key if its end was not recorded, and nothing waits for that. queryable:
        `ask(key)` returns the outcome (`NOT_DONE`: it did not happen, so do it). effectful: raises `OutcomeUnknown`.
        With `reserve`, this many tokens are recorded before it begins, in addition to those of attempts whose end was
        never recorded. Raises `Fenced` if the lane has moved on, `StepFailed` if `act` failed, and `ValueError` for a
        path used before: each iteration of a loop needs its own path.
        """
        known = self._take(path)
        if known is not None and known.effect == "event":
            raise ValueError(f"step {path!r} waits for an event, and cannot act")
        if known is not None and known.state != "started":
            return _replay_step(known)
        lost = 0 if known is None else known.tokens_out
        step = Step(path, "started", effect, self._key(path), tokens_out=lost)
        result = await self._resolve_earlier(known, step, ask)
        if result is NOT_DONE:
            if effect != "idempotent" or reserve:  # otherwise nothing needs to know of it before its end
                await self._record_begin(replace(step, tokens_out=lost + reserve))
            point("before_step", path)
            if effect != "idempotent":
                self.check()
            result = await self._act_once(step, act, reserved=reserve > 0)
            point("before_journal", path)
        done = _end_of_step(step, result)
        await self._record_end(done)
        self.progressed = True
        point("between_steps", path)
        return done.result

    async def end(self, path: str, state: Literal["failed", "skipped", "cancelled"], why: Any = None) -> None:
        """Record that a step is not run, or no longer; replaying it raises `StepFailed`. An existing end is kept."""
        self._raise_broken()
        self._asked.add(path)
        known = self._known.get(path)
        if known is None or known.state == "started":
            key, lost = self._key(path), 0 if known is None else known.tokens_out
            await self._record_end(Step(path, state, "idempotent", key, storable_json(why), tokens_out=lost))

    def key_of(self, path: str) -> UUID:
        """As in the port."""
        return self._key(path)

    def on_record(self) -> Mapping[str, OnRecord]:
        """The steps so far, by path, including those whose record is still being written."""
        return self._records

    async def expect(self, path: str, *, within: float | None = None, ask: Ask | None = None) -> UUID:
        """Register that a step waits for an event, at most `within` seconds; returns the key that decides it.

        The holder of the key may decide from now on (`lanes/waiting.py`), even before `wait` is called. `ask`: the
        question to people; who may decide is up to `app/approvals/service.py`.
        """
        key = self._key(path)
        if path in self._asked or (path in self._known and self._known[path].effect != "event"):
            raise ValueError(f"step {path!r} acts, and cannot wait for an event")
        if path not in self._known:
            await self.flush()
            step = Step(path, "started", "event", key)
            if not await self._log.expect(StepWrite(self._item, self._request_id, step), within, ask):
                raise Fenced
            self._known[path] = step
            point("after_expect")
        return key

    async def wait(self, path: str, *, within: float | None = None) -> Decided:
        """The decision of the event that a step waits for. Raises `Parked` until there is one."""
        await self.expect(path, within=within)
        known = self._known[path]
        if known.state != "started":
            return decided_from_result(known.result)
        raise Parked(self._undecided_keys())

    def check(self) -> None:
        """Raise `Fenced` if another worker may have taken over and found a step begun without a known end."""
        self._raise_broken()
        if not self._log.alive():
            raise Fenced

    async def flush(self) -> None:
        """Wait until every finished step is recorded. Raises `Fenced`, or the errors of the writes."""
        while self._unwritten:
            await asyncio.wait(self._unwritten)
        self._raise_broken()

    def _undecided_keys(self) -> tuple[UUID, ...]:
        return tuple(s.idempotency_key for s in self._known.values() if (s.effect, s.state) == ("event", "started"))

    def _take(self, path: str) -> Step | None:
        """The record of a requested step."""
        self._raise_broken()
        if path in self._asked:
            raise ValueError(f"step {path!r} was asked for twice in one attempt")
        self._asked.add(path)
        return self._known.get(path)

    def _raise_broken(self) -> None:
        if self._broken is not None:
            raise self._broken

    async def _resolve_earlier(self, known: Step | None, step: Step, ask: Act | None) -> Any:
        """Resolve a step that was interrupted in an earlier attempt."""
        if known is None or step.effect == "idempotent":
            return NOT_DONE
        if step.effect == "queryable" and ask is not None:
            return await ask(step.idempotency_key)
        raise OutcomeUnknown(f"{step.path} was begun and interrupted; whether it took effect is not known")

    async def _record_begin(self, step: Step) -> None:
        """Record that a step begins."""
        await self._write(step)
        self._raise_broken()
        self._known[step.path] = step

    async def _act_once(self, step: Step, act: Act, *, reserved: bool) -> Any:
        try:
            return await act(step.idempotency_key)
        except EngineFailure as failure:
            if reserved:  # they used nothing else
                self._known[step.path] = replace(step, tokens_out=step.tokens_out + failure.tokens)
                await self._write(self._known[step.path])
            raise
        except StepFailed as failed:
            ended = replace(_end_of_step(step, failed.result), state="failed")
            await self._record_end(ended)
            raise StepFailed(ended.result) from failed

    async def _record_end(self, step: Step) -> None:
        """Record the end of a step. Nothing waits for a step that may be repeated."""
        self._known[step.path] = step
        if step.effect != "idempotent":
            await self._write(step)
            return
        ends = self._log.write(self._row_of(step), self._ends)
        if ends is not self._ends:
            self._ends = ends
            self._watch_write(ends.outcomes)

    async def _write(self, step: Step) -> None:
        self._ends = None  # steps that end from now on are written after this one
        outcomes = self._log.write(self._row_of(step)).outcomes
        self._watch_write(outcomes)
        _raise_fault(await asyncio.shield(outcomes))  # it is written even if its step is cancelled meanwhile

    def _watch_write(self, outcomes: _Outcomes) -> None:
        """Let `flush` wait for these writes, and report their errors to whatever comes next."""
        self._unwritten.add(outcomes)
        outcomes.add_done_callback(self._note_written)

    def _row_of(self, step: Step) -> StepWrite:
        return StepWrite(self._item, self._request_id, step)

    def _note_written(self, written: _Outcomes) -> None:
        self._unwritten.discard(written)
        try:
            _raise_fault(written.result())
        except BaseException as error:
            self._broken = error


class _Records(Mapping[str, OnRecord]):
    """Steps as others see them, made on demand: a plan asks for its hundreds of steps again and again."""

    def __init__(self, known: Mapping[str, Step]) -> None:
        self._known = known

    def __getitem__(self, path: str) -> OnRecord:
        one = self._known[path]
        return OnRecord(one.state, one.result, one.tokens_out)

    def __contains__(self, path: object) -> bool:
        return path in self._known

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


def _raise_fault(outcomes: Sequence[bool | BaseException]) -> None:
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
        if not outcome:
            raise Fenced


def decided_from_result(result: JsonMapping) -> Decided:
    """The result of a step that waited."""
    return Decided(result.get("value"), "expired" in result)


def _replay_step(known: Step) -> Any:
    if known.state == "done":
        return known.result
    raise StepFailed(known.result)


def _end_of_step(step: Step, given: Any) -> Step:
    """`step.tokens_out` belongs to attempts whose end was never recorded."""
    if not isinstance(given, Costed):
        return replace(step, state="done", result=storable_json(given))
    tokens, result = step.tokens_out + given.tokens_out, storable_json(given.result)
    return replace(step, state="done", result=result, tokens_in=given.tokens_in, tokens_out=tokens, cost=given.cost)
