"""Which model is asked: those of the settings in order, each subject to its breaker, its limit and the budget.

The caller passes `Dispatcher.run` a `Request` and its `RequestTerms` and gets a `Report`. Next: `port.py`.

After every failure the next model is asked. If all of them have failed with an outage, and the caller can wait, all are
asked again after 0.5, 2 and 5 seconds; later retries are up to the caller. Nobody holds a slot meanwhile.

A model for which the request was too long is asked again with less of it, the oldest first, and then with its shortest
form, as long as fewer than three requests of the turn were refused for that; the next model is asked in any case, and
the last for the shortest form. What it says it can read is remembered; a guess only where the settings say nothing, and
if the request was long enough to tell. A request at which a model fails four times, and twice answers others in
between, is itself at fault: the other models are asked, then that model with the shortest form, and then it is not
asked any more. No model is asked after our own server has accepted a call, as the message would be routed twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import structlog
from msgspec import Struct, structs

from switchboard.core.policy.breaker import DEFAULT, Breaker, BreakerPolicy, CallEnd, Ticket, admit, wait_left
from switchboard.core.policy.breaker import settle as settle_breaker
from switchboard.core.policy.budget import ZERO, Amount, BudgetAccount, BudgetRefusal, Cap, Share, amount, reserve
from switchboard.core.policy.budget import settle as settle_account
from switchboard.core.text.tokens import asked_tokens
from switchboard.domain.llm import (
    AWAY,
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
from switchboard.llm.blame import Blame
from switchboard.llm.context import LEAST, REMEMBERED_S
from switchboard.llm.pace import Pace
from switchboard.llm.port import ModelSession
from switchboard.llm.slots import NoSlot, SlotQueue, Slots, held_slot, rank_of
from switchboard.llm.spec import API_KINDS, ModelSpec
from switchboard.llm.spending import Spending, amount_of
from switchboard.ports.models import Asking

log = structlog.get_logger(__name__)

_CLOSED: Final = Breaker()
_NO_CAP: Final = Cap()
EVERY: Final = ("*",)
"""In the place of names: all models that the dispatcher has, in their order."""
_OVERHEAD: Final[dict[str, int]] = {"claude-code": 2_000, "codex": 14_000, "gemini-cli": 16_000, "opencode": 6_000}
"""Tokens that a command line adds to two requests with its own prompt and tools, as recorded, rounded up."""
_REQUESTS: Final = 2
"""Requests of a command line for one call: one that makes it, one that sees its result."""
_FAIR: Final = 0.5
"""A model that had less than this share of its time is not blamed for a timeout."""
_KILL_S: Final = 8.0
"""The time a session may take beyond its deadline to clean up."""


_AWAY: Final = AWAY | {"cooldown", "busy"}
"""Outcomes that say nothing about the request."""
_PERHAPS_ITS_FAULT: Final = frozenset({"unavailable", "timeout"})
"""Outages that a request itself may cause."""
_MOST_REFUSED: Final = 3
"""No model is asked again after so many requests of a turn were refused because they are too long."""
_STEP: Final = 0.75
"""The next request has at most this share of the tokens of the one that was too long."""
_NEARLY_FULL: Final = 0.7
"""An empty answer to a request above this share of the context may mean that it was too long."""
_TELLING: Final = 0.5
"""A refusal without a number says something of the context only if the request had at least this share of it."""


class ContextSource(Protocol):
    """How many tokens models can read, question and answer together."""

    async def of(self, spec: ModelSpec, /) -> int: ...

    def learn(self, spec: ModelSpec, tokens: int, seconds: float, /) -> None:
        """From now on and for these seconds, the model is known to read no more than so many tokens."""


class DispatchLimits(Struct, frozen=True):
    """The maximum cost of a day, and the seconds to wait for a busy model if there is another.

    `sender_tokens`: maximum tokens of turns per day for one sender; 0: no limit. `pauses`: the seconds after which all
    models are asked again that have failed with an outage.
    """

    day: Cap = _NO_CAP
    patience: float = 5.0
    sender_tokens: int = 0
    pauses: tuple[float, ...] = (0.5, 2.0, 5.0)


class RequestTerms(Asking, frozen=True):
    """The conditions of a request, set by the caller: those of `Asking`, and what only the dispatcher weighs.

    `cap` is the maximum cost of the caller's task, `spent` its cost so far. `unfit` returns what is wrong with a reply
    (then the next model is asked), or None.
    """

    models: Sequence[str] = EVERY
    asker: str = ""
    cap: Cap = _NO_CAP
    spent: Amount = ZERO
    unfit: Callable[[Reply], Awaitable[str | None]] | None = None


_NO_TERMS: Final = RequestTerms()
_NO_LIMITS: Final = DispatchLimits()


@dataclass(slots=True)
class _Model:
    """One model at run time. `pause_ends`: until when its provider asked for a pause, in seconds of the clock.

    `blame`: the requests that it keeps failing at.
    """

    spec: ModelSpec
    session: ModelSession
    line: SlotQueue
    blame: Blame
    breaker: Breaker = _CLOSED
    pause_ends: float = 0.0
    probed: asyncio.Event = field(default_factory=asyncio.Event)
    """Not set while a probe is running: a run that has no other model waits for its outcome."""
    pace: Pace = field(init=False)

    def __post_init__(self) -> None:
        self.pace = Pace(self.spec)


@dataclass(slots=True)
class _Run:
    """The state of one run of the dispatcher. `behind`: how many models there are after the current one.

    `told`: `on_delta` has received part of a reply. `refused`: how many requests of the turn were too long. `room`: the
    tokens that the current model can read, question and answer together. `shortest`: only the shortest form is left.
    """

    request: Request
    terms: RequestTerms
    clock: Callable[[], float]
    ends: float
    account: BudgetAccount
    told: bool = False
    used: Usage = NO_USAGE
    """What the session that runs has used, as far as it is told."""
    attempts: list[ModelAttempt] = field(default_factory=list)
    best: Reply | None = None
    behind: int = 0
    refused: int = 0
    room: int | None = None
    shortest: bool = False

    @property
    def last(self) -> bool:
        """Whether there is no model after the current one."""
        return not self.behind

    def seconds_left(self) -> float:
        """Seconds until the deadline."""
        return self.ends - self.clock()

    async def has_accepted_call(self) -> bool:
        """Whether our server has accepted a call of this request."""
        return self.terms.taken is not None and await self.terms.taken()

    async def ready(self) -> None:
        """Wait until a request may leave."""
        if self.terms.ready is not None:
            await self.terms.ready()

    def listener(self, model: _Model) -> OnDelta | None:
        """A function that passes the deltas of a session on, with the cost by our prices in the last one."""
        on_delta = self.terms.on_delta
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
        if self.told and self.terms.on_delta is not None:
            self.terms.on_delta(ModelDelta(reset=True))
        self.told = False

    def tell_reading(self, seconds: int) -> None:
        """Report that the model reads the request, which takes about so long; 0: not worth telling."""
        if seconds and self.terms.on_delta is not None:
            self.terms.on_delta(ModelDelta(reading=seconds))

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
        context: ContextSource | None = None,
    ) -> None:
        lines: dict[str, SlotQueue] = {}
        self._models = {
            spec.name: _Model(spec, one, lines.setdefault(spec.slot, SlotQueue(spec.sessions)), Blame(clock))
            for spec, one in models
        }
        self._spending = spending
        self._limits = limits
        self._policy = policy
        self._clock = clock
        self._slots = slots
        self._context = context

    async def run(self, request: Request, terms: RequestTerms = _NO_TERMS) -> Report:
        """Ask models until one has answered, until `request.deadline` at the latest.

        Raises only the errors of the day's spending and of `terms`: no answer is an outcome, not an error. If all
        replies were unfit, the last one is returned. `terms.on_delta` receives the reply while it is written; the text
        of a model that then failed, or was unfit, is taken back with a `reset`, so that the deltas fold to the reply of
        the report.
        """
        ends, spent = self._clock() + request.deadline, BudgetAccount(spent=terms.spent)
        run = _Run(request, terms, self._clock, ends, spent, refused=terms.refused)
        names = list(self._models) if terms.models == EVERY else terms.models
        pauses = iter(self._limits.pauses)
        over = await self._asked_all(run, names)
        while not over and await self._wait_for_retry(run, pauses):
            again = _passing(run.attempts)
            over = await self._asked_all(run, [name for name in names if name in again])
        return Report(run.best, tuple(run.attempts))

    async def _asked_all(self, run: _Run, names: Sequence[str]) -> bool:
        """Ask one model after the other; returns whether it is all over: by an answer, or for lack of time."""
        began, run.shortest = len(run.attempts), False
        for behind, name in zip(range(len(names) - 1, -1, -1), names, strict=True):
            run.behind = behind
            if run.seconds_left() <= 0 or await self._try_model(run, self._models[name]):
                return True
        run.behind, run.shortest = 0, True
        for model in [self._models[name] for name in names]:
            if not model.blame.is_at_fault(run.terms.name):
                continue
            if run.seconds_left() <= 0 or await self._try_model(run, model):
                return True
            if model.blame.is_given_up(run.terms.name):
                _at_fault(run, model)
        return not _are_away(run.attempts[began:])

    async def _wait_for_retry(self, run: _Run, pauses: Iterator[float]) -> bool:
        """Whether all models are to be asked again, after the next pause at whose end one of them may be asked."""
        if run.terms.again is None:
            return False
        again = _passing(run.attempts)
        soonest = min(max(self._wait(self._models[name]), one.retry_after or 0.0) for name, one in again.items())
        pause = next((one for one in pauses if one >= soonest), None)
        if pause is None or pause >= run.seconds_left():
            return False
        return await run.terms.again(Report(run.best, tuple(run.attempts)), pause)

    def estimate(self, request: Request, models: Iterable[str]) -> Amount:
        """The maximum that a session should cost with any one of these models."""
        asked = asked_tokens(request)
        amounts = [_estimate(asked, request, self._models[name]) for name in models]
        return Amount(max((one.tokens for one in amounts), default=0), max((one.micros for one in amounts), default=0))

    async def _try_model(self, run: _Run, model: _Model) -> bool:
        """Whether to stop after this model."""
        before = len(run.attempts)
        if model.blame.is_at_fault(run.terms.name) and not self._may_try_shortest(run, model):
            return False
        patience = run.seconds_left() if run.last else min(run.seconds_left(), self._limits.patience)
        if self._in_cooldown(run, model):
            return False
        async with held_slot(model.spec, model.line, self._slots, (rank_of(run.terms.asker), patience)) as taken:
            if taken is not None or run.seconds_left() <= 0:
                _no_slot(run, model, taken or NoSlot())
                return False
            if not self._in_cooldown(run, model):
                await self._asked_within(run, model)
        asked = any(one.asked for one in run.attempts[before:])
        return asked and (run.attempts[-1].outcome == "answered" or await run.has_accepted_call())

    def _may_try_shortest(self, run: _Run, model: _Model) -> bool:
        """Whether a request at fault may be sent to this model, in its shortest form, after all others were asked."""
        return run.shortest and not model.blame.is_given_up(run.terms.name)

    async def _asked_within(self, run: _Run, model: _Model) -> None:
        """Ask with as much of the request as the model accepts; if that is still too long, with less and less."""
        request: Request | None = await self._fitting(run, model)
        await run.ready()
        while request is not None:
            before = len(run.attempts)
            await self._ask_within_budget(run, model, request)
            too_long = any(one.outcome == "context_too_long" for one in run.attempts[before:])
            request = await self._after_refusal(run, model, request) if too_long else None

    async def _after_refusal(self, run: _Run, model: _Model, refused: Request) -> Request | None:
        """What to ask after a request that was too long; None: nothing more. The last is the shortest.

        Those behind it are asked as well, and the last model is asked for the shortest form in any case.
        """
        none_left = run.refused + run.behind >= _MOST_REFUSED and not run.last
        if none_left or run.seconds_left() <= 0 or await run.has_accepted_call():
            return None
        fitting = await self._fitting(run, model)
        step = min(asked_tokens(fitting), int(_STEP * asked_tokens(refused)))
        request = run.shorter(fitting, 0 if run.refused + 1 >= _MOST_REFUSED else step)
        if asked_tokens(request) >= asked_tokens(refused):  # the caller can leave out no more in steps
            request = run.shorter(fitting, 0)
        return request if asked_tokens(request) < asked_tokens(refused) else None

    async def _fitting(self, run: _Run, model: _Model) -> Request:
        """As much of the request as fits into this model's context together with the answer.

        One that is at fault is the shortest.
        """
        run.room = model.spec.context if self._context is None else await self._context.of(model.spec)
        request, output = run.request, _output(run.request, model)
        if run.room is not None and output > run.room // 2:
            output = max(run.room // 2, 1)
            request = replace(request, max_tokens=output)
        if run.shortest:
            return run.shorter(request, 0)
        if run.room is None:
            return request
        return run.shorter(request, run.room - output - _OVERHEAD.get(model.session.kind, 0))

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

    async def _ask_within_budget(self, run: _Run, model: _Model, request: Request) -> None:
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
            bill = await self._ask_through_breaker(run, model, request)
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
        """Tell operators and other processes what this attempt reveals about the model, if there are any.

        Its key may be refused, or it may need a pause.
        """
        wait = self._wait(model)
        if self._slots is None or not last.asked:
            return
        if last.outcome not in {"answered", "unfit"}:
            # Without the provider's words, which may quote the message: `explain` shows them.
            log.warning("a model failed", model=last.name, kind=last.outcome, reason=last.message.partition(": ")[0])
        if last.outcome == "auth" and model.session.kind in API_KINDS:  # a program's output proves nothing for all
            await self._slots.refuse(model.spec.name, last.message)
        elif wait > 0:
            # The failure may be this process's own trouble, and the next one starts with a fresh breaker anyway.
            told = f"{last.outcome}: {last.message}"
            await self._slots.pause(model.spec.name, wait, told, for_all=self._asked_for_it(model))

    async def _ask_through_breaker(self, run: _Run, model: _Model, request: Request) -> Bill | None:
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
            model.breaker = _withdraw_ticket(model.breaker, ticket, self._clock())
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
                async with asyncio.timeout(max(0.0, run.seconds_left())):
                    await model.probed.wait()
            except TimeoutError:
                return None
            model.breaker, ticket = admit(model.breaker, self._clock(), self._policy)
        return ticket

    async def _attempt(self, run: _Run, model: _Model, request: Request, ticket: Ticket) -> ModelAttempt:
        # In a whole turn, the timeout limits how long a program may be silent.
        began = self._clock()
        limit = (
            run.seconds_left() if request.carrying else min(model.pace.limit(asked_tokens(request)), run.seconds_left())
        )
        run.take_back()
        run.tell_reading(model.pace.reading(request))
        run.used = NO_USAGE
        asked = replace(request, deadline=limit, max_tokens=_output(request, model), on_usage=run.meter)
        try:
            reply = await _within(model.session, asked, run.listener(model))
            run.best = _with_cost(model, reply)
            _check_room(reply, asked, run.room)
        except ModelFailure as failure:
            run.take_back()
            if failure.kind == "timeout" and limit < _FAIR * min(model.spec.timeout, run.request.deadline):
                model.breaker = _withdraw_ticket(model.breaker, ticket, self._clock())  # earlier models took its time
            else:
                self._settle_call(run, model, ticket, ok=failure.alive)
                if run.shortest or (failure.kind in _PERHAPS_ITS_FAULT and not failure.overloaded):
                    model.blame.failed(run.terms.name, shortest=run.shortest)
            if failure.kind == "context_too_long":
                run.refused += 1
                await self._learn(model, _learned_limit(failure, model, asked_tokens(request), run.room))
            if failure.retry_after is not None:
                model.pause_ends = max(model.pause_ends, self._clock() + failure.retry_after)
            attempt = _attempt_with_cost(model, failure.reply.usage, failure.kind, failure.message)
            return structs.replace(attempt, retryable=failure.retryable, retry_after=failure.retry_after)
        self._settle_call(run, model, ticket, ok=True)
        model.blame.answered(run.terms.name)
        model.pace.note(request, reply, self._clock() - began)
        wrong = await run.wrong(reply)
        return _attempt_with_cost(model, reply.usage, "answered" if wrong is None else "unfit", wrong or "")

    def _settle_call(self, run: _Run, model: _Model, ticket: Ticket, *, ok: bool) -> None:
        end = CallEnd(ok, self._clock(), run.request.key, run.last)
        model.breaker = settle_breaker(model.breaker, ticket, end, self._policy)

    async def _learn(self, model: _Model, tokens: int) -> None:
        """Remember how much a model can read, and tell the other processes; 0: nothing is known."""
        if not tokens:
            return
        most = max(tokens, LEAST)
        if self._context is not None:
            self._context.learn(model.spec, most, REMEMBERED_S)
        if self._slots is not None:
            await self._slots.limit(model.spec.name, most, REMEMBERED_S)


def _are_away(attempts: Sequence[ModelAttempt]) -> bool:
    """Whether all models of a round failed with an outage, and that of one of them may soon be over."""
    last = {one.name: one for one in attempts}.values()
    return all(one.outcome in _AWAY for one in last) and bool(_passing(attempts))


def _passing(attempts: Sequence[ModelAttempt]) -> dict[str, ModelAttempt]:
    """The models that may soon answer, and their last attempts: no key of theirs was refused, and no quota used up."""
    last = {one.name: one for one in attempts}
    return {name: one for name, one in last.items() if one.outcome in _AWAY and _may_pass(one)}


def _may_pass(attempt: ModelAttempt) -> bool:
    return attempt.retryable and (attempt.outcome != "cooldown" or attempt.retry_after is not None)


def _learned_limit(failure: ModelFailure, model: _Model, asked: int, room: int | None) -> int:
    """How much a model can read, after it has refused so many tokens; 0: that does not tell.

    It is the number that it names, and otherwise a guess, which must not lower what the settings say.
    """
    if failure.limit is not None:
        return failure.limit
    if not failure.certain or model.spec.context is not None or asked < max(_TELLING * (room or 0), LEAST):
        return 0
    return int(_STEP * asked)


def _check_room(reply: Reply, request: Request, room: int | None) -> None:
    """Raise ModelFailure if an empty answer means that the request was too long: some servers say nothing else."""
    if room is None or request.carrying is not None or reply.by_program or reply.text.strip() or reply.calls:
        return
    if reply.thought or reply.stop_reason == "length":  # it had room to write something
        return
    asked = asked_tokens(request) if reply.usage.estimated else reply.usage.input_tokens
    if asked > _NEARLY_FULL * room:
        message = f"an empty answer to {asked:,} tokens, of {room:,}"
        raise ModelFailure("context_too_long", message, reply=reply, certain=False)


def _at_fault(run: _Run, model: _Model) -> None:
    why = "fails at this request only, even in its shortest form, while it answers others: the request is at fault"
    _not_asked(run, model, "at_fault", why, retryable=False)


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


def _withdraw_ticket(breaker: Breaker, ticket: Ticket, now: float) -> Breaker:
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


def _attempt_with_cost(model: _Model, usage: Usage, outcome: Outcome, message: str) -> ModelAttempt:
    return ModelAttempt(model.spec.name, outcome, message, usage, _micros(model, usage))


def _bill(run: _Run, model: _Model, usage: Usage, *, failed: bool = True) -> Bill:
    return Bill(run.terms.asker, model.spec.name, usage, _micros(model, usage), failed, run.terms.butler)


def _with_cost(model: _Model, reply: Reply) -> Reply:
    """Under the model's name in the settings; with the cost by its configured prices, if any."""
    usage = reply.usage
    if model.spec.price is not None:
        usage = structs.replace(usage, cost_usd=_micros(model, usage) / 1e6)
    return replace(reply, usage=usage, model=model.spec.name)
