"""What the dispatcher makes of failures: when it asks again, whose fault they are, and what it learns of refusals.

No time is waited for: pauses are called for, and the clock is the test's.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final
from urllib.parse import urlsplit

import httpx2
import pytest

from switchboard.agents.turns.again import wait_for_models
from switchboard.core.text.tokens import asked_tokens
from switchboard.domain.llm import ChatMessage, ModelDelta, ModelFailure, Report, Request, Usage
from switchboard.domain.llm import Reply as Said
from switchboard.llm.context import LEAST, REMEMBERED_S, Contexts
from switchboard.llm.dispatch import Dispatcher, RequestTerms
from switchboard.llm.port import ApiKind
from switchboard.llm.spec import API_KINDS, ModelSpec
from switchboard.llm.web import broken_failure
from switchboard.testing.engines import a_turn
from switchboard.testing.scripted_llm import Reply, Script, ScriptedLlm, Status
from switchboard.testing.scripted_llm.faults import Where
from tests.asking import request, session
from tests.asking import spec as asked_spec
from tests.integration.test_dispatcher import DOWN, GOOD, Billed, Clock, Scripted, by, dispatcher, outcomes

SCRIPT: Final = Script(models=("scripted-1",))
FAILED: Final = ModelFailure("unavailable", "status 500: no")
REFUSED_CONNECTION: Final = broken_failure(ConnectionRefusedError(111, "Connection refused"))
OVERLOADED: Final = ModelFailure("unavailable", "status 503: no", overloaded=True)
TOO_LONG: Final = ModelFailure("context_too_long", "status 400: no")


def by_turns(*ends: Said | ModelFailure) -> Callable[[Request], Said | ModelFailure]:
    """Ends in these ways, one after the other, and again from the first."""
    turns = itertools.cycle(ends)
    return lambda _: next(turns)


class Pauses:
    """Notes the pauses that are called for, and does something at each."""

    def __init__(self, act: Callable[[], Awaitable[object]] | None = None, *, clock: Clock | None = None) -> None:
        self.seconds: list[float] = []
        self.reports: list[Report] = []
        self._act, self._clock = act, clock

    async def __call__(self, report: Report, seconds: float) -> bool:
        self.seconds.append(seconds)
        self.reports.append(report)
        if self._clock is not None:
            self._clock.now += seconds
        if self._act is not None:
            await self._act()
        return True


def chat(name: str, again: Pauses | None = None) -> RequestTerms:
    """The request of one chat, and of no other."""
    return RequestTerms(asker="turn", name=name, again=again)


def failing(times: int, failure: ModelFailure = FAILED) -> Callable[[Request], Said | ModelFailure]:
    """Fails so many times, and then is well."""
    left = [failure] * times
    return lambda _: left.pop() if left else GOOD


async def test_three_failures_of_a_chat_delay_only_itself_and_under_ten_seconds() -> None:
    """With room for one session only, so that who holds it while waiting would stop everybody."""
    clock, sick = Clock(), Scripted("sick", failing(3))
    book = Billed()
    one = Dispatcher([(ModelSpec("sick", "openai", "m", concurrency=1), sick)], book, clock=clock)
    others: list[Report] = []

    async def other() -> None:
        was, sick._act = sick._act, lambda _: GOOD
        others.append(await one.run(request(), chat(f"other {len(others)}")))
        sick._act = was

    again = Pauses(other, clock=clock)
    report = await one.run(replace(request(), deadline=600.0), chat("a", again))
    assert [outcomes(other.attempts) for other in others] == [[("sick", "answered")]] * 3, "asked at once"
    assert outcomes(report.attempts) == [*[("sick", "unavailable")] * 3, ("sick", "answered")]
    assert again.seconds == [0.5, 2.0, 5.0]
    assert sum(again.seconds) < 10
    assert [bill.failed for bill in book.bills if bill.failed] == [True] * 3, "every try is booked"
    assert book.account.reserved.tokens == 0


async def test_failures_of_one_message_count_once_whatever_is_asked_for_it() -> None:
    """A plan asks for a message several times, each time with another name."""
    sick = Scripted("sick", lambda _: FAILED)
    one = dispatcher(sick)
    for step in ("route", "s1", "s2", "s3", "s4"):
        await one.run(replace(request(), key="first"), chat(f"first {step}"))
    assert len(sick.asked) == 5
    for message in ("second", "third", "fourth"):
        await one.run(replace(request(), key=message), chat(f"{message} s1"))
    assert len(sick.asked) == 5 + 2, "after three messages it is paused"


@pytest.mark.parametrize(
    ("failures", "pauses"),
    [
        ([FAILED, FAILED], [0.5, 2.0, 5.0]),
        ([FAILED, ModelFailure("garbage", "no")], []),
        ([FAILED, ModelFailure("auth", "no")], [0.5, 2.0, 5.0]),
        ([ModelFailure("auth", "no")], []),
        ([ModelFailure("defect", "no"), FAILED], []),
        ([ModelFailure("rate_limited", "no quota", retryable=False)], []),
        ([ModelFailure("rate_limited", "no", retry_after=3.0)] * 2, [5.0]),
        ([ModelFailure("rate_limited", "no", retry_after=12.0)] * 2, []),
        ([ModelFailure("rate_limited", "no", retry_after=12.0), FAILED], [0.5, 2.0, 5.0]),
    ],
    ids=str,
)
async def test_all_are_asked_again_only_after_every_one_had_a_passing_outage(
    failures: Sequence[ModelFailure], pauses: Sequence[float]
) -> None:
    clock = Clock()
    models = [Scripted(f"m{n}", failing(100, failure)) for n, failure in enumerate(failures)]
    again = Pauses(clock=clock)
    report = await dispatcher(*models, clock=clock).run(replace(request(), deadline=600.0), chat("a", again))
    assert report.reply is None
    assert again.seconds == pauses
    asked = [len(model.asked) for model, failure in zip(models, failures, strict=True) if not failure.retryable]
    assert all(times == 1 for times in asked), "what waiting does not help is not asked again"
    assert report.failure is not None
    assert report.failure.message.count("m0: ") == 1, "each reason is named once"


async def test_who_has_no_time_left_or_is_told_to_end_does_not_ask_again() -> None:
    sick = Scripted("sick", lambda _: FAILED)
    again = Pauses()
    await dispatcher(sick).run(replace(request(), deadline=1.0), chat("a", again))
    assert again.seconds == [0.5]  # and none of 2 s

    async def ends(_: Report, __: float) -> bool:
        return False

    sick.asked.clear()
    await dispatcher(sick).run(request(), RequestTerms(again=ends))
    assert len(sick.asked) == 1


@pytest.mark.parametrize("which", ["stop", "drain", "both before"])
async def test_a_stop_and_a_drain_end_the_pause_at_once(which: str) -> None:
    stop, drain = asyncio.Event(), asyncio.Event()
    again = wait_for_models(replace(a_turn(), stop=stop, drain=drain))
    if which == "both before":
        stop.set()
        drain.set()
    waiting = asyncio.ensure_future(again(Report(None), 1e6))
    await asyncio.sleep(0)
    (drain if which == "drain" else stop).set()
    assert await waiting is False
    assert await wait_for_models(a_turn())(Report(None), 0.0) is True


async def test_a_request_that_alone_fails_is_at_fault_and_delays_no_others() -> None:
    """First the next model, then the shortest form, then an end that says so."""

    def act(asked: Request) -> Said | ModelFailure:
        return FAILED if "poison" in asked.said else GOOD

    def shorter(asked: Request, tokens: int) -> Request:
        return replace(asked, messages=asked.messages[-1:]) if tokens <= 0 else asked

    first, second = Scripted("first", act), Scripted("second", act)
    one = dispatcher(first, second)

    async def other() -> None:
        for model in ("first", "second"):
            terms = RequestTerms(models=(model,), name="other")
            assert by(await one.run(request(), terms)) == model

    bad = Request((ChatMessage("user", "poison"), ChatMessage("user", "hello")), deadline=600.0)
    report = await one.run(bad, shortened(chat("a", Pauses(other)), shorter))
    assert outcomes(report.attempts) == [
        *[("first", "unavailable"), ("second", "unavailable")] * 4,
        ("first", "answered"),
    ]
    assert [one.said for one in first.asked if "poison" not in one.said][-1] == "hello"
    worse = Request((ChatMessage("user", "poison"),), deadline=600.0)
    report = await one.run(worse, shortened(chat("b", Pauses(other)), shorter))
    assert outcomes(report.attempts)[8:] == [
        *[("first", "unavailable"), ("first", "at_fault")],
        *[("second", "unavailable"), ("second", "at_fault")],
    ]
    failure = report.failure
    assert failure is not None
    assert (failure.kind, failure.retryable) == ("defect", False)
    assert "the request is at fault" in failure.message
    asked = len(first.asked)
    assert (await one.run(worse, shortened(chat("b"), shorter))).failure is not None
    assert len(first.asked) == asked, "and it is not asked again"


def shortened(terms: RequestTerms, shorter: Callable[[Request, int], Request]) -> RequestTerms:
    return RequestTerms(asker=terms.asker, name=terms.name, again=terms.again, shorter=shorter)


@pytest.mark.parametrize("failure", [OVERLOADED, ModelFailure("rate_limited", "no"), DOWN])
async def test_no_request_is_at_fault_if_the_server_is_overloaded_or_down(
    failure: ModelFailure,
) -> None:
    clock, sick = Clock(), Scripted("sick", lambda _: failure)
    one = dispatcher(sick, clock=clock)

    async def other() -> None:
        if failure is DOWN:
            return
        was, sick._act = sick._act, lambda _: GOOD
        await one.run(request(), chat("other"))
        sick._act = was

    for _ in range(5):
        report = await one.run(replace(request(), deadline=600.0), chat("a", Pauses(other, clock=clock)))
        assert report.failure is not None
        assert report.failure.kind == failure.kind
        assert report.failure.retryable


@pytest.mark.parametrize(
    ("failure", "others", "pause", "blamed"),
    [
        (FAILED, 4, 1.0, True),
        (ModelFailure("timeout", "no answer within 20 s"), 4, 1.0, True),
        (REFUSED_CONNECTION, 4, 1.0, False),
        (FAILED, 1, 1.0, False),
        (FAILED, 4, REMEMBERED_S, False),
    ],
    ids=["crash", "timeout", "no connection", "one short recovery", "seldom"],
)
async def test_only_a_request_that_fails_between_answers_to_others_is_at_fault(
    failure: ModelFailure, others: int, pause: float, blamed: bool
) -> None:
    """`others`: after how many of its failures another request was answered, `pause` seconds after the failure."""
    clock, model = Clock(), Scripted("m", lambda asked: GOOD if asked.said == "other" else failure)
    one = dispatcher(model, clock=clock)
    other = Request((ChatMessage("user", "other"),), deadline=600.0)
    report = Report(None)
    for n in range(5):
        report = await one.run(replace(request(), deadline=600.0), chat("a"))
        clock.now += pause
        if n < others:
            assert by(await one.run(other, chat(f"other {n}"))) == "m"
    assert ("m", "at_fault") in outcomes(report.attempts) or not blamed
    assert (report.failure is not None and report.failure.retryable) != blamed
    clock.now += REMEMBERED_S
    model._act = lambda _: GOOD
    assert by(await one.run(replace(request(), deadline=600.0), chat("a"))) == "m", "it is forgotten"


# Too long -----------------------------------------------------------------------------------------------------------


def long(lines: int) -> tuple[Request, Callable[[Request, int], Request]]:
    """A request that consists of lines, and what leaves out the first."""
    asked = Request(tuple(ChatMessage("user", f"word {n} " * 20) for n in range(lines)), deadline=600.0, max_tokens=100)

    def shorter(asked: Request, tokens: int) -> Request:
        while len(asked.messages) > 1 and asked_tokens(asked) > tokens:
            asked = replace(asked, messages=asked.messages[1:])
        return asked

    return asked, shorter


@pytest.mark.parametrize(
    ("kept", "named", "again"),
    [
        (80, None, [63]),
        (40, None, [63, 45, 1]),
        (1, None, [63, 45, 1]),
        (0, None, [63, 45, 1]),
        (40, 2_500, [35]),
    ],
)
async def test_it_asks_with_less_at_most_three_times_and_remembers_the_limit(
    kept: int, named: int | None, again: list[int]
) -> None:
    """`kept`: how many lines the server takes; `again`: how many it is asked with the next time."""
    limit = ModelFailure("context_too_long", "no", limit=named)
    sick = Scripted("m", lambda one: GOOD if len(one.messages) <= kept else limit)
    async with httpx2.AsyncClient() as http:
        contexts, clock = Contexts(http, Clock()), Clock()
        spec = ModelSpec("m", "openai", "m", base_url="http://127.0.0.1:9/v1")
        one = Dispatcher([(spec, sick)], Billed(), clock=clock, context=contexts)
        asked, shorter = long(120)
        report = await one.run(asked, RequestTerms(shorter=shorter))
        sizes = [len(one.messages) for one in sick.asked]
        assert sizes == sorted(set(sizes), reverse=True)
        assert len(sizes) <= 3
        assert (report.reply is not None) == (kept > 0)
        if not kept:
            assert report.failure is not None
            assert (report.failure.kind, report.failure.retryable, sizes[-1]) == ("context_too_long", False, 1)
        known = await contexts.of(spec)
        assert known >= LEAST
        assert known < 8192
        assert named is None or known == named
        sick.asked.clear()
        await one.run(asked, RequestTerms(shorter=shorter))
        assert [len(one.messages) for one in sick.asked] == again, "it begins with what is remembered"


@pytest.mark.parametrize("before", [0, 2, 5])
@pytest.mark.parametrize("small", [0, 1, 2, 3, 5])
async def test_refusals_of_one_model_keep_no_other_from_its_first_request(small: int, before: int) -> None:
    """Which is whole, as the next model may read it; only repeats are counted, over the turn and its models."""
    models = [Scripted(f"m{n}", lambda _: TOO_LONG) for n in range(small)]
    asked, shorter = long(120)
    terms = RequestTerms(shorter=shorter, refused=before)
    report = await dispatcher(*models, Scripted("big", lambda _: GOOD)).run(asked, terms)
    assert by(report) == "big"
    repeats = len(report.attempts) - small - 1
    assert repeats == (1 if (small, before) == (1, 0) else 0)
    if small:
        first = [one for one in models[-1].asked if one.messages == asked.messages]
        assert len(first) == 1, "each is asked for all of it"
        report = await dispatcher(*models).run(asked, terms)
        assert len(report.attempts) == small + (2 if small < 3 and not before else 1)
        assert len(models[-1].asked[-1].messages) == 1, "the last is the shortest"


async def test_an_empty_answer_to_a_request_near_the_context_size_means_too_long() -> None:
    empty = Said(usage=Usage(6_000, 0), stop_reason="end")
    asked, shorter = long(120)
    silent = Scripted("m", lambda one: GOOD if len(one.messages) < 100 else empty)
    report = await dispatcher(silent, context=8_000).run(asked, RequestTerms(shorter=shorter))
    assert outcomes(report.attempts) == [("m", "context_too_long"), ("m", "answered")]
    assert report.attempts[0].usage.input_tokens == 6_000, "it is paid for"
    short = Scripted("m", lambda _: Said(usage=Usage(5_000, 0), stop_reason="end"))
    report = await dispatcher(short, context=8_000).run(asked, RequestTerms(shorter=shorter))
    assert outcomes(report.attempts) == [("m", "answered")]
    never = Scripted("m", lambda _: empty)
    report = await dispatcher(never, context=8_000).run(asked, RequestTerms(shorter=shorter))
    assert (len(report.attempts), by(report)) == (3, "m"), "its silence is all that there is"
    assert report.last is report.attempts[-1]


@pytest.mark.parametrize(
    ("ends", "lines", "explicit", "known"),
    [
        (TOO_LONG, 120, False, 0.75),
        (TOO_LONG, 120, True, None),
        (TOO_LONG, 20, False, None),
        (ModelFailure("context_too_long", "no", limit=3_000), 2, True, 3_000),
        (ModelFailure("context_too_long", "status 413: no", certain=False), 120, False, None),
        (Said(usage=Usage(7_000, 0)), 120, False, None),
        (Said(usage=Usage(7_000, 1_000), stop_reason="length", thought=True), 120, False, None),
    ],
    ids=str,
)
async def test_a_guess_lowers_no_configured_context_and_an_odd_refusal_none(
    ends: Said | ModelFailure, lines: int, explicit: bool, known: float | None
) -> None:
    """`known`: what is learned, in tokens, or as a share of what was asked."""
    async with httpx2.AsyncClient() as http:
        contexts = Contexts(http, Clock())
        spec = (
            ModelSpec("m", "openai", "m", context=8_192)
            if explicit
            else ModelSpec("m", "openai-responses", "m", base_url="http://127.0.0.1:9/v1")
        )
        one = Dispatcher([(spec, Scripted("m", lambda _: ends))], Billed(), clock=Clock(), context=contexts)
        before = await contexts.of(spec)
        asked, shorter = long(lines)
        await one.run(asked, RequestTerms(shorter=lambda one, _: one))
        share = known is not None and known < 1
        expected = int(known * asked_tokens(asked)) if known and share else known or before
        assert await contexts.of(spec) == expected
        assert asked_tokens(shorter(asked, 0)) < LEAST


async def test_thinking_to_the_limit_and_cut_answers_do_not_mean_full_context() -> None:
    asked, _ = long(120)
    for reply in (Said(usage=Usage(7_000, 9), stop_reason="length"), Said(usage=Usage(7_000, 9), thought=True)):
        silent = Scripted("m", by_turns(reply))
        assert outcomes((await dispatcher(silent, context=8_000).run(asked)).attempts) == [("m", "answered")]


@pytest.mark.parametrize("kind", API_KINDS)
@pytest.mark.parametrize("at", ["start", "middle"])
@pytest.mark.parametrize("status", [400, 413, 422, 500, 503])
async def test_it_is_known_by_any_status_and_in_a_stream(kind: ApiKind, at: Where, status: int) -> None:
    said = "the number of tokens is greater than the context length (n_keep: 5008>= n_ctx: 4096)"
    fault = Reply("Well, well, well.", fault=Status(status, message=said, at=at))
    told: list[ModelDelta] = []
    async with session(kind, fault) as (one, _):
        with pytest.raises(ModelFailure) as caught:
            await one.run(request(), told.append)
    assert (caught.value.kind, caught.value.limit, caught.value.alive) == ("context_too_long", 4096, True)


async def test_what_is_learned_ends_after_ten_minutes_or_at_a_new_reported_size() -> None:
    clock = Clock()
    async with httpx2.AsyncClient() as http:
        async with ScriptedLlm(SCRIPT, server="llama.cpp", context=6_000) as llm:
            url, contexts = llm.url, Contexts(http, clock)
            spec = asked_spec("openai", url, profile="local")
            assert await contexts.of(spec) == 6_000
            contexts.learn(spec, 3_000, REMEMBERED_S)
            assert await contexts.of(spec) == 3_000
            contexts.learn(spec, 4_000, 300.0)  # an older one, told by another process
            assert await contexts.of(spec) == 3_000
            clock.now += REMEMBERED_S
            assert await contexts.of(spec) == 6_000
            fresh = Contexts(http, clock)
            fresh.learn(spec, 3_000, 300.0)
            assert await fresh.of(spec) == 3_000, "told before the server was ever asked"
        async with ScriptedLlm(SCRIPT, port=urlsplit(url).port or 0, server="llama.cpp", context=5_000):
            contexts.learn(spec, 4_000, REMEMBERED_S)
            assert await contexts.of(spec) == 5_000, "it was restarted, and tells so"
            contexts.learn(spec, 4_000, REMEMBERED_S - 1)
            assert await contexts.of(spec) == 5_000, "what another process learned before counts no more"
