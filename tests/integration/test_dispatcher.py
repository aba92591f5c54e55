"""The dispatcher: which model is asked, who follows one that fails, and what it may cost.

No time is waited for: the clock of the breakers is the test's.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any, Literal

import pytest
from msgspec import structs

from switchboard.app.models.classifier import AskingPolicy, by_dispatcher
from switchboard.core.classification.prompt import CLOSING, OPENING, AskedMessage, Prompt, route_tool, routing_prompt
from switchboard.core.policy.breaker import BreakerPolicy
from switchboard.core.policy.budget import Amount, Cap, SenderCaps
from switchboard.core.text.tokens import asked_tokens
from switchboard.domain.classification import Candidate, Utterance
from switchboard.domain.llm import (
    Bill,
    ChatMessage,
    FailureKind,
    ModelAttempt,
    ModelDelta,
    ModelFailure,
    OnDelta,
    Report,
    Request,
    ToolCall,
    ToolResult,
    ToolServer,
    Usage,
    fold,
)
from switchboard.domain.llm import Reply as Said
from switchboard.journey.ask import RoutingTask
from switchboard.llm.build import Sessions
from switchboard.llm.dispatch import Dispatcher, DispatchLimits, RequestTerms
from switchboard.llm.port import Kind
from switchboard.llm.spec import ModelSpec
from switchboard.llm.spending import DayBook, Reserved
from switchboard.testing.scripted_llm import (
    Call,
    Garbage,
    Reply,
    Script,
    ScriptedLlm,
    Status,
)
from switchboard.testing.scripted_llm import Usage as Told
from tests.asking import CANDIDATES, REQUEST, prompt, request, spec, wrong
from tests.lab import lab, submission

ROUTED = Reply(calls=(Call("route_to_butler", {"butler": "health", "reason": "it hurts"}),), usage=Told(120, 30))
TODAY = datetime(2026, 11, 22, tzinfo=UTC).date()


class Clock:
    """The seconds of the breakers and of the deadlines."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Scripted:
    """A session that does what the test says, and counts."""

    kind: Kind = "openai"
    model = "m"

    def __init__(self, name: str, act: Callable[[Request], Any]) -> None:
        self.name = name
        self.asked: list[Request] = []
        self.running = self.most = 0
        self._act = act

    async def run(self, task: Request, on_delta: OnDelta | None = None) -> Said:
        self.asked.append(task)
        if on_delta is not None:
            on_delta(ModelDelta(f"{self.name} says "))
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(0)
            said = self._act(task)
            if asyncio.iscoroutine(said):
                said = await said
            if isinstance(said, Exception):
                raise said
            assert isinstance(said, Said)
            if on_delta is not None:
                on_delta(ModelDelta(end=said))
                return replace(said, text=f"{self.name} says {said.text}")
            return said
        finally:
            self.running -= 1


class Billed(DayBook):
    """The book of a day that keeps the bills as well."""

    def __init__(self) -> None:
        super().__init__(lambda: TODAY)
        self.bills: list[Bill] = []

    async def settle(self, reserved: Reserved, bill: Bill | None) -> None:
        await super().settle(reserved, bill)
        if bill is not None:
            self.bills.append(bill)


GOOD = Said(calls=(ToolCall("route_to_butler", {"butler": "health"}),), usage=Usage(1000, 100), stop_reason="end")
DOWN = ModelFailure("unavailable", "down")


def dispatcher(
    *models: Scripted, limits: DispatchLimits | None = None, clock: Clock | None = None, **more: Any
) -> Dispatcher:
    """Over these; `more` is of their specs."""
    pairs = [(ModelSpec(one.name, "openai", "m", **more), one) for one in models]
    return Dispatcher(pairs, DayBook(lambda: TODAY), limits or DispatchLimits(), clock=clock or Clock())


def by(report: Report) -> str | None:
    """The model that answered."""
    return None if report.reply is None else report.reply.model


