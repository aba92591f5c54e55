"""Who is asked: the models in their order, each behind its breaker, its limit and the budget, until one has answered.

`bridge.py` calls `Dispatcher.run` for the pipeline, with a task; a `Report` leaves: the transcript, and every attempt
with its outcome, tokens, cost and time. Next: `core/pipeline/verdict.py`.

Every failure falls over to the next model, and none is asked twice in one run: trying again later is for the caller.
Only whom the question was too long for is asked once more, without its history: others may have filled that. Nobody is
asked after a model whose call our own server has already taken, for it would be taken once more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final, Literal, get_args

from switchboard.agents.sessions.account import DayAccount
from switchboard.agents.sessions.port import (
    EstimatedUsage,
    FailureKind,
    Kind,
    Session,
    SessionFailure,
    SessionTask,
    asked_tokens,
)
from switchboard.agents.sessions.spec import ModelSpec
from switchboard.core.pipeline.tokens import estimate_tokens
from switchboard.core.pipeline.transcript import Transcript, Usage
from switchboard.core.pipeline.verdict import is_ours
from switchboard.core.policy.breaker import DEFAULT, Breaker, BreakerPolicy, Ticket, admit, wait_left
from switchboard.core.policy.breaker import settle as settle_breaker
from switchboard.core.policy.budget import ZERO, Account, Amount, Cap, Refusal, amount, reserve
from switchboard.core.policy.budget import settle as settle_account

Outcome = Literal[
    "answered",
    "unfit",  # answered, but the verdict on it was bad
    FailureKind,
    "open",  # not asked: the breaker is open, or the provider asked for a pause
    "busy",  # not asked: as many sessions as may run were running
    "budget",  # not asked: it could exceed what may be spent
]
_NOT_ASKED: Final = frozenset({"open", "busy", "budget"})
_NO_COST: Final = Account()
_NO_CAP: Final = Cap()
_CLOSED: Final = Breaker()
_KINDS: Final[dict[str, FailureKind]] = {kind: kind for kind in get_args(FailureKind)}
_OVERHEAD: Final[dict[str, int]] = {"claude-code": 2_000, "codex": 14_000, "gemini-cli": 16_000, "opencode": 6_000}
"""Tokens that a command line adds to two requests with its own prompt and tools, as recorded, rounded up."""
_REQUESTS: Final = 2
"""Of a command line for one call: one that makes it, one that sees its result."""
_FAIR: Final = 0.5
"""Who had less than this part of its time is not blamed for a timeout."""
_KILL_S: Final = 8.0
"""What a session may take beyond its deadline to end what it started."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What became of one model. Tokens are `estimated` where nobody told them; `micros` are micro-dollars."""

    name: str
    model: str
    kind: Kind
    outcome: Outcome
    message: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    estimated: bool = False
    micros: int = 0
    ms: int = 0
    retryable: bool = True
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What came of it. `transcript` None: nobody answered. `by` is who did; `account` what the message has cost."""

    transcript: Transcript | None
    attempts: tuple[Attempt, ...]
    by: Session | None = None
    account: Account = _NO_COST

    @property
    def asked(self) -> bool:
        """Whether anybody was asked at all."""
        return any(one.outcome not in _NOT_ASKED for one in self.attempts)

    @property
    def failure(self) -> SessionFailure | None:
        """Why nobody answered, in one failure; retryable if one of the attempts is."""
        if self.transcript is not None:
            return None
        asked = [one for one in self.attempts if one.outcome not in _NOT_ASKED]
        kind = _KINDS.get(asked[-1].outcome, "unavailable") if asked else "unavailable"
        told = "; ".join(f"{one.name}: {one.outcome}: {one.message}" for one in self.attempts) or "there is no model"
        waits = [one.retry_after for one in self.attempts if one.retry_after is not None]
        retryable = any(one.retryable for one in self.attempts)
        return SessionFailure(kind, told[:2000], retryable=retryable, retry_after=min(waits, default=None))


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that a message and a day may cost, and seconds to wait for a busy model while there is another."""

    message: Cap = _NO_CAP
    day: Cap = _NO_CAP
    patience: float = 5.0


