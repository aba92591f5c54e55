"""Which model is asked: those of the settings in order, each subject to its breaker, its limit and the budget.

The caller passes `Dispatcher.run` a `Request` and its `RequestTerms` and gets a `Report`. Next: `port.py`.

After every failure the next model is asked, and none twice in one run: later retries are up to the caller. Only a model
for which the request was too long is asked once more, with the shortest form of the request. No model is asked after
our own server has accepted a call, as the message would be routed twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID

from msgspec import Struct, structs

from switchboard.core.policy.breaker import DEFAULT, Breaker, BreakerPolicy, Ticket, admit, wait_left
from switchboard.core.policy.breaker import settle as settle_breaker
from switchboard.core.policy.budget import ZERO, Amount, BudgetAccount, BudgetRefusal, Cap, Share, amount, reserve
from switchboard.core.policy.budget import settle as settle_account
from switchboard.core.tokens import asked_tokens
from switchboard.domain.llm import (
    NO_USAGE,
    Bill,
    ModelAttempt,
    ModelDelta,
    ModelFailure,
    NotAsked,
    OnDelta,
    Outcome,
    Reply,
    Report,
    Request,
    Usage,
)
from switchboard.llm.port import ModelSession
from switchboard.llm.slots import NoSlot, SlotQueue, Slots, held_slot, rank_of
from switchboard.llm.spec import API_KINDS, ModelSpec
from switchboard.llm.spending import Spending, amount_of

_CLOSED: Final = Breaker()
_NO_CAP: Final = Cap()
_OVERHEAD: Final[dict[str, int]] = {"claude-code": 2_000, "codex": 14_000, "gemini-cli": 16_000, "opencode": 6_000}
"""Tokens that a command line adds to two requests with its own prompt and tools, as recorded, rounded up."""
_REQUESTS: Final = 2
"""Requests of a command line for one call: one that makes it, one that sees its result."""
_FAIR: Final = 0.5
"""A model that had less than this share of its time is not blamed for a timeout."""
_KILL_S: Final = 8.0
"""The time a session may take beyond its deadline to clean up."""


Context = Callable[[ModelSpec], Awaitable[int]]
"""How many tokens a model can read, question and answer together."""


class DispatchLimits(Struct, frozen=True):
    """The maximum cost of a day, and the seconds to wait for a busy model if there is another.

    `sender_tokens`: maximum tokens of turns per day for one sender; 0: no limit.
    """

    day: Cap = _NO_CAP
    patience: float = 5.0
    sender_tokens: int = 0


class RequestTerms(Struct, frozen=True):
    """The conditions of a request, set by the caller.

    `asker` names the purpose in the usage log, `butler` the butler it is for. `models`: the models to ask, in this
    order; None: all. `cap` is the maximum cost of the caller's task, `spent` its cost so far. `unfit` returns what is
    wrong with a reply (then the next model is asked), or None. `taken` returns whether our server has accepted a call
    of this request: then no other model is asked, however the session ended. `shorter` returns the request within a
    number of tokens, or as short as possible. `on_share_of`: the message whose sender's share is charged, None:
    nobody's. `ready` is awaited before a request leaves.
    """

    asker: str = ""
    models: Sequence[str] | None = None
    cap: Cap = _NO_CAP
    spent: Amount = ZERO
    unfit: Callable[[Reply], Awaitable[str | None]] | None = None
    taken: Callable[[], Awaitable[bool]] | None = None
    shorter: Callable[[Request, int], Request] | None = None
    on_share_of: UUID | None = None
    ready: Callable[[], Awaitable[None]] | None = None
    butler: str = ""


_NO_TERMS: Final = RequestTerms()
_NO_LIMITS: Final = DispatchLimits()


@dataclass(slots=True)
class _Model:
    """One model at run time. `pause_ends`: until when its provider asked for a pause, in seconds of the clock."""

    spec: ModelSpec
    session: ModelSession
    line: SlotQueue
    breaker: Breaker = _CLOSED
    pause_ends: float = 0.0
    probed: asyncio.Event = field(default_factory=asyncio.Event)
    """Not set while a probe is running: a run that has no other model waits for its outcome."""


@dataclass(slots=True)
class _Run:
    """The state of one run of the dispatcher. `last`: there is no model after the current one.

    `told`: `on_delta` has received part of a reply.
    """

    request: Request
    terms: RequestTerms
    clock: Callable[[], float]
    ends: float
    account: BudgetAccount
    on_delta: OnDelta | None = None
    told: bool = False
    used: Usage = NO_USAGE
    """What the session that runs has used, as far as it is told."""
    attempts: list[ModelAttempt] = field(default_factory=list)
    best: Reply | None = None
    last: bool = False

    def left(self) -> float:
        """Seconds until the deadline."""
        return self.ends - self.clock()

    async def taken(self) -> bool:
        """Whether our server has accepted a call of this request."""
        return self.terms.taken is not None and await self.terms.taken()

    async def ready(self) -> None:
        """Wait until a request may leave."""
        if self.terms.ready is not None:
            await self.terms.ready()

    def listener(self, model: _Model) -> OnDelta | None:
        """A function that passes the deltas of a session on, with the cost by our prices in the last one."""
        on_delta = self.on_delta
        if on_delta is None:
            return None

        def listen(delta: ModelDelta) -> None:
            self.told = True
            on_delta(delta if delta.end is None else structs.replace(delta, end=_with_cost(model, delta.end)))

        return listen

    def meter(self, used: Usage) -> None:
        """The usage of the running session so far."""
        self.used = used

    def take_back(self) -> None:
        """Report that the deltas so far are void, if there were any."""
        if self.told and self.on_delta is not None:
            self.on_delta(ModelDelta(reset=True))
        self.told = False

    async def wrong(self, reply: Reply) -> str | None:
        """What is wrong with a reply."""
        return None if self.terms.unfit is None else await self.terms.unfit(reply)

    def shorter(self, request: Request, tokens: int) -> Request:
        """The request within this many tokens, as far as the caller can cut it."""
        return request if self.terms.shorter is None else self.terms.shorter(request, tokens)


class Dispatcher:
    """The models of a process. It has its own breakers; `spending` and `slots` are wherever the caller keeps them.

    Without `slots`, a model's limit on sessions applies to this process alone; without `context`, the context in its
    settings applies.
    """

    def __init__(  # noqa: PLR0913 - the surroundings of a dispatcher, all optional but the first two
        self,
        models: Iterable[tuple[ModelSpec, ModelSession]],
        spending: Spending,
        limits: DispatchLimits = _NO_LIMITS,
        *,
        policy: BreakerPolicy = DEFAULT,
        clock: Callable[[], float] = time.monotonic,
        slots: Slots | None = None,
        context: Context | None = None,
    ) -> None:
        lines: dict[str, SlotQueue] = {}
        self._models = {
            spec.name: _Model(spec, one, lines.setdefault(spec.slot, SlotQueue(spec.sessions))) for spec, one in models
        }
        self._spending = spending
        self._limits = limits
        self._policy = policy
        self._clock = clock
        self._slots = slots
        self._context = context

    async def run(self, request: Request, terms: RequestTerms = _NO_TERMS, on_delta: OnDelta | None = None) -> Report:
        """Ask models until one has answered, until `request.deadline` at the latest.

        Raises only the errors of the day's spending and of `terms`: no answer is an outcome, not an error. If all
        replies were unfit, the last one is returned. `on_delta` receives the reply while it is written; the text of a
        model that then failed, or was unfit, is taken back with a `reset`, so that the deltas fold to the reply of the
        report.
        """
        ends, spent = self._clock() + request.deadline, BudgetAccount(spent=terms.spent)
        run = _Run(request, terms, self._clock, ends, spent, on_delta)
        names = list(self._models) if terms.models is None else terms.models
        for name in names:
            run.last = name == names[-1]
            if run.left() <= 0 or await self._done(run, self._models[name]):
                break
        return Report(run.best, tuple(run.attempts))

    def estimate(self, request: Request, models: Iterable[str]) -> Amount:
        """The maximum that a session should cost with any one of these models."""
        asked = asked_tokens(request)
        amounts = [_estimate(asked, request, self._models[name]) for name in models]
        return Amount(max((one.tokens for one in amounts), default=0), max((one.micros for one in amounts), default=0))

    async def _done(self, run: _Run, model: _Model) -> bool:
        """Whether to stop after this model."""
        before = len(run.attempts)
        patience = run.left() if run.last else min(run.left(), self._limits.patience)
        if self._in_cooldown(run, model):
            return False
        async with held_slot(model.spec, model.line, self._slots, (rank_of(run.terms.asker), patience)) as taken:
            if taken is not None or run.left() <= 0:
                _no_slot(run, model, taken or NoSlot())
                return False
            if not self._in_cooldown(run, model):
                await self._asked_within(run, model)
        asked = any(one.asked for one in run.attempts[before:])
        return asked and (run.attempts[-1].outcome == "answered" or await run.taken())

    async def _asked_within(self, run: _Run, model: _Model) -> None:
        """Ask with as much of the request as the model accepts; if that is still too long, with the minimum."""
        before, request = len(run.attempts), await self._fitting(run, model)
        await run.ready()
        await self._asked(run, model, request)
        if not any(one.outcome == "context_too_long" for one in run.attempts[before:]):
            return
        least = run.shorter(request, 0)
        if least != request and run.left() > 0 and not await run.taken():
            await self._asked(run, model, least)

    async def _fitting(self, run: _Run, model: _Model) -> Request:
        """As much of the request as fits into this model's context together with the answer."""
        spec = model.spec
        context = spec.context if self._context is None else await self._context(spec)
        if context is None:
            return run.request
        return run.shorter(run.request, context - _output(run.request, model) - _OVERHEAD.get(model.session.kind, 0))

    def _in_cooldown(self, run: _Run, model: _Model) -> bool:
        wait = model.pause_ends - self._clock() if _awaits_probe(run, model) else self._wait(model)
        if wait > 0:
            why = "as its provider asked" if self._asked_for_it(model) else "after repeated failures"
            _not_asked(run, model, "cooldown", f"paused for {wait:.0f} s {why}", wait=wait)
        return wait > 0

    def _asked_for_it(self, model: _Model) -> bool:
        """Whether the cooldown is a pause that the provider asked for."""
        now = self._clock()
        return model.pause_ends - now >= wait_left(model.breaker, now)

    def _wait(self, model: _Model) -> float:
        """Seconds until the end of a cooldown: the breaker's, or the pause that the provider asked for."""
        now = self._clock()
        return max(wait_left(model.breaker, now), model.pause_ends - now)

    async def _asked(self, run: _Run, model: _Model, request: Request) -> None:
        wanted = _estimate(asked_tokens(request), request, model)
        account = reserve(run.account, wanted, run.terms.cap)
        if isinstance(account, BudgetRefusal):  # the budget returns tomorrow, but this task has used its share
            _not_asked(run, model, "budget", str(account), retryable=False)
            return
        reserved = await self._spending.reserve(wanted, self._limits.day, self._share(run.terms))
        if isinstance(reserved, BudgetRefusal):
            _not_asked(run, model, "busy" if reserved.passing else "budget", str(reserved))
            return
        run.account, bill = account, None
        try:
            bill = await self._admitted(run, model, request)
        except asyncio.CancelledError:
            # Its cost beyond the part reported so far will never be known; the request was certainly sent.
            bill = _bill(run, model, run.used if run.used.tokens else Usage(asked_tokens(request), estimated=True))
            raise
        finally:
            run.account = settle_account(run.account, wanted, ZERO if bill is None else amount_of(bill))
            await asyncio.shield(self._spending.settle(reserved, bill))
        await self._report(model, run.attempts[-1])

    def _share(self, terms: RequestTerms) -> Share | None:
        most = self._limits.sender_tokens
        return Share(terms.on_share_of, most) if most and terms.on_share_of is not None else None

    async def _report(self, model: _Model, last: ModelAttempt) -> None:
        """Tell other processes what this attempt reveals about the model: its key is refused, or it needs a pause."""
        wait = self._wait(model)
        if self._slots is None or not last.asked:
            return
        if last.outcome == "auth" and model.session.kind in API_KINDS:  # a program's output proves nothing for all
            await self._slots.refuse(model.spec.name, last.message)
        elif wait > 0:
            # The failure may be this process's own trouble, and the next one starts with a fresh breaker anyway.
            told = f"{last.outcome}: {last.message}"
            await self._slots.pause(model.spec.name, wait, told, for_all=self._asked_for_it(model))

    async def _admitted(self, run: _Run, model: _Model, request: Request) -> Bill | None:
        """Ask if the breaker still permits it, and book the cost."""
        ticket = await self._ticket(run, model)
        if ticket is None:
            self._in_cooldown(run, model)
            return None
        probing = model.breaker.state == "half_open"
        if probing:
            model.probed.clear()
        began = self._clock()
        try:
            attempt = await self._attempt(run, model, request, ticket)
        except asyncio.CancelledError:
            model.breaker = _withdrawn(model.breaker, ticket, self._clock())
            raise
        finally:
            if probing:
                model.probed.set()
        run.attempts.append(structs.replace(attempt, ms=round((self._clock() - began) * 1000)))
        return _bill(run, model, attempt.usage, failed=attempt.outcome != "answered")

    async def _ticket(self, run: _Run, model: _Model) -> Ticket | None:
        """The breaker's ticket; None if it refuses, even after the probe that this run waited for."""
        model.breaker, ticket = admit(model.breaker, self._clock(), self._policy)
        while ticket is None and _awaits_probe(run, model):
            try:
                async with asyncio.timeout(max(0.0, run.left())):
                    await model.probed.wait()
            except TimeoutError:
                return None
            model.breaker, ticket = admit(model.breaker, self._clock(), self._policy)
        return ticket

    async def _attempt(self, run: _Run, model: _Model, request: Request, ticket: Ticket) -> ModelAttempt:
        # In a whole turn, the timeout limits how long a program may be silent.
        limit = run.left() if request.carrying else min(model.spec.timeout, run.left())
        run.take_back()
        run.used = NO_USAGE
        asked = replace(request, deadline=limit, max_tokens=_output(request, model), on_usage=run.meter)
        try:
            reply = await _within(model.session, asked, run.listener(model))
        except ModelFailure as failure:
            run.take_back()
            if failure.kind == "timeout" and limit < _FAIR * min(model.spec.timeout, run.request.deadline):
                model.breaker = _withdrawn(model.breaker, ticket, self._clock())  # earlier models took its time
            else:
                self._settled(model, ticket, ok=failure.alive)
            if failure.retry_after is not None:
                model.pause_ends = max(model.pause_ends, self._clock() + failure.retry_after)
            attempt = _priced(model, failure.reply.usage, failure.kind, failure.message)
            return structs.replace(attempt, retryable=failure.retryable, retry_after=failure.retry_after)
        self._settled(model, ticket, ok=True)
        run.best = _with_cost(model, reply)
        wrong = await run.wrong(reply)
        return _priced(model, reply.usage, "answered" if wrong is None else "unfit", wrong or "")

    def _settled(self, model: _Model, ticket: Ticket, *, ok: bool) -> None:
        model.breaker = settle_breaker(model.breaker, ticket, ok=ok, now=self._clock(), policy=self._policy)