def outcomes(attempts: Iterable[ModelAttempt]) -> list[tuple[str, str]]:
    return [(one.name, one.outcome) for one in attempts]


async def test_a_model_that_fails_is_followed_by_the_next_in_order() -> None:
    async with (
        ScriptedLlm(Script(otherwise=structs.replace(ROUTED, fault=Status(500)))) as first,
        ScriptedLlm(Script(otherwise=structs.replace(ROUTED, fault=Garbage()))) as second,
        ScriptedLlm(Script(otherwise=ROUTED)) as third,
    ):
        specs = [
            spec("anthropic", first.url, "first"),
            spec("openai", second.url, "second", price_in=2.0, price_out=10.0),
            spec("openai-responses", third.url, "third", price_in=1.0, price_out=5.0),
            spec("openai", "http://127.0.0.1:9", "never"),
        ]
        sessions = Sessions(specs)
        book = Billed()
        report = await Dispatcher(sessions.models, book).run(request(), RequestTerms(asker="classification"))
        await sessions.aclose()
    assert outcomes(report.attempts) == [("first", "unavailable"), ("second", "garbage"), ("third", "answered")]
    assert by(report) == "third"
    assert report.reply is not None
    assert report.failure is None
    last = report.attempts[-1]
    assert (last.usage.input_tokens, last.usage.output_tokens, last.micros, last.usage.estimated) == (
        120,
        30,
        270,
        False,
    )
    assert report.reply.usage.cost_usd == pytest.approx(0.00027)
    assert report.attempts[1].usage.estimated
    assert book.account.spent.micros == 270 + report.attempts[1].micros > 270
    assert book.account.reserved == Amount()
    assert [(bill.asker, bill.model, bill.failed) for bill in book.bills] == [
        ("classification", "first", True),
        ("classification", "second", True),
        ("classification", "third", False),
    ]


async def test_text_of_a_model_that_then_failed_is_taken_back() -> None:
    told: list[ModelDelta] = []
    first, second = Scripted("a", lambda _: DOWN), Scripted("b", lambda _: Said("good", usage=Usage(9, 1)))
    report = await dispatcher(first, second, price_in=1.0).run(request(), RequestTerms(on_delta=told.append))
    assert [delta.text for delta in told if not delta.end] == ["a says ", "", "b says "]
    assert [delta.reset for delta in told] == [False, True, False, False]
    assert fold(told) == report.reply
    assert by(report) == "b"
    assert fold(told).usage.cost_usd == pytest.approx(9e-6)


async def test_no_text_is_left_if_no_model_answers() -> None:
    told: list[ModelDelta] = []
    report = await dispatcher(Scripted("a", lambda _: DOWN)).run(request(), RequestTerms(on_delta=told.append))
    assert report.reply is None
    assert fold(told) == Said()


async def test_no_model_answers() -> None:
    slow = ModelFailure("rate_limited", "later", retry_after=12)
    report = await dispatcher(Scripted("a", lambda _: slow), Scripted("b", lambda _: DOWN)).run(request())
    assert report.reply is None
    failure = report.failure
    assert failure is not None
    assert (failure.kind, failure.retryable, failure.retry_after) == ("unavailable", True, 12)
    assert "a: rate_limited: later; b: unavailable: down" in failure.message
    assert (await dispatcher().run(request())).failure is not None


async def test_an_unexpected_error_of_a_session_is_a_failure_of_its_model() -> None:
    report = await dispatcher(Scripted("a", lambda _: KeyError("secret")), Scripted("b", lambda _: GOOD)).run(request())
    assert outcomes(report.attempts) == [("a", "defect"), ("b", "answered")]
    assert "secret" not in report.attempts[0].message


