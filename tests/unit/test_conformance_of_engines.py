"""The checks of `switchboard.testing.engines`: a good engine passes them all, and each fails an engine that is bad."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from unittest import SkipTest
from uuid import UUID, uuid4

import pytest

from switchboard.domain.routing import Member
from switchboard.ports.engine import (
    Answer,
    Delta,
    EngineFailure,
    Fenced,
    Journal,
    OutcomeUnknown,
    Refusal,
    Turn,
    TurnResult,
)
from switchboard.testing import engines
from switchboard.testing.engines import CHECKS, EngineCheck, Subject


class Good:
    """Two steps that call the other side, streaming, and options for everything."""

    def __init__(self) -> None:
        self.keys: list[UUID] = []

    def check(self, member: Member) -> None:
        if "wrong" in member.options:
            raise EngineFailure("no option `wrong`", error_class="validation", retryable=False)

    async def run(self, turn: Turn, journal: Journal) -> TurnResult:
        self.check(turn.member)

        async def call(key: UUID) -> str:
            await asyncio.sleep(turn.member.options.get("delay", 0))
            self.keys.append(key)
            return turn.text

        if turn.member.options.get("failing"):
            raise EngineFailure("as you wish")
        text: str = await journal.step("one", call)
        await journal.step("two", call)
        if turn.member.options.get("declining"):
            return Refusal("not mine")
        if turn.on_delta is not None:
            half = len(text) // 2
            turn.on_delta(Delta(0, "a first try"))
            turn.on_delta(Delta(0, text[:half]))
            turn.on_delta(Delta(half, text[half:]))
        return Answer(text)


def subject(engine: Good) -> Subject:
    return Subject(
        engine,
        slow={"delay": 30},
        failing={"failing": True},
        declining={"declining": True},
        wrong={"wrong": 1},
        keys=lambda: engine.keys,
        fits=lambda text, result: isinstance(result, Answer) and result.text == text,
    )


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_a_good_engine_passes(check: EngineCheck) -> None:
    await check(subject(Good()))


@pytest.mark.parametrize("check", [engines.fails_with_an_engine_failure, engines.declines, engines.names_wrong_options])
async def test_a_check_that_cannot_be_made_is_skipped_and_says_why(check: EngineCheck) -> None:
    with pytest.raises(SkipTest, match="the subject has no options"):
        await check(Subject(Good()))


def test_every_check_is_listed() -> None:
    own = {name: each for name, each in vars(engines).items() if getattr(each, "__module__", "") == engines.__name__}
    checks = {each for name, each in own.items() if asyncio.iscoroutinefunction(each) and not name.startswith("_")}
    assert set(CHECKS) == checks


# Bad ones -------------------------------------------------------------------------------------------------------------


def bad(run: Callable[[Good, Turn, Journal], Awaitable[Any]]) -> type[Good]:
    """An engine whose turns are this function."""
    return type("Bad", (Good,), {"run": run})


good_run: Final = Good.run


async def none(_: Good, __: Turn, ___: Journal) -> None:
    return None


async def nul(_: Good, __: Turn, ___: Journal) -> TurnResult:
    return Answer("a\x00b")


async def another(_: Good, __: Turn, ___: Journal) -> TurnResult:
    return Answer("what else?")


async def needs_text(self: Good, turn: Turn, journal: Journal) -> TurnResult:
    if not turn.text or turn.dead_letter is not None:
        raise ValueError("nothing to answer")
    return await good_run(self, turn, journal)


_last: list[str] = []


async def mixes(_: Good, turn: Turn, __: Journal) -> TurnResult:
    _last[:] = [turn.text]
    await asyncio.sleep(0)
    return Answer(_last[0])


async def beside(self: Good, turn: Turn, _: Journal) -> TurnResult:
    self.keys.append(uuid4())
    return Answer(turn.text)


async def wanders(self: Good, turn: Turn, journal: Journal) -> TurnResult:
    async def call(key: UUID) -> str:
        self.keys.append(key)
        return turn.text

    return Answer(await journal.step(str(uuid4()), call))


async def forgets(self: Good, turn: Turn, journal: Journal) -> TurnResult:
    async def call(_: UUID) -> str:
        self.keys.append(uuid4())
        return turn.text

    return Answer(await journal.step("one", call))


async def swallows(self: Good, turn: Turn, journal: Journal) -> TurnResult:
    try:
        return await good_run(self, turn, journal)
    except (Fenced, OutcomeUnknown) as error:
        raise EngineFailure(str(error)) from error


async def lingers(self: Good, turn: Turn, journal: Journal) -> TurnResult:
    task = asyncio.create_task(good_run(self, turn, journal))
    return await asyncio.shield(task)


async def bursts(_: Good, __: Turn, ___: Journal) -> TurnResult:
    raise ValueError("out of order")


async def wordless(_: Good, __: Turn, ___: Journal) -> TurnResult:
    raise EngineFailure("")


async def gap(_: Good, turn: Turn, __: Journal) -> TurnResult:
    if turn.on_delta is not None:
        turn.on_delta(Delta(7, turn.text))
    return Answer(turn.text)


async def half(_: Good, turn: Turn, __: Journal) -> TurnResult:
    if turn.on_delta is not None:
        turn.on_delta(Delta(0, turn.text[:1]))
    return Answer(turn.text)


class Lenient(Good):
    def check(self, member: Member) -> None:
        """Everything is right."""


class Hopeful(Good):
    def check(self, member: Member) -> None:
        if "wrong" in member.options:
            raise EngineFailure("perhaps later", error_class="validation")


@pytest.mark.parametrize(
    ("check", "engine", "told"),
    [
        (engines.gives_a_result, bad(none), "is no result"),
        (engines.gives_a_result, bad(nul), "cannot be stored"),
        (engines.gives_a_result, bad(another), "what else"),
        (engines.takes_notices, bad(needs_text), "nothing to answer"),
        (engines.takes_any_text, bad(needs_text), "nothing to answer"),
        (engines.runs_many_turns_at_once, bad(mixes), "is no answer to"),
        (engines.replays_what_is_done, bad(beside), "called again"),
        (engines.replays_what_is_done, bad(wanders), "run again"),
        (engines.continues_after_an_interruption, bad(wanders), "another course"),
        (engines.continues_after_an_interruption, bad(forgets), "keys of two attempts differ"),
        (engines.continues_after_an_interruption, bad(swallows), "^$"),
        (engines.passes_on_unknown_outcomes, bad(swallows), "^$"),
        (engines.ends_when_cancelled, bad(lingers), "it left tasks"),
        (engines.fails_with_an_engine_failure, bad(bursts), "out of order"),
        (engines.fails_with_an_engine_failure, bad(another), "should have raised EngineFailure"),
        (engines.fails_with_an_engine_failure, bad(wordless), "does not say"),
        (engines.declines, bad(another), "is no refusal"),
        (engines.names_wrong_options, Lenient, "should have raised EngineFailure"),
        (engines.names_wrong_options, Hopeful, "do not become right"),
        (engines.deltas_add_up_to_the_reply, bad(gap), "leaves a gap"),
        (engines.deltas_add_up_to_the_reply, bad(half), "do not make the reply"),
    ],
)
async def test_a_bad_engine_fails(check: EngineCheck, engine: type[Good], told: str) -> None:
    before = asyncio.all_tasks()
    with pytest.raises(Exception, match=told) as caught:
        await check(subject(engine()))
    assert not isinstance(caught.value, TimeoutError)
    for task in asyncio.all_tasks() - before:
        task.cancel()


async def test_a_failed_check_of_texts_says_which_text_it_was() -> None:
    with pytest.raises(ValueError, match="nothing to answer") as caught:
        await engines.takes_any_text(subject(bad(needs_text)()))
    assert re.search("nothing", "".join(caught.value.__notes__))


def test_child_processes_are_listed_while_threads_come_and_go() -> None:
    listed = threading.Event()

    def come_and_go() -> None:
        while not listed.is_set():
            passing = [threading.Thread(target=int) for _ in range(5)]
            for thread in passing:
                thread.start()
            for thread in passing:
                thread.join()

    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(come_and_go)
        try:
            assert {engines._child_processes() for _ in range(3000)} == {engines._child_processes()}
        finally:
            listed.set()
        coming.result()
