"""Conformance of engines: what every engine must do, as checks that a test of an engine runs.

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    async def test_my_engine(check: EngineCheck) -> None:
        await check(Subject(MyEngine()))

A check raises `AssertionError` that says what went wrong, and `unittest.SkipTest` if the subject lacks what the check
needs. Neither a database nor a network is used. Next: `ports/engine.py`, the contract that is checked here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, get_args
from unittest import SkipTest
from uuid import UUID, uuid4, uuid5

import msgspec
from msgspec import Struct

from switchboard.core.text.storable import storable_json, storable_text
from switchboard.domain.envelope import MAX_TEXT, Envelope, Event, Payload, Sender, Source
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.domain.message import Conversation, RequestId
from switchboard.domain.routing import Member, SystemId, TeamId
from switchboard.ports.engine import (
    NOT_DONE,
    Act,
    Answer,
    Ask,
    ChecksOptions,
    Costed,
    Decided,
    Delta,
    Effect,
    Engine,
    EngineFailure,
    Fenced,
    OnRecord,
    OutcomeUnknown,
    Parked,
    Refusal,
    StepFailed,
    StepState,
    StopReason,
    Turn,
    TurnResult,
)
from switchboard.tasks import cancel_tasks

Options = JsonMapping
_Failure = TypeVar("_Failure", bound=Exception)

_PATIENCE_S: Final = 60.0
_GRACE_S: Final = 5.0
_AT_ONCE: Final = 20
_ODD_TEXTS: Final[Mapping[str, str]] = {
    "nothing": "",
    "blank": " \t\r\n",
    "control characters": "a\x01\x07\x1b[31mb\x7f",
    "right to left": "\u202e\u05e9\u05dc\u05d5\u05dd\u202c \u0639\u0627\u0644\u0645",
    "an emoji of several code points": "👩\u200d👩\u200d👧\u200d👦 🏳\ufe0f\u200d🌈",
    "no character": "\ufffe\uffff\U0010ffff",
    "combining marks": "z" + "\u0335" * 500,
    "JSON and shell": '"}\\u0000$(id)`id`\n--help',
    "1 MB": "🦜" * MAX_TEXT,
}


# Turns and journals ---------------------------------------------------------------------------------------------------


def a_turn(options: Options | None = None, text: str = "hello", *, attempt: int = 1, notice: bool = False) -> Turn:
    """A delivery to `System1/tool`, or a notice of a dead letter; use `dataclasses.replace` for anything else."""
    envelope = Envelope(
        schema_version="ingest.v1",
        source=Source(channel="api", provider="http", endpoint_identity="bot:house"),
        event=Event(external_event_id=str(uuid4()), observed_at=datetime.now(UTC)),
        sender=Sender(identity="alice"),
        payload=Payload(normalized_text=text),
    )
    member = Member(SystemId("System1/tool"), TeamId("root"), 1, "tool", dict(options or {}))
    return Turn(
        member,
        member.team_id,
        RequestId(uuid4()),
        Conversation("api/bot%3Ahouse/alice"),
        envelope,
        datetime.now(UTC),
        attempt,
        dead_letter={"category": "no_route", "reason": "nobody", "dead_letter_id": str(uuid4())} if notice else None,
    )


@dataclass(slots=True)
class Record:
    """The recorded steps of a turn, by path; pass it to the journal of the next attempt."""

    seed: UUID = field(default_factory=uuid4)
    ended: JsonObject = field(default_factory=dict)
    started: set[str] = field(default_factory=set)
    asks: dict[str, Ask] = field(default_factory=dict)
    """Requests to people, by path."""
    tokens: dict[str, int] = field(default_factory=dict)
    """The tokens that the models of a step have generated, or may have."""
    states: dict[str, StepState] = field(default_factory=dict)
    """The states of steps that were not run."""

    def key(self, path: str) -> UUID:
        """The idempotency key of a step, the same at every attempt."""
        return uuid5(self.seed, path)


class MemoryJournal:
    """A journal without a database. `stop_at`: the step, from 1, that raises `stop` when done, before it is recorded.

    `acted`: the paths of the steps that were run in this attempt.
    """

    def __init__(
        self,
        record: Record | None = None,
        *,
        stop_at: int | None = None,
        stop: type[Fenced | OutcomeUnknown] = Fenced,
    ) -> None:
        self.record = record or Record()
        self._stop_at = stop_at
        self._stop = stop
        self.acted: list[str] = []
        self.acting = asyncio.Event()
        self._asked: set[str] = set()

    async def step(
        self, path: str, act: Act, *, effect: Effect = "idempotent", ask: Act | None = None, reserve: int = 0
    ) -> Any:
        """As `Journal.step` in `switchboard.ports.engine`."""
        if path in self._asked:
            raise ValueError(f"the step {path!r} was asked for before")
        self._asked.add(path)
        if path not in self.record.ended:
            lost = self.record.tokens.get(path, 0)
            self.record.tokens[path] = lost + reserve
            try:
                result, tokens = await self._run(path, act, effect, ask)
            except EngineFailure as failure:
                self.record.tokens[path] = lost + failure.tokens
                raise
            if self._stop_at is not None and len(self.acted) >= self._stop_at:
                raise self._stop
            self.record.ended[path], self.record.tokens[path] = result, lost + tokens
        ended = self.record.ended[path]
        if isinstance(ended, StepFailed):
            raise ended
        return ended

    async def end(self, path: str, state: Literal["failed", "skipped", "cancelled"], why: Any = None) -> None:
        """As `Journal.end`."""
        self._asked.add(path)
        if path not in self.record.ended:
            self.record.ended[path] = StepFailed(storable_json(why))
            self.record.states[path] = state

    def key_of(self, path: str) -> UUID:
        """As `Journal.key_of`."""
        return self.record.key(path)

    def on_record(self) -> Mapping[str, OnRecord]:
        """As `Journal.on_record`."""
        return _Records(self.record)

    def check(self) -> None:
        """As `Journal.check`; nobody ever takes over."""

    async def flush(self) -> None:
        """As `Journal.flush`; everything is on record at once."""

    async def expect(self, path: str, *, within: float | None = None, ask: Ask | None = None) -> UUID:  # noqa: ARG002
        """As `Journal.expect`; a test decides by putting a `Decided` into the record."""
        if ask is not None:
            self.record.asks[path] = ask
        return self.record.key(path)

    async def wait(self, path: str, *, within: float | None = None) -> Decided:
        """As `Journal.wait`."""
        decided = self.record.ended.get(path)
        if not isinstance(decided, Decided):
            raise Parked([await self.expect(path, within=within)])
        return decided

    async def _run(self, path: str, act: Act, effect: Effect, ask: Act | None) -> tuple[Any, int]:
        """Run a step: its result as JSON, or its failure; and the tokens generated by its models."""
        key = self.record.key(path)
        result = await self._find_step(path, key, effect, ask)
        if result is NOT_DONE:
            self.record.started.add(path)
            self.acted.append(path)
            self.acting.set()
            try:
                result = await act(key)
            except StepFailed as failed:
                why = failed.result if isinstance(failed.result, Costed) else Costed(failed.result)
                return StepFailed(storable_json(why.result)), why.tokens_out
        costed = result if isinstance(result, Costed) else Costed(result)
        return storable_json(costed.result), costed.tokens_out

    async def _find_step(self, path: str, key: UUID, effect: Effect, ask: Act | None) -> Any:
        if path not in self.record.started or effect == "idempotent":
            return NOT_DONE
        if effect == "queryable" and ask is not None:
            return await ask(key)
        raise OutcomeUnknown(f"{path} was begun and interrupted; whether it took effect is not known")


class _Records(Mapping[str, OnRecord]):
    """The record by path, in the form of the port."""

    def __init__(self, record: Record) -> None:
        self._record = record

    def __getitem__(self, path: str) -> OnRecord:
        record = self._record
        tokens = record.tokens.get(path, 0)
        if path not in record.ended:
            if path not in record.started and path not in record.asks:
                raise KeyError(path)
            return OnRecord("started", None, tokens)
        ended = record.ended[path]
        if isinstance(ended, Decided):
            return OnRecord("done", {"expired": True} if ended.expired else {"value": ended.value})
        if isinstance(ended, StepFailed):
            return OnRecord(record.states.get(path, "failed"), ended.result, tokens)
        return OnRecord("done", ended, tokens)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._record.started, *self._record.asks, *self._record.ended)))

    def __len__(self) -> int:
        return len(dict.fromkeys(self))


def _always(_: str, __: TurnResult) -> bool:
    return True


class Subject(Struct, frozen=True):
    """An engine, and what the checks must know about it. Options are those of the team file.

    `slow`, `failing`, `declining`: options with which a turn takes seconds, raises `EngineFailure`, returns `Refusal`;
    `wrong`: options that `check` refuses. `keys`: the idempotency keys that the other side, if there is one, has seen
    so far. `fits`: whether a result can belong to this text.
    """

    engine: Engine
    options: Options = msgspec.field(default_factory=dict)
    slow: Options | None = None
    failing: Options | None = None
    declining: Options | None = None
    wrong: Options | None = None
    keys: Callable[[], Sequence[UUID]] = tuple
    fits: Callable[[str, TurnResult], bool] = _always


EngineCheck = Callable[[Subject], Awaitable[None]]


# The checks -----------------------------------------------------------------------------------------------------------


async def gives_a_result(subject: Subject) -> None:
    """A message gets a result that can be stored and belongs to this message."""
    turn = a_turn(subject.options)
    result = await _run(subject, turn)
    assert subject.fits(turn.text, result), f"{result} is no answer to {turn.text!r}"


async def takes_notices(subject: Subject) -> None:
    """A notice of a dead letter is not a message: it needs no reply, and must not fail."""
    await _run(subject, a_turn(subject.options, notice=True))


async def takes_any_text(subject: Subject) -> None:
    """Empty, odd and very long texts get a result, or a failure that says why."""
    for name, text in _ODD_TEXTS.items():
        with contextlib.suppress(EngineFailure), _noting_errors(f"the text was: {name}"):
            await _run(subject, a_turn(subject.options, text))


async def runs_many_turns_at_once(subject: Subject) -> None:
    """Turns that run at the same time do not affect each other."""
    turns = [a_turn(subject.options, f"message {n}") for n in range(_AT_ONCE)]
    results = await asyncio.gather(*(_run(subject, turn) for turn in turns))
    for turn, result in zip(turns, results, strict=True):
        assert subject.fits(turn.text, result), f"{result} is no answer to {turn.text!r}"


async def replays_what_is_done(subject: Subject) -> None:
    """A turn that is run again after its end does nothing, and has the same result."""
    turn = a_turn(subject.options)
    first = MemoryJournal()
    result, seen = await _run(subject, turn, first), list(subject.keys())
    again = MemoryJournal(first.record)
    assert await _run(subject, replace(turn, attempt=2), again) == result, "the result of a replayed turn is another"
    assert not again.acted, f"steps that were done were run again: {again.acted}"
    assert list(subject.keys()) == seen, "the other side was called again"


async def continues_after_an_interruption(subject: Subject) -> None:
    """A turn interrupted at any step ends with `Fenced`; the next attempt takes the same steps, with the same keys."""
    turn = a_turn(subject.options)
    whole = MemoryJournal(Record(turn.request_id))
    before = len(subject.keys())
    await _run(subject, turn, whole)
    expected = set(subject.keys()[before:])
    for n in range(1, len(whole.acted) + 1):
        cut = MemoryJournal(Record(turn.request_id), stop_at=n)
        await _must_raise(Fenced, subject.engine.run(turn, cut))
        resumed = MemoryJournal(cut.record)
        await _run(subject, replace(turn, attempt=2), resumed)
        assert set(resumed.record.ended) == set(whole.record.ended), "another course was taken after the interruption"
    assert set(subject.keys()[before:]) == expected, "the idempotency keys of two attempts differ"


async def passes_on_unknown_outcomes(subject: Subject) -> None:
    """An unknown outcome of a step is not a failure of the engine, so the engine lets it pass through."""
    turn = a_turn(subject.options)
    whole = MemoryJournal()
    await _run(subject, turn, whole)
    if whole.acted:
        await _must_raise(OutcomeUnknown, subject.engine.run(turn, MemoryJournal(stop_at=1, stop=OutcomeUnknown)))


async def ends_when_cancelled(subject: Subject) -> None:
    """A turn cancelled at any moment ends soon, and leaves neither tasks nor child processes; the next turn works."""
    for ticks in (0, 1, 5, 50):
        turn = a_turn(subject.options if subject.slow is None else subject.slow)
        journal = MemoryJournal()
        before, children = asyncio.all_tasks(), _child_processes()
        run = asyncio.create_task(subject.engine.run(turn, journal))
        await _until_acting(run, journal, ticks)
        run.cancel()
        ended, _ = await asyncio.wait([run], timeout=_PATIENCE_S)
        assert ended, f"cancelled, it still ran after {_PATIENCE_S:g} s"
        if not run.cancelled():
            run.result()  # it ended before the cancellation
        left = await _tasks_left(asyncio.all_tasks() - before - {run})
        assert not left, f"cancelled, it left tasks: {left}"
        assert _child_processes() <= children, "cancelled, it left child processes"
    await _run(subject, a_turn(subject.options))


async def fails_with_an_engine_failure(subject: Subject) -> None:
    """A failure is an `EngineFailure` that says what went wrong, at every attempt."""
    turn = a_turn(_given_options("failing", subject.failing))
    for attempt in (1, 2):
        run = subject.engine.run(replace(turn, attempt=attempt), MemoryJournal())
        assert str(await _must_raise(EngineFailure, run)), "the failure does not say what went wrong"


async def declines(subject: Subject) -> None:
    """A refusal has a reason."""
    result = await _run(subject, a_turn(_given_options("declining", subject.declining)))
    assert isinstance(result, Refusal), f"{result} is no refusal"
    assert result.reason, "the refusal gives no reason"


async def names_wrong_options(subject: Subject) -> None:
    """`check` and `run` accept the good options and refuse the wrong ones, with a failure that is not retryable."""
    good, wrong = a_turn(subject.options), a_turn(_given_options("wrong", subject.wrong))
    engine: object = subject.engine
    assert isinstance(engine, ChecksOptions), "the engine has no method `check`"
    engine.check(good.member)
    failures = [await _must_raise(EngineFailure, _check_member(engine, wrong.member))]
    failures.append(await _must_raise(EngineFailure, subject.engine.run(wrong, MemoryJournal())))
    for failure in failures:
        assert not failure.retryable, "wrong options do not become right by trying again"
        assert failure.error_class == "validation", f"wrong options are of class validation, not {failure.error_class}"


async def deltas_add_up_to_the_reply(subject: Subject) -> None:
    """If an engine streams, the pieces add up to exactly the reply."""
    pieces: list[Delta] = []
    result = await _run(subject, replace(a_turn(subject.options), on_delta=pieces.append))
    so_far = ""
    for piece in pieces:
        assert 0 <= piece.offset <= len(so_far), f"{piece} leaves a gap after {len(so_far)} characters"
        so_far = so_far[: piece.offset] + piece.text
    if pieces:
        assert isinstance(result, Answer), "what was streamed is no reply after all"
        assert so_far == result.text, "the pieces do not make the reply"


CHECKS: Final[tuple[EngineCheck, ...]] = (
    gives_a_result,
    takes_notices,
    takes_any_text,
    runs_many_turns_at_once,
    replays_what_is_done,
    continues_after_an_interruption,
    passes_on_unknown_outcomes,
    ends_when_cancelled,
    fails_with_an_engine_failure,
    declines,
    names_wrong_options,
    deltas_add_up_to_the_reply,
)


# Support for the checks -----------------------------------------------------------------------------------------------


def _given_options(name: str, options: Options | None) -> Options:
    if options is None:
        raise SkipTest(f"the subject has no options `{name}`")
    return options


async def _run(subject: Subject, turn: Turn, journal: MemoryJournal | None = None) -> TurnResult:
    """The result of a turn, which must be storable. Raises the engine's errors."""
    async with asyncio.timeout(_PATIENCE_S):
        result = await subject.engine.run(turn, journal or MemoryJournal())
    assert isinstance(result, TurnResult), f"{result!r} is no result of a turn"
    text = result.text if isinstance(result, Answer) else result.reason
    assert isinstance(text, str), f"{text!r} is no text"
    assert storable_text(text) == text, "the text has NUL or lone surrogates in it, which cannot be stored"
    assert result.stop_reason in get_args(StopReason), f"there is no stop reason {result.stop_reason!r}"
    msgspec.json.encode(result)
    return result