async def test_an_answer_that_does_not_fit_is_followed_by_the_next() -> None:
    bad = replace(GOOD, calls=(ToolCall("route_to_butler", {"butler": "nobody"}),))
    checks = RequestTerms(unfit=wrong)
    one = dispatcher(Scripted("a", lambda _: bad), Scripted("b", lambda _: GOOD))
    report = await one.run(request(), checks)
    assert outcomes(report.attempts) == [("a", "unfit"), ("b", "answered")]
    assert report.reply is not None
    assert report.reply.calls == GOOD.calls
    report = await dispatcher(Scripted("a", lambda _: bad)).run(request(), checks)
    assert report.reply is not None
    assert report.reply.calls == bad.calls


async def test_no_further_model_is_asked_after_an_accepted_call() -> None:
    taken = iter([True])
    never = Scripted("b", lambda _: GOOD)

    async def has_taken() -> bool:
        return next(taken)

    report = await dispatcher(Scripted("a", lambda _: DOWN), never).run(request(), RequestTerms(taken=has_taken))
    assert outcomes(report.attempts) == [("a", "unavailable")]
    assert never.asked == []


async def test_a_breaker_opens_and_one_of_fifty_is_the_probe() -> None:
    clock, gate = Clock(), asyncio.Event()
    healthy = False

    async def act(_: Request) -> Said:
        if not healthy:
            raise DOWN
        await gate.wait()
        return GOOD

    sick, spare = Scripted("sick", act), Scripted("spare", lambda _: GOOD)
    pairs = [(ModelSpec(one.name, "openai", "m", concurrency=100), one) for one in (sick, spare)]
    policy = BreakerPolicy(threshold=3, wait=30.0)
    one = Dispatcher(pairs, DayBook(lambda: TODAY), policy=policy, clock=clock)
    for n in range(5):
        assert by(await one.run(replace(request(), key=f"message {n}"))) == "spare"
    assert len(sick.asked) == 3  # then it was open
    clock.now += 29
    report = await one.run(request())
    assert outcomes(report.attempts) == [("sick", "cooldown"), ("spare", "answered")]
    assert report.attempts[0].message == "paused for 1 s after repeated failures"
    clock.now += 2
    healthy = True
    running = [asyncio.create_task(one.run(request())) for _ in range(50)]
    while sum(one.done() for one in running) < 49:
        await asyncio.sleep(0)
    assert len(sick.asked) == 4  # one probe
    gate.set()
    assert Counter(map(by, await asyncio.gather(*running))) == {"spare": 49, "sick": 1}
    assert by(await one.run(request())) == "sick"  # closed


@pytest.mark.parametrize("healthy", [True, False])
async def test_with_a_single_model_the_outcome_of_the_probe_is_awaited(healthy: bool) -> None:
    """And for no longer: all of them are asked as soon as it has answered, or know how long its cooldown lasts."""
    clock, gate = Clock(), asyncio.Event()
    acts: list[Any] = [DOWN, gate.wait]

    async def act(_: Request) -> Said:
        found = acts.pop(0) if acts else None
        if isinstance(found, Exception):
            raise found
        if found is not None:
            await found()
        if not healthy:
            raise DOWN
        return GOOD

    sick = Scripted("sick", act)
    pairs = [(ModelSpec("sick", "openai", "m", concurrency=3), sick)]
    one = Dispatcher(pairs, DayBook(lambda: TODAY), policy=BreakerPolicy(threshold=1, wait=30.0), clock=clock)
    await one.run(request())
    clock.now += 31
    running = [asyncio.create_task(one.run(request())) for _ in range(20)]
    while acts:
        await asyncio.sleep(0)
    late = asyncio.create_task(one.run(request()))
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(sick.asked) == 2, "one probe"
    assert not any(run.done() for run in (*running, late)), "nobody has used up an attempt"
    gate.set()
    reports = await asyncio.gather(*running, late)
    if healthy:
        assert set(map(by, reports)) == {"sick"}
    else:
        assert Counter(report.attempts[0].outcome for report in reports) == {"unavailable": 1, "cooldown": 20}
        waits = {report.failure.retry_after for report in reports if report.failure is not None}
        assert waits == {None, 2.0}, "a model that is the only one left is tried again soon"


