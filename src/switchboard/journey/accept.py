"""Accept: what a door hands in is stored once, with its decision, before anyone is told "accepted".

Doors call `AcceptLeg.accept` with validated envelopes. What arrives while a commit is under way shares the next one;
where that is much, it begins beside the first, as long as no conversation is in both. Next: `turn.py`, where a worker
has claimed a delivery, or `classify.py` for what is not decided yet.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

import structlog
from msgspec import Struct

from switchboard.core.channels import check_source
from switchboard.core.identity import conversation, dedupe_key, replied_to
from switchboard.domain.envelope import Envelope
from switchboard.domain.errors import Overloaded, SwitchboardError, TooLarge, Unavailable
from switchboard.domain.message import Conversation, Message, RequestId
from switchboard.domain.routing import Decision, SystemId
from switchboard.lanes.batch import Batch
from switchboard.lanes.bell import WORK, Bell
from switchboard.lanes.faults import point
from switchboard.store import inbox as store
from switchboard.store.database import Database
from switchboard.store.ids import new_uuid7s
from switchboard.store.inbox import Acceptance, Arrival, Prepared, ToClassify

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Submission:
    """A validated envelope with the bytes it came as, which are what `GET …/raw` gives back."""

    envelope: Envelope
    raw: bytes
    media_type: str = "application/json"


class _Ask(Struct, frozen=True):
    """A message on its way into the next commit; `ready` unless it must be seen first who wrote what it `answers`."""

    message: Message
    answers: str | None = None
    ready: Prepared | None = None


@dataclass(frozen=True, slots=True)
class AcceptLimits:
    """How much may wait before new messages are refused, the size of one, and when to come again (s)."""

    backlog: int = 100_000
    message_bytes: int = 1_048_576
    retry_after: float = 5.0


class Decide(Protocol):
    """What the rules in force say of a message and the butler it is pinned to: see `decide.py`."""

    @property
    def queued(self) -> bool: ...

    def __call__(self, envelope: Envelope, pinned: SystemId | None) -> Decision | ToClassify: ...


class AcceptLeg:
    """Takes messages in. `watch_backlog` must run beside it for back-pressure to work."""

    def __init__(
        self,
        database: Database,
        decide: Decide,
        bell: Bell,
        limits: AcceptLimits,
        channels: Mapping[str, frozenset[str]],
    ) -> None:
        self._database = database
        self._decide = decide
        self._bell = bell
        self._limits = limits
        self._channels = channels
        self._backlog = 0
        # Two commits at a time: one runs while the other is flushed, or waits for us to hear of it.
        self._batch: Batch[_Ask, Acceptance] = Batch(self._store, most=100, least=40, writers=2, key=_conversation)

    async def accept(self, submission: Submission) -> Acceptance:
        """Store one message; returns after the commit. Raises InvalidInput, TooLarge, Overloaded, Unavailable."""
        [outcome] = await self.accept_all([submission])
        if isinstance(outcome, Acceptance):
            return outcome
        raise outcome

    async def accept_all(self, submissions: Sequence[Submission]) -> list[Acceptance | SwitchboardError]:
        """Store many; per submission its answer or its error, in order. What is good is kept."""
        point("after_receive")
        now = datetime.now(UTC)
        ids = new_uuid7s(len(submissions))
        asks = [self._ask(one, RequestId(new), now) for one, new in zip(submissions, ids, strict=True)]
        answers = iter(await self._batch.put_all([ask for ask in asks if isinstance(ask, _Ask)]))
        outcomes = [_outcome(next(answers)) if isinstance(ask, _Ask) else ask for ask in asks]
        point("after_commit")
        return outcomes

    def _ask(self, submission: Submission, request_id: RequestId, now: datetime) -> _Ask | SwitchboardError:
        try:
            self._check(submission)
        except SwitchboardError as error:
            return error
        message = Message(
            request_id=request_id,
            conversation=conversation(submission.envelope),
            dedupe_key=dedupe_key(submission.envelope),
            envelope=submission.envelope,
            raw=submission.raw,
            media_type=submission.media_type,
            received_at=now,
        )
        answers = replied_to(submission.envelope)
        return _Ask(message, answers, None if answers else self._ready(message))

    def _ready(self, message: Message) -> Prepared | None:
        """As much as can be done before the commit that is under way has ended."""
        try:
            return store.prepare(self._arrival(message, None))
        except Exception:  # it comes again in `_store`, where it costs nobody else his message
            return None

    def _check(self, submission: Submission) -> None:
        if len(submission.raw) > self._limits.message_bytes:
            raise TooLarge(
                f"the message has {len(submission.raw)} bytes; at most {self._limits.message_bytes} are taken"
            )
        check_source(submission.envelope, self._channels)
        if self._backlog + len(self._batch) >= self._limits.backlog:
            raise Overloaded(
                f"{self._backlog} messages are waiting, the limit is {self._limits.backlog}; nothing was stored",
                retry_after=self._limits.retry_after,
            )

    async def _store(self, asks: Sequence[_Ask]) -> list[Acceptance]:
        authors = await self._authors(asks)
        batch = [ask.ready or self._arrival(ask.message, authors.get(ask.message.request_id)) for ask in asks]
        point("before_commit")
        return await store.accept(self._database, batch, queued=self._decide.queued, wake=self._wake)

    def _wake(self) -> None:
        self._bell.ring(WORK)

    def _arrival(self, message: Message, author: SystemId | None) -> Arrival:
        """A reply goes to the author of what it replies to, unless the connector pins another."""
        named = message.envelope.control.pinned_target
        pinned = author if named is None else SystemId(named)
        return Arrival(message, self._decide(message.envelope, pinned), pinned)

    async def _authors(self, asks: Sequence[_Ask]) -> dict[RequestId, SystemId | None]:
        """Of those messages that reply to something in their conversation: which butler wrote that."""
        answers = [(ask.message, ask.answers) for ask in asks if ask.answers]
        if not answers:
            return {}
        authors = await store.find_authors(self._database, [(m.conversation, answered) for m, answered in answers])
        return {message.request_id: author for (message, _), author in zip(answers, authors, strict=True)}

    async def watch_backlog(self, every: float = 0.5) -> None:
        """Measure the backlog now and then. Runs until cancelled."""
        while True:
            with contextlib.suppress(Unavailable):  # whoever submits now is told so himself
                self._backlog = await store.count_backlog(self._database)
            await asyncio.sleep(every)


def _conversation(ask: _Ask) -> Conversation:
    return ask.message.conversation


def _outcome(answer: Acceptance | BaseException) -> Acceptance | SwitchboardError:
    if isinstance(answer, (Acceptance, SwitchboardError)):
        return answer
    if not isinstance(answer, Exception):
        raise answer
    log.error("message not stored", exc_info=answer)
    return SwitchboardError("this message could not be stored; nothing of it was kept, and the reason is in the log")
