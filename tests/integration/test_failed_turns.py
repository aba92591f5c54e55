"""What a turn leaves that failed: what it was asked stays in the history, and the conversation goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import pytest

from switchboard.agents.model.engine import ModelEngine
from switchboard.core.channels.registry import CHANNELS
from switchboard.llm.dispatch import DispatchLimits
from switchboard.store.memory.history import StoredHistory, StoredReaders
from switchboard.testing.scripted_llm import Reply, Request, ScriptedLlm, Status
from tests.asking import spec
from tests.dead_letters import OPERATOR, service_of, to_butler
from tests.hands import all_dead_letters, assert_balanced, at_work, settled
from tests.integration.test_turn_faults import LIMITS
from tests.lab import Lab, butler, lab, rule, submission, team_of
from tests.turning import Asked, model_engine
from tests.waiting import eventually

TEAMS: Final = (team_of(butler("clerk", "model"), butler("spare", "model")),)
RULES: Final = [rule("System1/clerk")]
REFUSED: Final = Reply(fault=Status(400, message="messages: this is not allowed"))
TOO_LONG: Final = Reply(fault=Status(500, message="the request exceeds the available context size (4096 tokens)"))


class Brain:
    """Answers, unless it is to fail."""

    def __init__(self) -> None:
        self.fails = REFUSED
        self.on: str = ""

    def __call__(self, request: Request) -> Reply:
        return self.fails if self.on and self.on in request.prompt else Reply(text="Here.")


@asynccontextmanager
async def working(url: str, brain: Brain) -> AsyncIterator[tuple[Lab, ScriptedLlm]]:
    async with lab(url, TEAMS, RULES) as parts, ScriptedLlm(brain, strict=True) as llm:
        models = Asked([spec("openai", llm.url, "m", timeout=20.0)])
        try:
            async with at_work(parts.worker({"model": _engine(parts, models)}, limits=LIMITS)):
                yield parts, llm
        finally:
            await models.aclose()


def _engine(parts: Lab, models: Asked) -> ModelEngine:
    readers = StoredReaders(parts.database, CHANNELS)
    return model_engine(models, readers=readers, history=StoredHistory(parts.database, readers))


async def say(parts: Lab, text: str) -> None:
    await parts.accept.accept(submission(text, channel="api", sender="x", event=text[:50]))
    await eventually(lambda: settled(parts), within=60)


async def entries(parts: Lab) -> list[tuple[Any, ...]]:
    rows = await parts.database.rows(
        "select lane_name(e.lane) as lane, e.role, e.text from entry e order by e.lane, e.position"
    )
    return [(row["role"], row["text"]) for row in rows]


async def test_questions_of_failed_turns_join_the_next_one_in_one_model_message(database_url: str) -> None:
    brain = Brain()
    async with working(database_url, brain) as (parts, llm):
        brain.on = "?"
        await say(parts, "who?")
        await say(parts, "and when?")
        brain.on = ""
        await say(parts, "go on")
        assert await entries(parts) == [
            *(("user", "who?"), ("user", "and when?")),
            *(("user", "go on"), ("assistant", "Here.")),
        ]
        [asked] = [one for one in llm.requests[-1].messages if one.role == "user"]
        assert [line for line in asked.text.splitlines() if line.startswith(">")] == [
            "> who?",
            "> and when?",
            "> go on",
        ]
        await assert_balanced(parts)


@pytest.mark.parametrize(("name", "left"), [("clerk", 1), ("spare", 2)])
async def test_a_reroute_to_the_same_butler_replaces_what_was_asked(database_url: str, name: str, left: int) -> None:
    brain = Brain()
    async with working(database_url, brain) as (parts, _):
        brain.on = "?"
        await say(parts, "who?")
        await say(parts, "go on?")
        [first, _second] = await all_dead_letters(parts)
        brain.on = "nothing of it"
        await say(parts, "well")
        service = service_of(parts)
        await service.reroute(OPERATOR, first["dead_letter_id"], to_butler(name))
        await eventually(lambda: settled(parts), within=60)
        said = await entries(parts)
        assert said.count(("user", "who?")) == left
        assert said.count(("assistant", "Here.")) == 2
        first_left = await parts.database.value(
            "select min(first_not_compacted(lane)) from entry group by lane limit 1"
        )
        assert first_left == (2 if left == 1 else 1), "a compaction begins at an entry that exists"
        assert said[said.index(("user", "who?")) :][: 2 if left == 1 else 1][-1] in {
            ("assistant", "Here."),
            ("user", "who?"),
        }
        await assert_balanced(parts)


async def test_a_message_too_long_for_the_model_ends_and_later_ones_are_answered(database_url: str) -> None:
    """Though it stays in the history, and the model refuses whatever it is part of."""
    brain = Brain()
    brain.fails, brain.on = TOO_LONG, "HUGE"
    async with working(database_url, brain) as (parts, llm):
        await say(parts, "HUGE " * 2_000)
        [dead] = await all_dead_letters(parts)
        assert "context_too_long: status 500: " in dead["reason"]
        assert len(llm.requests) <= 3
        before = len(llm.requests)
        for n in range(3):
            await say(parts, f"m{n}")
        answered = await parts.count("select count(*) from delivery where state = 'answered'")
        assert (answered, len(await all_dead_letters(parts))) == (3, 1)
        assert len(llm.requests) - before <= 3 + 3
        await assert_balanced(parts)


@pytest.mark.parametrize("fails", [REFUSED, Reply(fault=Status(500))], ids=["refused", "crashes"])
async def test_a_message_that_a_model_cannot_take_does_not_block_later_answers(database_url: str, fails: Reply) -> None:
    """It stays in the history, for people, and whoever asks the model with it fails."""
    brain = Brain()
    brain.fails, brain.on = fails, "poison"
    async with working(database_url, brain) as (parts, llm):
        await parts.accept.accept(submission("poison", channel="api", sender="x", event="1"))
        await eventually(lambda: _asked(llm, 1))
        await _dead_after_others(parts)
        await say(parts, "and now?")
        await say(parts, "well")
        assert ("user", "poison") in await entries(parts)
        assert len(await all_dead_letters(parts)) == 1
        [*_, last] = [one.text for one in llm.requests[-1].messages if one.role == "user"]
        assert "> well" in last
        assert "(a message of then could not be answered)" in llm.requests[-1].prompt
        assert "> and now?" in llm.requests[-1].prompt
        await assert_balanced(parts)


async def _answered(parts: Lab, least: int) -> bool:
    return await parts.count("select count(*) from delivery where state = 'answered'") >= least


async def _dead_after_others(parts: Lab) -> None:
    """The first message has become a dead letter, at the latest after other chats were answered."""
    for n in range(40):
        await parts.accept.accept(submission("hello", channel="api", sender=f"other{n}", event=f"other{n}"))
        await eventually(partial(_answered, parts, n + 1), within=60)
        if await settled(parts):
            return


async def test_a_drain_ends_the_pause_and_the_turn_is_left_to_others_at_once(database_url: str) -> None:
    """The pause is longer than a drain may take, and an attempt that is broken off leaves no failure."""
    asked = asyncio.Event()

    def fails(_: Request) -> Reply:
        asked.set()
        return Reply(fault=Status(500))

    async with lab(database_url, TEAMS, RULES) as parts, ScriptedLlm(fails) as llm:
        models = Asked([spec("openai", llm.url, "m", timeout=20.0)], limits=DispatchLimits(pauses=(300.0,)))
        async with at_work(parts.worker({"model": _engine(parts, models)}, limits=LIMITS)):
            await parts.accept.accept(submission("hello", channel="api", sender="x"))
            await asked.wait()
        await models.aclose()
        outcomes = await parts.database.rows("select outcome, error from attempt")
        assert [row["outcome"] for row in outcomes] == ["failed"]
        assert "status 500" in outcomes[0]["error"]
        assert len(llm.requests) == 1


async def test_a_message_that_alone_fails_the_model_is_a_dead_letter_saying_so(database_url: str) -> None:
    """It is tried as in an outage until others are answered meanwhile, which do not wait for anything."""
    brain = Brain()
    brain.fails, brain.on = Reply(fault=Status(500)), "poison"
    async with working(database_url, brain) as (parts, llm):
        await parts.accept.accept(submission("poison", channel="api", sender="a", event="1"))
        await eventually(lambda: _asked(llm, 4))
        assert not await all_dead_letters(parts)
        await _dead_after_others(parts)
        [dead] = await all_dead_letters(parts)
        assert "the request is at fault" in dead["reason"]
        assert "status 500" in dead["reason"]
        assert await _answered(parts, 2)
        asked, brain.on = len(llm.requests), ""
        await service_of(parts).reroute(OPERATOR, dead["dead_letter_id"], to_butler("clerk"))
        await eventually(lambda: settled(parts), within=60)
        assert len(llm.requests) == asked + 1, "who gives it to the same butler again blames it for nothing before"
        assert "could not be answered" not in llm.requests[-1].prompt, "nor is anything left out of it"
        assert len(await all_dead_letters(parts)) == 1
        await assert_balanced(parts)


async def _asked(llm: ScriptedLlm, times: int) -> bool:
    return len(llm.requests) >= times