async def test_what_a_cancelled_session_has_told_of_its_usage_is_booked() -> None:
    reached = asyncio.Event()

    async def act(request: Request) -> None:
        assert request.on_usage is not None
        request.on_usage(Usage(100, 10))
        reached.set()
        await asyncio.Event().wait()

    book = DayBook(lambda: TODAY)
    running = asyncio.create_task(
        Dispatcher([(ModelSpec("one", "openai", "m"), Scripted("one", act))], book).run(request())
    )
    await reached.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert book.account.spent == Amount(110)


async def test_a_cancelled_probe_releases_its_slot() -> None:
    clock, gate = Clock(), asyncio.Event()
    acts: list[Any] = [DOWN, gate.wait, GOOD]

    async def act(_: Request) -> Any:
        found = acts.pop(0)
        if isinstance(found, Exception):
            raise found
        return await found() if callable(found) else found

    sick = Scripted("sick", act)
    one = Dispatcher(
        [(ModelSpec("sick", "openai", "m"), sick)],
        book := DayBook(lambda: TODAY),
        policy=BreakerPolicy(threshold=1, wait=30.0, probe_timeout=1000.0),
        clock=clock,
    )
    await one.run(request())
    clock.now += 31
    running = asyncio.create_task(one.run(request()))
    while len(acts) > 1:
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert book.account.reserved == Amount()
    assert book.account.spent.tokens > 0  # it was sent, so it is paid for
    assert by(await one.run(request())) == "sick"


@pytest.mark.parametrize("kind", ["refused", "context_too_long"])
async def test_a_refused_request_does_not_count_against_the_model(kind: FailureKind) -> None:
    picky = Scripted("picky", lambda _: ModelFailure(kind, "no"))
    one = dispatcher(picky)
    for _ in range(10):
        assert outcomes((await one.run(request())).attempts) == [("picky", kind)]
    assert len(picky.asked) == 10


def routing(asked: Prompt) -> RoutingTask:
    async def has_taken() -> bool:
        return False

    return RoutingTask(asked, route_tool(CANDIDATES), REQUEST, CANDIDATES, "token", has_taken)


def chatty(**more: Any) -> tuple[Request, RequestTerms]:
    """A question with a long history: of ten utterances the newest is the shortest."""
    at, texts = datetime(2026, 1, 1, tzinfo=UTC), [f"{n} " + "word " * (500 if n < 9 else 5) for n in range(10)]
    said = [Utterance(at, "x", ours=False, text=text) for text in texts]
    asked = AskedMessage("my head hurts", "telegram", "x")
    one = routing(routing_prompt([Candidate("health")], asked, said))
    return one.request(None, 60.0, 1024), RequestTerms(shorter=one.shorter, **more)


def shown(asked: Request) -> list[str]:
    """The numbers of the utterances that a model saw, and whether it saw the message."""
    data = json.loads(asked.said.partition(OPENING)[2].partition(CLOSING)[0])
    assert data["message"]["text"] == "my head hurts"
    return [one["text"].split()[0] for one in data["history"]]


async def test_a_model_with_too_small_a_context_is_asked_with_ever_less_history() -> None:
    small = Scripted("small", lambda one: ModelFailure("context_too_long", "no") if shown(one) else GOOD)
    report = await dispatcher(small).run(*chatty())
    assert outcomes(report.attempts) == [*[("small", "context_too_long")] * 2, ("small", "answered")]
    assert sum(one.usage.tokens for one in report.attempts) >= 1100, "all are counted"
    assert [len(shown(one)) for one in small.asked] == [10, 7, 0], "the oldest first, in steps"
    tiny = Scripted("tiny", lambda _: ModelFailure("context_too_long", "no"))
    report = await dispatcher(tiny, Scripted("next", lambda _: GOOD)).run(*chatty())
    assert outcomes(report.attempts) == [*[("tiny", "context_too_long")] * 2, ("next", "answered")]


