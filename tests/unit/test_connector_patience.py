"""The wait for a switchboard that is away."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from switchboard.connectors.kernel.answers import Overtaken, Unreachable
from switchboard.connectors.kernel.health import Health
from switchboard.connectors.kernel.patience import Patience
from switchboard.testing.connectors import in_no_time


def test_it_is_asked_until_it_answers_and_heartbeats_say_why_meanwhile() -> None:
    async def checked() -> None:
        clock = asyncio.get_running_loop().time
        health, answers = Health(clock), [Unreachable("away"), Unreachable("busy", 3.0), Unreachable("away"), 7]
        asked, told = list[float](), list[tuple[str, str]]()

        async def call() -> int:
            asked.append(clock())
            told.append((health.state, health.why))
            match answers.pop(0):
                case Unreachable() as error:
                    raise error
                case answer:
                    return int(str(answer))

        health.round_trip()
        assert await Patience(health).insist(call) == 7
        pauses = [later - earlier for earlier, later in pairwise(asked)]
        assert all(pause >= least for pause, least in zip(pauses, (0.5, 3.0, 2.0), strict=True)), pauses
        assert told == [("healthy", ""), ("degraded", "away"), ("degraded", "busy"), ("degraded", "away")]
        assert (health.state, health.why) == ("healthy", "")

    in_no_time(checked())


def test_what_is_no_outage_is_not_waited_for() -> None:
    async def call() -> None:
        raise Overtaken("somebody else has it")

    async def checked() -> None:
        with pytest.raises(Overtaken):
            await Patience(Health(asyncio.get_running_loop().time)).insist(call)

    in_no_time(checked())


def test_an_answer_to_one_question_hides_no_trouble_with_others() -> None:
    async def call() -> None:
        return None

    async def checked() -> None:
        health = Health(asyncio.get_running_loop().time)
        health.trouble("switchboard", "it takes no messages")
        await Patience(health).insist(call)
        assert health.why == "it takes no messages"

    in_no_time(checked())