@dataclass(frozen=True, slots=True)
class Checks:
    """What the caller knows better.

    `unfit` says what is wrong with an answer (then the next model is asked), or None. `taken` says whether our MCP
    server has taken a call under the task's token: then nobody else is asked, whatever became of the session.
    """

    unfit: Callable[[Transcript], str | None] | None = None
    taken: Callable[[], Awaitable[bool]] | None = None


Rested = Callable[[str, float, str], Awaitable[None]]
"""Is told that a model is left alone from now on: its name, for how many seconds, and why."""

_NO_LIMITS: Final = Limits()
_NO_CHECKS: Final = Checks()


@dataclass(slots=True)
class _Model:
    """One model while we run. `rests` until then (in the clock's seconds) because its provider asked for a pause."""

    spec: ModelSpec
    session: Session
    slots: asyncio.Semaphore
    breaker: Breaker = _CLOSED
    rests: float = 0.0
    probed: asyncio.Event = field(default_factory=asyncio.Event)
    """Not set while a probe is out: whoever has no other model waits for what comes of it."""


@dataclass(slots=True)
class _Run:
    """One run of the dispatcher so far. `last`: after the model that it is at there is no other."""

    task: SessionTask
    checks: Checks
    clock: Callable[[], float]
    ends: float
    account: Account
    attempts: list[Attempt] = field(default_factory=list)
    best: tuple[Session, Transcript] | None = None
    last: bool = False

    def left(self) -> float:
        """Seconds until the deadline."""
        return self.ends - self.clock()

    async def taken(self) -> bool:
        """Whether our MCP server has taken a call of this task."""
        return self.checks.taken is not None and await self.checks.taken()


