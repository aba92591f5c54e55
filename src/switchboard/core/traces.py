"""The trace of a message: spans made of what is on record about it, with ids that are the same whenever they are made.

`app/ops/traces.py` gives the records of `store/traces.py`; the spans go to `transport/otlp.py`. The trace id is the
request_id, so the two can be found by each other. Nothing that was written or said is in a record, and so in no span:
ids, kinds, counts and times. The path of a step may name what a model has chosen; only its kind is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from types import MappingProxyType
from typing import Final
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from switchboard.domain.ledger import StepOnRecord
from switchboard.domain.llm import TokensSpent
from switchboard.ports.traces import SpanValue, TraceSpan

Said = Mapping[str, SpanValue | None]
"""Attributes without their prefix; None: there is nothing to say."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ID_BITS: Final = (1 << 63) - 1
"""Ids of spans are kept as bigint, whose sign is not used."""
_STEP_KINDS: Final = frozenset({
    "approval", "ask", "classify", "file", "made", "outage", "plan", "request", "run", "start", "stopped", "tool",
})  # fmt: skip
_OF_RUN: Final = ("system_id", "outcome", "error_class", "engine", "worker", "stop_reason", "seq", "epoch")
_OF_REPLY: Final = ("system_id", "channel", "state", "attempts", "parts")
_COUNTED: Final = ("decisions", "attempts", "steps", "replies", "dead_letters")
_WORD: Final = re.compile(r"[a-z]*")


class TracedMessage(Struct, frozen=True):
    """A message. `working`: something of it has not ended; `later`: more may come when somebody decides so."""

    request_id: UUID
    channel: str
    endpoint: str
    received_at: datetime
    working: bool
    later: bool


class TracedDecision(Struct, frozen=True):
    """A decision. `waited_since`: None if it was made as the message was accepted, or without a model."""

    request_id: UUID
    n: int
    version: int
    branches: int
    decided_at: datetime
    waited_since: datetime | None


class TracedClassification(TokensSpent, frozen=True):
    """An attempt of a model to route, which took `ms` until `at`; cost in micro-dollars."""

    request_id: UUID
    team_id: str
    n: int
    model: str | None
    cost: int | None
    ms: int
    failed: bool
    at: datetime


class TracedAttempt(Struct, frozen=True):
    """A run of a butler or of the router that has ended. `n`: the decision that made its delivery."""

    request_id: UUID
    lane: UUID
    seq: int
    epoch: int
    outcome: str
    error_class: str | None
    engine: str | None
    worker: int | None
    stop_reason: str | None
    started_at: datetime | None
    finished_at: datetime
    kind: str
    system_id: str | None
    n: int | None


class TracedStep(StepOnRecord, frozen=True):
    """A step that has ended; cost in micro-dollars."""

    request_id: UUID
    epoch: int
    effect: str
    tokens_in: int
    tokens_out: int
    cost: int | None
    ended_at: datetime


class TracedReply(Struct, frozen=True):
    """A reply that was sent, or will not be without an operator."""

    request_id: UUID
    outbox_id: UUID
    system_id: str
    channel: str
    state: str
    created_at: datetime
    settled_at: datetime
    attempts: int
    parts: int


class TracedDeadLetter(Struct, frozen=True):
    """A dead letter, and the butler that is told of it."""

    request_id: UUID
    dead_letter_id: UUID
    category: str
    handler: str | None
    created_at: datetime


class MessageRecord(Struct, frozen=True):
    """All that is on record about one message."""

    message: TracedMessage
    decisions: Sequence[TracedDecision] = ()
    classifications: Sequence[TracedClassification] = ()
    attempts: Sequence[TracedAttempt] = ()
    steps: Sequence[TracedStep] = ()
    replies: Sequence[TracedReply] = ()
    dead_letters: Sequence[TracedDeadLetter] = ()


def spans_of(record: MessageRecord) -> list[TraceSpan]:
    """The spans of all that has ended; that of the message itself, which is the root, once nothing of it is at work."""
    trace = _Trace(record)
    spans = [
        *trace.accept_spans(),
        *trace.decide_spans(),
        *trace.turn_spans(),
        *trace.step_spans(),
        *trace.last_spans(),
    ]
    return spans if record.message.working else [*spans, trace.root(spans)]


def span_id(request_id: UUID, *parts: object) -> int:
    """The id of a span: of its message, its kind, and what tells it from others of this kind."""
    named = "\0".join(map(str, parts)).encode()
    return int.from_bytes(blake2b(request_id.bytes + named, digest_size=8).digest(), "big") & _ID_BITS or 1


def step_kind(path: str) -> str:
    """What a step did, if it is one of ours. Of other engines, and of plans whose steps a model has named: `step`."""
    first, _, rest = path.partition("/")
    word = _WORD.match(path if ":" in first or not rest else rest)
    return word[0] if word is not None and word[0] in _STEP_KINDS else "step"