async def _check_member(engine: ChecksOptions, member: Member) -> None:
    engine.check(member)


async def _must_raise(kind: type[_Failure], doing: Awaitable[object]) -> _Failure:
    try:
        async with asyncio.timeout(_PATIENCE_S):
            result = await doing
    except kind as failure:
        return failure
    raise AssertionError(f"it should have raised {kind.__name__}, and returned {result!r}")


@contextlib.contextmanager
def _noting_errors(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(what)
        raise


async def _until_acting(run: asyncio.Task[TurnResult], journal: MemoryJournal, ticks: int) -> None:
    """Wait until a step has begun, or the turn has ended without one; then for `ticks` rounds of the event loop."""
    acting = asyncio.create_task(journal.acting.wait())
    await asyncio.wait([run, acting], timeout=_PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
    await cancel_tasks(acting)
    for _ in range(ticks):
        await asyncio.sleep(0)


async def _tasks_left(tasks: set[asyncio.Task[Any]]) -> set[asyncio.Task[Any]]:
    """The tasks that do not end soon; a test server in the same loop takes time to close a connection."""
    return (await asyncio.wait(tasks, timeout=_GRACE_S))[1] if tasks else tasks


def _child_processes() -> frozenset[str]:
    """The ids of our child processes, if the system reports them, as Linux does."""
    found: set[str] = set()
    for listed in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
            found.update(listed.read_text().split())
    return frozenset(found)