class Dispatcher:
    """The models of a process. Breakers and limits are of this process, the day's account is where `day` keeps it."""

    def __init__(
        self,
        models: Iterable[tuple[ModelSpec, Session]],
        day: DayAccount,
        limits: Limits = _NO_LIMITS,
        *,
        policy: BreakerPolicy = DEFAULT,
        clock: Callable[[], float] = time.monotonic,
        rested: Rested | None = None,
    ) -> None:
        self._models = [_Model(spec, one, asyncio.Semaphore(spec.concurrency)) for spec, one in models]
        self._day = day
        self._limits = limits
        self._policy = policy
        self._clock = clock
        self._rested = rested

    @property
    def names(self) -> Sequence[str]:
        """Of the models, in the order in which they are asked."""
        return [model.spec.name for model in self._models]

    async def run(self, task: SessionTask, account: Account = _NO_COST, checks: Checks = _NO_CHECKS) -> Report:
        """Ask until one has answered, at most until `task.deadline`. `account`: what the message has cost before.

        Raises only what the day's account and `checks` raise: that nobody answered is an outcome. Where all answers
        were unfit, the last of them is given.
        """
        run = _Run(task, checks, self._clock, self._clock() + task.deadline, account)
        for number, model in enumerate(self._models):
            run.last = number == len(self._models) - 1
            if run.left() <= 0 or await self._done(run, model):
                break
        by, transcript = run.best or (None, None)
        return Report(transcript, tuple(run.attempts), by, run.account)

    async def _done(self, run: _Run, model: _Model) -> bool:
        """Whether nobody else has to be asked after this model."""
        before = len(run.attempts)
        patience = run.left() if run.last else min(run.left(), self._limits.patience)
        if self._resting(run, model):
            return False
        async with _slot(model, patience) as free:
            if not free or run.left() <= 0:
                self._not_asked(run, model, "busy", f"{model.spec.concurrency} sessions are running")
                return False
            if not self._resting(run, model):
                await self._asked_within(run, model)
        asked = any(one.outcome not in _NOT_ASKED for one in run.attempts[before:])
        if asked and run.attempts[-1].outcome == "answered":
            return True
        return asked and await run.taken()

    async def _asked_within(self, run: _Run, model: _Model) -> None:
        """Ask with as much of the history as the model reads; with none of it where that was still too much."""
        before, task = len(run.attempts), _fitting(run.task, model)
        await self._asked(run, model, task)
        too_long = any(one.outcome == "context_too_long" for one in run.attempts[before:])
        if too_long and task.prompt.history and run.left() > 0 and not await run.taken():
            await self._asked(run, model, replace(task, prompt=task.prompt.within(0)))

    def _resting(self, run: _Run, model: _Model) -> bool:
        wait = model.rests - self._clock() if _awaits_probe(run, model) else self._wait(model)
        if wait > 0:
            self._not_asked(run, model, "open", f"left alone for {wait:.0f} s more", wait)
        return wait > 0

    def _wait(self, model: _Model) -> float:
        """Seconds for which a model is left alone."""
        now = self._clock()
        return max(wait_left(model.breaker, now), model.rests - now)

    def _not_asked(
        self, run: _Run, model: _Model, outcome: Outcome, message: str, retry_after: float | None = None
    ) -> None:
        one = model.session
        attempt = Attempt(one.name, one.model, one.kind, outcome, message, retry_after=retry_after)
        run.attempts.append(attempt)

    async def _asked(self, run: _Run, model: _Model, task: SessionTask) -> None:
        wanted = _estimate(task, model)
        account = reserve(run.account, wanted, self._limits.message)
        hold = account if isinstance(account, Refusal) else await self._day.reserve(wanted, self._limits.day)
        if isinstance(account, Refusal) or isinstance(hold, Refusal):
            # Tomorrow there is money again, but this message has had its share.
            self._not_asked(run, model, "budget", str(hold))
            run.attempts[-1] = replace(run.attempts[-1], retryable=account is not hold)
            return
        run.account, spent = account, ZERO
        try:
            spent = await self._admitted(run, model, task)
        except asyncio.CancelledError:
            # Nobody will tell what it has cost; it has surely been sent.
            spent = amount(asked_tokens(task), 0, model.spec.price)
            raise
        finally:
            run.account = settle_account(run.account, wanted, spent)
            await asyncio.shield(self._day.settle(hold, spent))
        await self._tell(run, model)

    async def _tell(self, run: _Run, model: _Model) -> None:
        """Say that a model is left alone from now on, where its last attempt was what did it."""
        wait = self._wait(model)
        if wait > 0 and self._rested is not None and run.attempts[-1].outcome not in _NOT_ASKED:
            await self._rested(model.spec.name, wait, f"{run.attempts[-1].outcome}: {run.attempts[-1].message}")

    async def _admitted(self, run: _Run, model: _Model, task: SessionTask) -> Amount:
        """Ask, if the breaker still lets us; what it has cost."""
        ticket = await self._ticket(run, model)
        if ticket is None:
            self._resting(run, model)
            return ZERO
        probing = model.breaker.state == "half_open"
        if probing:
            model.probed.clear()
        began = self._clock()
        try:
            attempt = await self._attempt(run, model, task, ticket)
        except asyncio.CancelledError:
            model.breaker = _withdrawn(model.breaker, ticket, self._clock())
            raise
        finally:
            if probing:
                model.probed.set()
        took = round((self._clock() - began) * 1000)
        run.attempts.append(replace(attempt, ms=took))
        return Amount(attempt.input_tokens + attempt.output_tokens, attempt.micros)

    async def _ticket(self, run: _Run, model: _Model) -> Ticket | None:
        """The breaker's pass; None if it gives none, also not after the probe that this run has waited for."""
        model.breaker, ticket = admit(model.breaker, self._clock(), self._policy)
        while ticket is None and _awaits_probe(run, model):
            try:
                async with asyncio.timeout(max(0.0, run.left())):
                    await model.probed.wait()
            except TimeoutError:
                return None
            model.breaker, ticket = admit(model.breaker, self._clock(), self._policy)
        return ticket

    async def _attempt(self, run: _Run, model: _Model, task: SessionTask, ticket: Ticket) -> Attempt:
        limit = min(model.spec.timeout, run.left())
        task = replace(task, deadline=limit, max_tokens=min(task.max_tokens, model.spec.max_tokens))
        try:
            transcript = await _within(model.session, task)
        except SessionFailure as failure:
            if failure.kind == "timeout" and limit < _FAIR * min(model.spec.timeout, run.task.deadline):
                model.breaker = _withdrawn(model.breaker, ticket, self._clock())  # those before it took its time
            else:
                self._settled(model, ticket, ok=failure.alive)
            if failure.retry_after is not None:
                model.rests = max(model.rests, self._clock() + failure.retry_after)
            return _failed(model, failure)
        self._settled(model, ticket, ok=True)
        run.best = (model.session, _with_cost(model, transcript))
        wrong = await _wrong(run.checks, transcript)
        outcome: Outcome = "answered" if wrong is None else "unfit"
        return _priced(model, transcript.usage, outcome, wrong or "")

    def _settled(self, model: _Model, ticket: Ticket, *, ok: bool) -> None:
        model.breaker = settle_breaker(model.breaker, ticket, ok=ok, now=self._clock(), policy=self._policy)