class _Trace:
    """The spans of one message."""

    def __init__(self, record: MessageRecord) -> None:
        self._record = record
        self._id = record.message.request_id
        self._root = span_id(self._id, "message")

    def accept_spans(self) -> Iterator[TraceSpan]:
        """Stored; if it is decided at once, the same transaction has done so, with the same time."""
        received = self._record.message.received_at
        waited = (one.waited_since for one in self._record.decisions if one.waited_since is not None)
        yield self._make_span(("accept",), self._root, (received, min(waited, default=received)))

    def decide_spans(self) -> Iterator[TraceSpan]:
        """Decisions, and what models were asked for them."""
        for one in self._record.decisions:
            said: Said = {"n": one.n, "rules_version": one.version, "branches": one.branches}
            times = (one.waited_since or one.decided_at, one.decided_at)
            yield self._make_span(("decide", one.n), self._root, times, said)
        for asked in self._record.classifications:
            said = {"team_id": asked.team_id, "n": asked.n, "model": asked.model, **_usage_of(asked)}
            times = (asked.at - timedelta(milliseconds=asked.ms), asked.at)
            span = self._make_span(("classify", asked.team_id, asked.n), self._decision_id(1), times, said)
            yield replace(span, kind="client", failed=asked.failed)

    def turn_spans(self) -> Iterator[TraceSpan]:
        """Runs of butlers and of the router. One that goes on with the work of another is linked to it."""
        before: dict[tuple[UUID, int], int] = {}
        for run in sorted(self._record.attempts, key=lambda one: one.epoch):
            said = {name: getattr(run, name) for name in _OF_RUN}
            parent = self._root if run.kind == "notice" else self._decision_id(run.n or 1)
            span = self._make_span(_run_key(run), parent, (self._start_of(run), run.finished_at), said)
            last = before.get((run.lane, run.seq))
            before[(run.lane, run.seq)] = span.span_id
            failed = run.error_class is not None and run.outcome != "declined"
            yield replace(span, name=run.kind, links=() if last is None else (last,), failed=failed)

    def step_spans(self) -> Iterator[TraceSpan]:
        """Steps, each in the run that has ended it, whose own span may come later."""
        for step in self._record.steps:
            said = {"effect": step.effect, "state": step.state, **_usage_of(step)}
            key, parent = ("step", step.lane, step.seq, step.path), span_id(self._id, *_run_key(step))
            span = self._make_span(key, parent, (step.started_at, step.ended_at), said)
            yield replace(span, name=f"step {step_kind(step.path)}", failed=step.state == "failed")

    def last_spans(self) -> Iterator[TraceSpan]:
        """Replies and dead letters."""
        for reply in self._record.replies:
            said = {"outbox_id": str(reply.outbox_id)} | {name: getattr(reply, name) for name in _OF_REPLY}
            times = (reply.created_at, reply.settled_at)
            span = self._make_span(("reply", reply.outbox_id), self._run_answered_by(reply), times, said)
            yield replace(span, kind="producer", failed=reply.state != "sent")
        for dead in self._record.dead_letters:
            key = ("dead letter", dead.dead_letter_id)
            said = {"dead_letter_id": str(dead.dead_letter_id), "category": dead.category, "handler": dead.handler}
            yield replace(self._make_span(key, self._root, (dead.created_at, dead.created_at), said), failed=True)

    def root(self, spans: Sequence[TraceSpan]) -> TraceSpan:
        """The message, from its receipt to the end of all that came of it until now."""
        message, record = self._record.message, self._record
        said: Said = {"request_id": str(self._id), "channel": message.channel, "endpoint": message.endpoint}
        counts: Said = {name: len(getattr(record, name)) for name in _COUNTED}
        span = self._make_span(("message",), None, (message.received_at, message.received_at), {**said, **counts})
        ends = max(one.end_ns for one in spans)
        return replace(span, kind="server", end_ns=ends, failed=bool(record.dead_letters))

    def _start_of(self, run: TracedAttempt) -> datetime:
        """One that was parked or lost has noted no beginning: that of its first step."""
        if run.started_at is not None:
            return run.started_at
        own = (step.started_at for step in self._record.steps if _run_key(step) == _run_key(run))
        return min(own, default=run.finished_at)

    def _run_answered_by(self, reply: TracedReply) -> int:
        """The run of its butler that ended as the reply was made; the message, if there is none."""
        own = [run for run in self._record.attempts if run.kind == "turn" and run.system_id == reply.system_id]
        if not own:
            return self._root
        nearest = min(own, key=lambda run: (abs(run.finished_at - reply.created_at), run.epoch))
        return span_id(self._id, *_run_key(nearest))

    def _decision_id(self, n: int) -> int:
        return span_id(self._id, "decide", n)

    def _make_span(
        self,
        key: tuple[object, ...],
        parent: int | None,
        times: tuple[datetime, datetime],
        said: Said = MappingProxyType({}),
    ) -> TraceSpan:
        """A span whose name is the first of its key. An end before the beginning is that of another clock."""
        start, end = map(_nanoseconds_of, times)
        attributes = {f"switchboard.{name}": value for name, value in said.items() if value is not None}
        name, own = str(key[0]), span_id(self._id, *key)
        return TraceSpan(self._id.int, own, parent, name, "internal", start, max(start, end), attributes)


def _run_key(one: TracedAttempt | TracedStep) -> tuple[str, UUID, int, int]:
    return ("run", one.lane, one.seq, one.epoch)


def _usage_of(one: TracedClassification | TracedStep) -> Said:
    """Of what asked a model; a step that did not has none."""
    used = {"tokens_in": one.tokens_in, "tokens_out": one.tokens_out, "cost_micros": one.cost}
    return used if any(used.values()) else {}


def _nanoseconds_of(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1) * 1000