def _not_asked(
    run: _Run, model: _Model, outcome: NotAsked, message: str, *, retryable: bool = True, wait: float | None = None
) -> None:
    run.attempts.append(ModelAttempt(model.spec.name, outcome, message, retryable=retryable, retry_after=wait))


def _no_slot(run: _Run, model: _Model, why: NoSlot) -> None:
    if why.refused:
        _not_asked(run, model, "cooldown", f"paused until its key is renewed or tested: {why.refused}")
    elif why.paused:
        told = f"paused for {why.paused:.0f} s by another worker"
        _not_asked(run, model, "cooldown", told, wait=why.paused)
    else:
        _not_asked(run, model, "busy", f"{model.spec.sessions} sessions are running")


async def _within(session: ModelSession, request: Request, on_delta: OnDelta | None) -> Reply:
    """Run a session; one that exceeds its deadline, or raises an unexpected error, counts as a failure."""
    try:
        async with asyncio.timeout(request.deadline + _KILL_S):
            return await session.run(request, on_delta)
    except TimeoutError as error:
        raise ModelFailure("timeout", "the session did not end") from error
    except ModelFailure:
        raise
    except Exception as error:
        raise ModelFailure("defect", f"{type(error).__name__} in the session") from error


def _awaits_probe(run: _Run, model: _Model) -> bool:
    """Whether another run is probing the only model left to this run."""
    return run.last and model.breaker.state == "half_open" and not model.probed.is_set()


