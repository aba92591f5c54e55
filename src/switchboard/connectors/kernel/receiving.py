"""From the platform to the switchboard: confirms events and moves the cursor only after the switchboard's answer.

`runner.py` runs a `Receiver` for each session. Events wait in the order of their conversation; one that fails, or whose
files are being fetched (`files.py`), does not hold back other conversations. It goes to quarantine when it is refused,
or has failed for long while others succeed. While the switchboard takes nothing, the platform is not asked for more.
Next: `sending.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Final

import structlog

from switchboard.connectors.kernel.answers import Declined, IntakeAnswer, NotNow, Overtaken, Taken, Unreachable
from switchboard.connectors.kernel.intake import LeftOut, at_home, conversation_of, mark_of, prepare_envelope
from switchboard.connectors.kernel.patience import Patience
from switchboard.connectors.kernel.posted import PostedQueue
from switchboard.connectors.kernel.progress import UnsettledBatches
from switchboard.connectors.kernel.replaying import SessionIntake
from switchboard.connectors.kernel.series import belongs_to, due_after, merge_events
from switchboard.domain.envelope import Envelope
from switchboard.domain.errors import ConfigurationError, SwitchboardError
from switchboard.lanes.faults import point
from switchboard.ports.connector import Batch, Inbound, LateFailure, TakesPosted, Unreadable
from switchboard.tasks import cancel_tasks, first_of, refuse_exit, wait_at_most

log = structlog.get_logger(__name__)

MOST_WAITING: Final = 500
"""Events beyond which the platform is not asked for more."""
_MOST_BYTES: Final = 64 * 1024 * 1024
"""Bytes of waiting events beyond which it is not asked for more either."""
_FAILURES: Final = 10
_FAILING_S: Final = 900.0
_AGAIN_S: Final = 1.0
"""Before a platform is asked again that gives what waits already."""
_PAUSE_S: Final = 0.5


@dataclass(slots=True)
class _Waiting:
    """An event, or several that are one message, to be submitted; `due` is when to try next."""

    events: list[Inbound]
    batches: list[int]
    conversation: str
    first: float
    """When the first event came."""
    due: float
    failures: int = 0
    failing_since: float = 0.0
    envelope: Envelope | None = None
    filing: asyncio.Task[Envelope] | None = None
    """Its files are being fetched."""
    refusal: str = ""
    """Why it goes to quarantine; it is not submitted again."""

    def is_due(self, now: float) -> bool:
        """Whether it is time to try."""
        return self.due <= now and (self.filing is None or self.filing.done())


@dataclass(slots=True)
class _Broken:
    """An event that cannot be parsed, to be quarantined."""

    event: Unreadable
    batch: int


@dataclass(slots=True)
class _Late:
    """A failure to be reported."""

    failure: LateFailure
    batch: int


@dataclass(slots=True)
class Receiver(SessionIntake):
    """Receives for one session until cancelled, or until the session or the lease ends."""

    clock: Callable[[], float]
    _waiting: list[_Waiting] = field(default_factory=list)
    _broken: list[_Broken] = field(default_factory=list)
    _late: list[_Late] = field(default_factory=list)
    _keys: set[str | bytes] = field(default_factory=set)
    _progress: UnsettledBatches = field(default_factory=UnsettledBatches)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _drained: asyncio.Event = field(default_factory=asyncio.Event)
    _patience: Patience = field(init=False)
    accepted_at: float = 0.0
    """When the switchboard last took a message."""

    def __post_init__(self) -> None:
        self._patience = Patience(self.health)

    async def run(self, cursor: str | None) -> None:
        """Run until cancelled. Raises SignInRefused, CursorRefused, Busy, OSError (from the session), Overtaken."""
        try:
            await first_of(refuse_exit(self._submit_for_ever), refuse_exit(self._pull, cursor))
        finally:
            filing = [waiting.filing for waiting in self._waiting if waiting.filing is not None]
            await cancel_tasks(*filing)

    async def _pull(self, cursor: str | None) -> None:
        batches = self._batches(cursor)
        try:
            async for batch in batches:
                self.health.round_trip()
                self._note(batch.trouble)
                point("connector_received")
                is_new = self._take(batch)
                point("connector_queued")
                if not is_new and batch.events:
                    await asyncio.sleep(_AGAIN_S)
                await self._room()
        finally:
            if isinstance(batches, AsyncGenerator):
                await batches.aclose()
        raise OSError("the platform ended the connection")

    def _batches(self, cursor: str | None) -> AsyncIterator[Batch]:
        if isinstance(self.session, TakesPosted):
            return self.session.receive_posted(cursor, PostedQueue(self.api, self.health))
        return self.session.receive(cursor)

    def _note(self, trouble: str | None) -> None:
        if trouble is not None:
            self.health.trouble("platform", trouble)
        else:
            self.health.well("platform")

    async def _room(self) -> None:
        """Wait until the switchboard accepts messages and not too many are waiting."""
        while self._patience.failures or self._is_full():
            self.health.paused = True
            self._drained.clear()
            await self._drained.wait()
        self.health.asking()

    def _is_full(self) -> bool:
        waiting = len(self._waiting)
        return waiting > MOST_WAITING or (
            waiting > 0 and sum(len(event.raw) for some in self._waiting for event in some.events) > _MOST_BYTES
        )

    def _take(self, batch: Batch) -> bool:
        """Queue a batch; returns whether any of it is new."""
        new = [event for event in batch.events if self._is_new(event)]
        number = self._progress.received(len(new) + len(batch.late), batch.cursor)
        self._late += (_Late(failure, number) for failure in batch.late)
        for event in new:
            if isinstance(event, Unreadable):
                self._broken.append(_Broken(event, number))
            else:
                self._queue(self._at_home(event), number)
        self._changed.set()
        return bool(new)

    def _is_new(self, event: Inbound | Unreadable) -> bool:
        """Whether the event is new: platforms may deliver unconfirmed events again."""
        key = mark_of(event)
        if key in self._keys:
            return False
        self._keys.add(key)
        return True

    def _at_home(self, event: Inbound) -> Inbound:
        """The event in its present conversation, queued after the events from before the conversation moved."""
        if event.moved is not None:
            old, new = event.moved
            home = self.moved.get(old, old)
            if home != new:
                self.moved.setdefault(new, home)
        return at_home(event, self.moved)

    def _queue(self, event: Inbound, batch: int) -> None:
        now = self.clock()
        waiting = self._unsent_message(event)
        if waiting is None:
            alone = _Waiting([event], [batch], conversation_of(event.envelope), now, due_after(event, now, now))
            self._waiting.append(alone)
            return
        waiting.events.append(event)
        waiting.batches.append(batch)
        waiting.due = due_after(event, waiting.first, now)

    def _unsent_message(self, event: Inbound) -> _Waiting | None:
        """The message that the event is a part of, if it is not on its way yet."""
        if event.album is None and event.piece is None:
            return None
        conversation = conversation_of(event.envelope)
        for waiting in reversed(self._waiting):
            if waiting.conversation == conversation and belongs_to(waiting.events, event):
                return None if waiting.envelope is not None or waiting.refusal else waiting
        return None

    async def _submit_for_ever(self) -> None:
        while True:
            await self._save()
            due = self._due()
            try:
                if due or self._broken or self._late:
                    await self._settle(due)
                    self._well()
                else:
                    await self._until_something_is_due()
            except Unreachable as error:
                await self._patience.wait(error)

    async def _until_something_is_due(self) -> None:
        now = self.clock()
        soonest = min((waiting.due for waiting in self._waiting if waiting.due > now), default=now + 60)
        self._changed.clear()
        await wait_at_most(max(soonest - now, 0.01), self._changed)

    def _due(self) -> list[_Waiting]:
        """The events to try now: the first of each conversation, since it may fail and must not be overtaken."""
        firsts = {waiting.conversation: waiting for waiting in reversed(self._waiting)}
        now = self.clock()
        return [waiting for waiting in self._waiting if waiting.is_due(now) and firsts[waiting.conversation] is waiting]

    async def _settle(self, due: Sequence[_Waiting]) -> None:
        for broken in list(self._broken):
            await self.api.quarantine(broken.event.event_id, broken.event.reason, broken.event.raw)
            self._broken.remove(broken)
            self._finish_event(broken.event, broken.batch, "quarantined")
        await self._report_late_failures()
        await self._move(due)
        # Meanwhile another event may have joined one of them, and more may follow.
        if ready := [waiting for waiting in due if waiting.is_due(self.clock()) and self._prepare(waiting)]:
            await self._submit(ready)
        for waiting in [waiting for waiting in due if waiting.refusal]:
            await self._to_quarantine(waiting)

    async def _report_late_failures(self) -> None:
        for late in list(self._late):
            try:
                await self.api.report_late_failure(late.failure)
            except (Unreachable, Overtaken, ConfigurationError):
                raise
            except SwitchboardError as error:
                log.warning("a failure cannot be reported", message=late.failure.platform_message_id, why=error.message)
            self._late.remove(late)
            self._progress.settle_event(late.batch)
            self.health.counters["failed_late"] += 1

    async def _move(self, due: Sequence[_Waiting]) -> None:
        for move in [event.moved for waiting in due for event in waiting.events if event.moved]:
            await self.api.move(*move)

    async def _submit(self, ready: Sequence[_Waiting]) -> None:
        verdicts = await self.api.ingest([waiting.envelope for waiting in ready if waiting.envelope is not None])
        point("connector_submitted")
        for waiting, verdict in zip(ready, verdicts, strict=False):
            self._apply_verdict(waiting, verdict)

    def _prepare(self, waiting: _Waiting) -> bool:
        """Whether to submit the event now. Skipped events are settled at once; files are fetched first."""
        if waiting.refusal:
            return False
        if waiting.filing is not None:
            waiting.envelope, waiting.filing = waiting.filing.result(), None
        if waiting.envelope is not None:
            return True
        event = merge_events(waiting.events)
        made = prepare_envelope(event, self.handling, datetime.now(UTC))
        if isinstance(made, LeftOut):
            self._end(waiting, f"left_out_{made.why}")
            return False
        waiting.envelope = made
        if not self.files.has_files(made, event.files):
            return True
        waiting.filing = asyncio.create_task(refuse_exit(self.files.store_files, made, event.files))
        waiting.filing.add_done_callback(lambda _: self._changed.set())
        return False

    def _apply_verdict(self, waiting: _Waiting, verdict: IntakeAnswer) -> None:
        match verdict:
            case Taken(duplicate=True) if len(waiting.events) > 1:
                self._without_first(waiting)
            case Taken(duplicate):
                self.accepted_at = self.clock()
                self._end(waiting, "duplicates" if duplicate else "accepted")
            case Declined("sender_denied" | "held_full" as code):
                # The server counts the messages that it refuses from strangers; they are not failures, and kept
                # nowhere.
                self._end(waiting, code)
            case Declined(code, message):
                waiting.refusal = f"{code}: {message}"
            case NotNow():
                self._later(waiting, verdict)

    def _without_first(self, waiting: _Waiting) -> None:
        """The first event may have been stored on its own before a crash; try the others without it."""
        first, batch = waiting.events.pop(0), waiting.batches.pop(0)
        self._finish_event(first, batch, "duplicates")
        waiting.envelope, waiting.due = None, 0.0

    def _later(self, waiting: _Waiting, verdict: NotNow) -> None:
        now = self.clock()
        waiting.failures += 1
        pause = min(_PAUSE_S * 2 ** min(waiting.failures, 9), 120.0)
        waiting.due = now + (pause if verdict.seconds is None else verdict.seconds)
        if not verdict.counts:
            waiting.failures = 0
        elif waiting.failures == 1:
            waiting.failing_since = now
        elif waiting.failures >= _FAILURES and self._fails_alone(waiting, now):
            waiting.refusal, waiting.due = f"failed {waiting.failures} times: {verdict.reason}", now

    def _fails_alone(self, waiting: _Waiting, now: float) -> bool:
        return now - waiting.failing_since >= _FAILING_S and self.accepted_at > waiting.failing_since

    async def _to_quarantine(self, waiting: _Waiting) -> None:
        for event in waiting.events:
            key = event.envelope.event.external_event_id
            await self.api.quarantine(key, waiting.refusal, event.raw)
            log.warning("event quarantined", event_id=key, reason=waiting.refusal)
        self._end(waiting, "quarantined")

    def _end(self, waiting: _Waiting, count: str) -> None:
        self._waiting.remove(waiting)
        for event, batch in zip(waiting.events, waiting.batches, strict=True):
            self._finish_event(event, batch, count)

    def _finish_event(self, event: Inbound | Unreadable, batch: int, count: str) -> None:
        self.health.counters[count] += 1
        if isinstance(event, Inbound) and event.unknown is not None:
            self.health.counters["unknown_kinds"] += 1
            log.info("an event of a kind that is not read", kind=event.unknown)
        self._progress.settle_event(batch)
        self._keys.discard(mark_of(event))

    async def _save(self) -> None:
        """Save the cursor, then let the platform forget. If saving fails, events are delivered again, as duplicates."""
        cursor = self._progress.advance()
        sent = (event.envelope.event for waiting in self._waiting for event in waiting.events)
        self.health.waiting_since = min((one.sent_at or one.observed_at for one in sent), default=None)
        self._drained.set()
        while cursor is not None:
            point("connector_before_cursor")
            await self._patience.insist(partial(self.api.save_cursor, cursor))
            self._well()
            point("connector_cursor_saved")
            await self.session.confirm(cursor)
            point("connector_confirmed")
            cursor = self._progress.advance()

    def _well(self) -> None:
        self._patience.over()
        self._drained.set()