async def test_no_model_is_asked_again_after_an_accepted_call() -> None:
    async def taken() -> bool:
        return True

    small = Scripted("small", lambda _: ModelFailure("context_too_long", "no"))
    report = await dispatcher(small).run(*chatty(taken=taken))
    assert outcomes(report.attempts) == [("small", "context_too_long")]


@pytest.mark.parametrize(("context", "left"), [(None, 10), (1_000_000, 10), (6_000, 7), (10, 0)])
async def test_a_model_gets_as_much_history_as_fits_its_context(context: int | None, left: int) -> None:
    model = Scripted("model", lambda _: GOOD)
    await dispatcher(model, context=context).run(*chatty())
    [asked] = model.asked
    assert shown(asked) == [str(n) for n in range(10 - left, 10)]
    if context is not None and left:
        assert asked_tokens(asked) + asked.max_tokens <= context


async def test_a_report_without_attempts_says_so() -> None:
    one = dispatcher(
        Scripted("down", lambda _: DOWN), Scripted("dear", lambda _: GOOD), limits=DispatchLimits(day=Cap(0))
    )
    report = await one.run(request())
    assert (outcomes(report.attempts), report.asked) == ([("down", "budget"), ("dear", "budget")], False)
    assert report.failure is not None
    assert report.failure.retryable
    assert (await dispatcher(Scripted("down", lambda _: DOWN)).run(request())).asked


async def test_retry_after_is_respected() -> None:
    clock = Clock()
    acts: list[Any] = [ModelFailure("rate_limited", "later", retry_after=20), GOOD]
    limited = Scripted("limited", lambda _: acts.pop(0))
    one = dispatcher(limited, clock=clock)
    await one.run(request())
    clock.now += 19
    report = await one.run(request())
    assert outcomes(report.attempts) == [("limited", "cooldown")]
    assert report.failure is not None
    assert str(report.failure) == "model limited paused for 1 s as its provider asked"
    assert report.failure.retry_after == pytest.approx(1)
    clock.now += 2
    assert by(await one.run(request())) == "limited"


async def test_concurrency_of_a_model_is_limited() -> None:
    async def act(_: Request) -> Said:
        for _turn in range(5):
            await asyncio.sleep(0)
        return GOOD

    one = Scripted("one", act)
    reports = await asyncio.gather(*(dispatch.run(request()) for dispatch in [dispatcher(one, concurrency=3)] * 40))
    assert set(map(by, reports)) == {"one"}
    assert one.most == 3


async def test_who_waits_for_a_model_is_served_by_what_for_then_by_age() -> None:
    gate, begun = asyncio.Event(), asyncio.Event()

    async def act(_: Request) -> Said:
        begun.set()
        await gate.wait()
        return GOOD

    one = Scripted("one", act)
    dispatch = dispatcher(one, concurrency=1)
    askers = ("turn", "plan", "compaction", "plan", "turn", "classification")
    running = []
    for n, asker in enumerate(askers):
        asked = Request((ChatMessage("user", f"{asker} {n}"),))
        running.append(asyncio.create_task(dispatch.run(asked, RequestTerms(asker=asker))))
        await begun.wait()  # the first has the slot, the others come in this order
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(*running)
    served = [asked.messages[-1].text for asked in one.asked]
    assert served == ["turn 0", "classification 5", "turn 4", "plan 1", "plan 3", "compaction 2"]


async def test_a_busy_model_is_skipped() -> None:
    gate = asyncio.Event()

    async def act(_: Request) -> Said:
        await gate.wait()
        return GOOD

    busy, spare = Scripted("busy", act), Scripted("spare", lambda _: GOOD)
    one = dispatcher(busy, spare, concurrency=1, limits=DispatchLimits(patience=0.0))
    running = asyncio.create_task(one.run(request()))
    while not busy.asked:
        await asyncio.sleep(0)
    report = await one.run(request())
    assert outcomes(report.attempts) == [("busy", "busy"), ("spare", "answered")]
    gate.set()
    assert by(await running) == "busy"