def _withdrawn(breaker: Breaker, ticket: Ticket, now: float) -> Breaker:
    """The breaker after a call that says nothing about the model; after a probe, another may be sent."""
    if breaker.state == "half_open" and breaker.generation == ticket:
        return structs.replace(breaker, until=now)
    return breaker


def _output(request: Request, model: _Model) -> int:
    return min(request.max_tokens, model.spec.max_tokens)


def _estimate(asked: int, request: Request, model: _Model) -> Amount:
    """The maximum that a session should cost; `asked`: the tokens of the request."""
    output = _output(request, model)
    if model.session.kind not in _OVERHEAD:
        return amount(asked, output, model.spec.price)
    sent = _REQUESTS * asked + _OVERHEAD[model.session.kind]
    return amount(sent, _REQUESTS * output, model.spec.price)


def _micros(model: _Model, usage: Usage) -> int:
    """By the price in the settings; without one, the cost that the program reports."""
    if model.spec.price is None:
        return round((usage.cost_usd or 0.0) * 1e6)
    return amount(usage.input_tokens, usage.output_tokens, model.spec.price).micros


def _priced(model: _Model, usage: Usage, outcome: Outcome, message: str) -> ModelAttempt:
    return ModelAttempt(model.spec.name, outcome, message, usage, _micros(model, usage))


def _bill(run: _Run, model: _Model, usage: Usage, *, failed: bool = True) -> Bill:
    return Bill(run.terms.asker, model.spec.name, usage, _micros(model, usage), failed, run.terms.butler)


def _with_cost(model: _Model, reply: Reply) -> Reply:
    """Under the model's name in the settings; with the cost by its configured prices, if any."""
    usage = reply.usage
    if model.spec.price is not None:
        usage = structs.replace(usage, cost_usd=_micros(model, usage) / 1e6)
    return replace(reply, usage=usage, model=model.spec.name)
