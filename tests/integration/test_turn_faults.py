"""Turns against strict providers, and against a model and tools that go wrong in every way they can: each ends."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise
from typing import Final

import pytest
from msgspec.structs import replace

from switchboard.core.channels.registry import CHANNELS
from switchboard.core.policy.retry import OutagePolicy
from switchboard.domain.json_values import JsonMapping
from switchboard.journey.turn import DELAYED, TurnLimits
from switchboard.llm.port import ApiKind
from switchboard.ports.engine import Answer
from switchboard.ports.tools import ToolOutcome, ToolScope
from switchboard.store.memory.history import StoredHistory, StoredReaders
from switchboard.store.messages.inbox import Acceptance
from switchboard.testing.engines import MemoryJournal, a_turn
from switchboard.testing.scripted_llm import Call, Cut, Disconnect, Empty, Fault, Garbage, Reply, Request, ScriptedLlm
from switchboard.testing.scripted_llm import Status as Failed
from tests.asking import spec
from tests.hands import all_dead_letters, assert_balanced, at_work, settled
from tests.lab import Lab, butler, lab, rule, submission, team_of
from tests.turning import OWNER, Noting, a_model_engine
from tests.waiting import eventually

KINDS: Final[tuple[ApiKind, ...]] = ("openai", "openai-responses", "anthropic")
RULES: Final = [rule("System1/clerk")]
AWAY: Final = OutagePolicy(least=0.02, most=0.05, told=30.0, given_up=60.0)
LIMITS: Final = TurnLimits(attempts=5, timeout=60, backoff_base=0.02, backoff_cap=0.05, outage=AWAY)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_strict_provider_takes_every_request_of_a_turn(kind: ApiKind) -> None:
    """With thinking, several calls at once, malformed arguments, a cut off answer, an empty one, and a limit."""
    replies = [
        Reply(thinking="Let me look.", calls=(Call("look", {"n": 1}), Call("look", {"n": 2}))),
        Reply(text="Hm.", calls=(Call("look", "{no json"), Call("unknown"))),
        Reply(calls=(Call("look"),), finish="length"),
        Reply(),
        Reply(thinking="Once more.", calls=(Call("look", {"n": 3}),)),
        Reply(text="That is all."),
    ]
    async with (
        ScriptedLlm(replies, strict=True) as llm,
        a_model_engine(llm, [Noting("look")], specs=[spec(kind, llm.url, "m", timeout=20.0)]) as (engine, _),
    ):
        turn = a_turn({"owners": OWNER, "limits": {"requests": 6}})
        result = await engine.run(turn, MemoryJournal())
        assert isinstance(result, Answer)
        assert (result.text, result.stop_reason) == ("That is all.", "limit:requests")
        told = [said.text for said in llm.requests[2].messages if said.role == "tool"][-2:]
    assert told == ["the arguments are not a JSON object: '{no json'", "there is no tool 'unknown'; there are: look"]


class Chaos:
    """A model that fails in three of ten requests, and else makes some calls before it answers."""

    FAULTS: Final[tuple[Fault, ...]] = (
        Failed(429),
        Failed(500),
        Failed(503),
        Garbage(),
        Empty(),
        Cut(),
        Disconnect(),
    )
    CALLS: Final = (
        Call("look", {"n": 1}),
        Call("pay"),
        Call("raises"),
        Call("much"),
        Call("hangs"),
        Call("unknown"),
        Call("look", "{no json"),
    )

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def __call__(self, request: Request) -> Reply:
        if self._random.random() < 0.3:
            return Reply(fault=self._random.choice(self.FAULTS))
        done = sum(said.role == "tool" for said in request.messages)
        if done < 6 and self._random.random() < 0.7:
            return Reply(calls=tuple(self._random.sample(self.CALLS, self._random.randint(1, 2))))
        return Reply(text="Done.")


async def _raises(_: JsonMapping, __: ToolScope) -> ToolOutcome:
    raise RuntimeError("a defect")


async def _much(_: JsonMapping, __: ToolScope) -> ToolOutcome:
    return ToolOutcome("x" * 5_000_000)


async def _hangs(_: JsonMapping, __: ToolScope) -> ToolOutcome:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.slow
async def test_whatever_goes_wrong_all_turns_end_and_the_books_balance(database_url: str) -> None:
    """Two workers share the turns; the faults are those of the provider, of the model and of the tools."""
    pay = Noting("pay", "effectful")
    tools = [
        *(Noting("look"), pay, Noting("raises", act=_raises)),
        *(Noting("much", act=_much), Noting("hangs", act=_hangs)),
    ]
    team = team_of(butler("clerk", "model", owners=OWNER, tool_timeout=0.1))
    async with (
        lab(database_url, [team], RULES) as parts,
        ScriptedLlm(Chaos(7), strict=True) as llm,
        a_model_engine(llm, tools) as (engine, _),
    ):
        given = [submission(f"m{n}", channel="api", sender="x", thread=f"t{n % 10}", event=str(n)) for n in range(40)]
        assert all(isinstance(one, Acceptance) for one in await parts.accept.accept_all(given))
        async with at_work(*(parts.worker({"model": engine}, limits=LIMITS) for _ in range(2))):
            await eventually(lambda: settled(parts), within=120)
        states = await parts.database.rows("select state, count(*) as n from delivery group by state")
        assert {row["state"] for row in states} <= {"answered", "dead"}
        assert sum(row["n"] for row in states) == 40
        assert all(dead["reason"] for dead in await all_dead_letters(parts))
        keys = [key for key, _ in pay.calls]
        assert len(set(keys)) == len(keys), "a call with effects was repeated"
        await assert_balanced(parts)


async def test_a_turn_begins_with_the_bytes_of_the_turn_before(database_url: str) -> None:
    team = team_of(butler("clerk", "model"))
    async with lab(database_url, [team], RULES) as parts, ScriptedLlm(lambda _: Reply(text="Here.")) as llm:
        readers = StoredReaders(parts.database, CHANNELS)
        history = StoredHistory(parts.database, readers)
        async with (
            a_model_engine(llm, readers=readers, history=history) as (engine, _),
            at_work(parts.worker({"model": engine}, limits=LIMITS)),
        ):
            for n in range(3):
                await parts.accept.accept(submission(f"m{n}", channel="api", sender="x", event=str(n)))
                await eventually(lambda: settled(parts), within=60)
        bodies = [str(request.body["messages"])[:-1] for request in llm.requests]
    assert len(bodies) == 3
    assert all(after.startswith(before) for before, after in pairwise(bodies))


async def test_an_outage_of_all_models_is_told_once_and_all_are_answered_later(database_url: str) -> None:
    """The provider is away for ten minutes of virtual time, by the policy that everybody has."""
    away = True

    def brain(_: Request) -> Reply:
        return Reply(fault=Failed(503)) if away else Reply(text="Here.")

    team = team_of(butler("clerk", "model"))
    people = 100
    async with (
        lab(database_url, [team], RULES) as parts,
        ScriptedLlm(brain, strict=True) as llm,
        a_model_engine(llm) as (engine, _),
        at_work(parts.worker({"model": engine}, limits=replace(LIMITS, outage=OutagePolicy()))),
    ):
        given = [submission("hello", channel="api", sender=f"c{n}", event=str(n)) for n in range(people)]
        assert all(isinstance(one, Acceptance) for one in await parts.accept.accept_all(given))
        told = []
        for half_minute in range(32):
            away = half_minute < 20
            await eventually(lambda: _all_wait(parts), within=60)
            told.append(await parts.count("select count(*) from outbox where text = $1", DELAYED))
            await _pass_time(parts, 30)
        assert (told[0], told[20]) == (0, people)
        await eventually(lambda: settled(parts), within=60)
        rows = await parts.database.rows("select array_agg(text order by seq) as texts from outbox group by request_id")
        assert [row["texts"] for row in rows] == [[DELAYED, "Here."]] * people
        assert len(llm.requests) < 10 * people, "a provider that is away is not asked all the time"
        await assert_balanced(parts)


async def _all_wait(parts: Lab) -> bool:
    """Whether every lane waits for a later time, or has nothing to do."""
    return not await parts.count(
        "select count(*) from lane where state = 'running' or (state = 'ready' and ready_at <= clock_timestamp())"
    )


async def _pass_time(parts: Lab, seconds: float) -> None:
    """All that was then was so many seconds earlier."""
    await parts.database.run("update lane set ready_at = ready_at - $1 * interval '1 s' where state = 'ready'", seconds)
    await parts.database.run(
        "update step set result = to_json((result #>> '{}')::timestamptz - $1 * interval '1 s') "
        "where path like 'outage:%'",
        seconds,
    )