async def test_budgets_of_a_message_and_of_a_day() -> None:
    cheap = Scripted("cheap", lambda _: GOOD)
    one = dispatcher(cheap, max_tokens=100)
    report = await one.run(request(), RequestTerms(cap=Cap(tokens=5000)))
    assert outcomes(report.attempts) == [("cheap", "answered")]
    report = await one.run(request(), RequestTerms(cap=Cap(tokens=5000), spent=Amount(4500)))
    assert outcomes(report.attempts) == [("cheap", "budget")]
    assert "5000 of a message" in report.attempts[0].message
    assert report.failure is not None
    assert not report.failure.retryable

    today = [TODAY]
    book = DayBook(lambda: today[0])
    spec_ = ModelSpec("cheap", "openai", "m", price_in=1000.0, price_out=1000.0, max_tokens=100)
    one = Dispatcher([(spec_, cheap)], book, DispatchLimits(day=Cap(micros=6_000_000)))
    together = await asyncio.gather(*(one.run(request()) for _ in range(10)))
    answered = [report for report in together if report.reply is not None]
    assert 0 < len(answered) < 10
    assert {report.attempts[0].outcome for report in together} == {"answered", "busy"}
    assert {report.failure.retryable for report in together if report.failure is not None} == {True}
    assert book.account.spent.micros <= 6_000_000
    assert book.account.reserved == Amount()
    today[0] = date(2026, 11, 23)
    assert by(await one.run(request())) == "cheap"


def taking_all_its_time(clock: Clock) -> Callable[[Request], ModelFailure]:
    def act(asked: Request) -> ModelFailure:
        clock.now += asked.deadline
        return ModelFailure("timeout", "late")

    return act


async def test_the_deadline_covers_all_attempts() -> None:
    clock = Clock()
    slow, never = Scripted("slow", taking_all_its_time(clock)), Scripted("never", lambda _: GOOD)
    report = await dispatcher(slow, never, clock=clock).run(request(deadline=0.05))
    assert outcomes(report.attempts) == [("slow", "timeout")]
    assert never.asked == []


async def test_a_model_without_time_left_is_not_blamed() -> None:
    clock = Clock()
    greedy, late = Scripted("greedy", taking_all_its_time(clock)), Scripted("late", taking_all_its_time(clock))
    pairs = [(ModelSpec("greedy", "openai", "m", timeout=0.9), greedy), (ModelSpec("late", "openai", "m"), late)]
    one = Dispatcher(pairs, DayBook(lambda: TODAY), policy=BreakerPolicy(threshold=1), clock=clock)
    report = await one.run(request(deadline=1.5))
    assert outcomes(report.attempts) == [("greedy", "timeout"), ("late", "timeout")]
    report = await one.run(request(deadline=1.5))
    assert outcomes(report.attempts) == [("greedy", "cooldown"), ("late", "timeout")]  # that time it had its time
    assert outcomes((await one.run(request(deadline=1.5))).attempts) == [("greedy", "cooldown"), ("late", "cooldown")]


async def test_each_model_gets_its_own_limits() -> None:
    one = Scripted("one", lambda _: GOOD)
    await dispatcher(one, timeout=7.0, max_tokens=50).run(request(deadline=60.0, max_tokens=900))
    [asked] = one.asked
    assert (asked.deadline, asked.max_tokens) == (7.0, 50)