async def _within(session: Session, task: SessionTask) -> Transcript:
    """A session that does not keep to its deadline, or fails in a way of its own, has failed like any other."""
    try:
        async with asyncio.timeout(task.deadline + _KILL_S):
            return await session.run(task)
    except TimeoutError as error:
        raise SessionFailure("timeout", "the session did not end") from error
    except SessionFailure:
        raise
    except Exception as error:
        raise SessionFailure("defect", f"{type(error).__name__} in the session") from error


async def _wrong(checks: Checks, transcript: Transcript) -> str | None:
    """What is wrong with an answer. A program that tells of its calls may be lying; our own server knows."""
    wrong = checks.unfit(transcript) if checks.unfit is not None else None
    if wrong is not None or checks.taken is None or not any(is_ours(call) and call.ok for call in transcript.calls):
        return wrong
    return None if await checks.taken() else "it tells of a call that our server has no record of"


@asynccontextmanager
async def _slot(model: _Model, patience: float) -> AsyncIterator[bool]:
    """Whether a session may begin now, waiting for `patience` seconds."""
    try:
        async with asyncio.timeout(max(0.0, patience)):
            await model.slots.acquire()
    except TimeoutError:
        yield False
        return
    try:
        yield True
    finally:
        model.slots.release()


def _awaits_probe(run: _Run, model: _Model) -> bool:
    """Whether this run has nobody to ask but a model that another is trying again at this moment."""
    return run.last and model.breaker.state == "half_open" and not model.probed.is_set()


def _withdrawn(breaker: Breaker, ticket: Ticket, now: float) -> Breaker:
    """The breaker after a call that says nothing of the model; if it was the probe, another may be sent."""
    if breaker.state == "half_open" and breaker.generation == ticket:
        return replace(breaker, until=now)
    return breaker


def _fitting(task: SessionTask, model: _Model) -> SessionTask:
    """The task with as much of its history as this model reads besides everything else."""
    context = model.spec.context
    if context is None or not task.prompt.history:
        return task
    around = asked_tokens(task) - estimate_tokens(task.prompt.text) + _OVERHEAD.get(model.session.kind, 0)
    answer = min(task.max_tokens, model.spec.max_tokens)
    return replace(task, prompt=task.prompt.within(context - around - answer))


def _estimate(task: SessionTask, model: _Model) -> Amount:
    """The most that a session should cost."""
    output = min(task.max_tokens, model.spec.max_tokens)
    if model.session.kind not in _OVERHEAD:
        return amount(asked_tokens(task), output, model.spec.price)
    asked = _REQUESTS * asked_tokens(task) + _OVERHEAD[model.session.kind]
    return amount(asked, _REQUESTS * output, model.spec.price)


def _priced(model: _Model, usage: Usage, outcome: Outcome, message: str) -> Attempt:
    """With the price of the settings; without one, what the program says that it cost."""
    cost = amount(usage.input_tokens, usage.output_tokens, model.spec.price)
    told = round((usage.cost_usd or 0.0) * 1e6)
    one = model.session
    return Attempt(
        one.name,
        one.model,
        one.kind,
        outcome,
        message,
        usage.input_tokens,
        usage.output_tokens,
        isinstance(usage, EstimatedUsage),
        told if model.spec.price is None else cost.micros,
    )


def _with_cost(model: _Model, transcript: Transcript) -> Transcript:
    """With what it cost by the prices of the settings, where there are any."""
    if model.spec.price is None:
        return transcript
    used = transcript.usage
    cost = amount(used.input_tokens, used.output_tokens, model.spec.price).micros / 1e6
    return replace(transcript, usage=replace(used, cost_usd=cost))


def _failed(model: _Model, failure: SessionFailure) -> Attempt:
    attempt = _priced(model, failure.transcript.usage, failure.kind, failure.message)
    return replace(attempt, retryable=failure.retryable, retry_after=failure.retry_after)