# For classification ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fails", [True, False])
async def test_a_session_that_fails_or_is_cancelled_is_booked_for_its_sender(database_url: str, *, fails: bool) -> None:
    reached = asyncio.Event()

    async def act(_: Request) -> Said:
        reached.set()
        if fails:
            raise ModelFailure("unavailable", "down", reply=Said(usage=Usage(20, 3)))
        await asyncio.Event().wait()
        return GOOD

    async with lab(database_url) as house:
        accepted = await house.accept.accept(submission())
        ask = by_dispatcher(
            dispatcher(Scripted("one", act)), house.database, AskingPolicy(("one",), senders=SenderCaps(tokens=10**6))
        )
        running = asyncio.ensure_future(ask(replace(routing(prompt()), request_id=str(accepted.request_id))))
        await reached.wait()
        if fails:
            await running
        else:
            assert await house.count("select count(*) from model_reservation where flow is not null") == 1
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        assert await house.count("select count(*) from model_reservation") == 0
        used = await house.count("select tokens from model_flow")
        assert used == 23 if fails else used > 23


async def test_a_classification_becomes_a_request_and_a_report(database_url: str) -> None:
    sick, good = Scripted("sick", lambda _: DOWN), Scripted("good", lambda _: GOOD)
    async with lab(database_url) as house:
        asking = AskingPolicy(("sick", "good"), timeout=9.0, mcp_url="http://127.0.0.1:1/mcp")
        report = await by_dispatcher(dispatcher(sick, good), house.database, asking)(routing(prompt()))
    assert report.reply is not None
    assert not report.reply.by_program  # its calls are carried out for it
    assert (report.reply.calls, report.reply.model) == (GOOD.calls, "good")
    [tried] = report.tried
    assert (tried.name, tried.outcome, tried.message) == ("sick", "unavailable", "down")
    [asked] = good.asked
    assert (asked.server, asked.key, asked.force) == (
        ToolServer("http://127.0.0.1:1/mcp", "token"),
        REQUEST,
        "route_to_butler",
    )
    assert asked.deadline <= 9.0


async def test_the_report_when_no_model_answers() -> None:
    report = await dispatcher(*(Scripted(name, lambda _: DOWN) for name in ("a", "b"))).run(request())
    assert (report.reply, [tried.name for tried in report.tried]) == (None, ["a"])
    assert report.last is not None
    assert (report.last.name, report.asked) == ("b", True)


async def test_each_asker_uses_and_pays_for_its_own_models() -> None:
    book, models = Billed(), [Scripted(name, lambda _: GOOD) for name in ("a", "b")]
    pairs = [(ModelSpec(one.name, "openai", "m"), one) for one in models]
    one = Dispatcher(pairs, book)
    assert by(await one.run(request(), RequestTerms(asker="turn", models=("b", "a")))) == "b"
    assert by(await one.run(request(), RequestTerms(asker="classification"))) == "a"
    assert [(bill.asker, bill.model, bill.usage.tokens) for bill in book.bills] == [
        ("turn", "b", 1100),
        ("classification", "a", 1100),
    ]


@pytest.mark.parametrize("profile", ["local", None])
async def test_a_slow_local_model_gets_more_time_and_readers_are_told(profile: Literal["local"] | None) -> None:
    clock, asked = Clock(), list[float]()

    def act(request: Request) -> Said:
        asked.append(request.deadline)
        clock.now += 50.0
        return Said("Read.", usage=Usage(asked_tokens(request) // 2, 10, cache_read=0), stop_reason="end")

    slow = Scripted("slow", act)
    model = dispatcher(slow, clock=clock, profile=profile)
    long = Request((ChatMessage("user", "word " * 2_000),), deadline=3_600.0)
    short = replace(long, messages=(*long.messages, ChatMessage("user", results=(ToolResult("1", "word " * 200),))))
    told: list[ModelDelta] = []
    for one in (long, replace(long, system="Another."), long, short):
        await model.run(one, RequestTerms(on_delta=told.append))
    local = profile == "local"
    assert asked[0] == 60.0
    more = pytest.approx(150.0, rel=0.2)
    assert asked[1:] == ([more] * 3 if local else [60.0] * 3)
    new = pytest.approx(50, rel=0.1)
    assert [one.reading for one in told if one.reading] == ([new, new, pytest.approx(5, abs=1)] if local else [])
