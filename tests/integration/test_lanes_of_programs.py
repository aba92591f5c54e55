"""Whose a turn is that a program asked for, when programs come, go and are taken for dead: no worker runs here."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest
from structlog.testing import capture_logs

from switchboard.core.channels.registry import CHANNELS
from switchboard.core.policy.rates import AcceptLimits
from switchboard.domain.ledger import LaneKey
from switchboard.journey.accept import AcceptLeg
from switchboard.journey.decide import DecideLeg
from switchboard.store.work import lanes, processes
from switchboard.store.work.embedded_turns import claim_lane
from switchboard.store.work.processes import NewProcess
from switchboard.testing.scripted_llm import Reply, ScriptedLlm, Status
from switchboard.turns import ProviderError, process_message
from tests.dead_letters import OPERATOR, service_of, to_butler
from tests.hands import a_hand, assert_balanced
from tests.integration.test_embedded_turns import a_host, stored, waits_once
from tests.lab import OWN_CLOCK, Lab, butler, lab, submission, team_of
from tests.waiting import eventually

TEAM: Final = team_of(butler("clerk", "model"))


async def a_program(parts: Lab) -> int:
    return await processes.register(parts.database, NewProcess("program", (), "host", 1, "0", 600.0))


async def ask(parts: Lab, program: int | None) -> None:
    """A message of the session `s`, whose turn this program asks for; None: one of nobody."""
    named = None if program is None else lambda: program
    decide = DecideLeg(parts.rule_book)
    limits = AcceptLimits(sender_per_minute=0)
    accept = AcceptLeg(parts.database, decide, parts.notifier, limits, CHANNELS, OWN_CLOCK, program=named)
    given = {"endpoint": "embedded:System1/clerk", "sender": "s", "thread": "s", "pinned": "System1/clerk"}
    await accept.accept(submission(channel="telegram", **given))


@pytest.mark.parametrize("left", ["by a program that is gone", "to the workers"])
async def test_a_lane_that_comes_to_a_program_stays_with_it_however_long_ready(database_url: str, left: str) -> None:
    async with lab(database_url, [TEAM], []) as parts:
        first, own, other = [await a_program(parts) for _ in range(3)]
        await ask(parts, first if left == "by a program that is gone" else None)
        lane = LaneKey(await parts.database.value("select key from lane where kind = 'turn'"))
        await parts.database.run("update lane set ready_at = ready_at - interval '1 minute' where key = $1", lane)
        for program in (own, other):
            await ask(parts, program)
        if left == "by a program that is gone":
            await parts.database.run("delete from process where process_id = $1", first)
            await lanes.tend(parts.database)
        assert await claim_lane(parts.database, other, lane) is None
        assert await claim_lane(parts.database, own, lane) is not None


async def test_a_program_that_could_not_ask_anew_asks_until_it_can(database_url: str) -> None:
    """It has registered again, since it was taken for dead; the next beat succeeds."""
    asks = "ask_anew(bigint, bigint, uuid[])"
    async with ScriptedLlm(waits_once) as llm, a_host(database_url, llm) as (parts, context):
        calls = [asyncio.create_task(process_message(context, "s1", "api", "first"))]
        await llm.waiting("first")
        calls.append(asyncio.create_task(process_message(context, "s1", "api", "second")))
        await eventually(lambda: stored(parts, 2))
        with capture_logs() as logs:

            async def failed() -> bool:
                return any(one["event"] == "turns cannot continue" for one in logs)

            await parts.database.run(f"alter function {asks} rename to elsewhere")
            await parts.database.run("delete from process")
            await eventually(failed)
        await parts.database.run(f"alter function {asks.replace('ask_anew', 'elsewhere')} rename to ask_anew")

        async def belong() -> bool:
            foreign = "select count(*) from delivery where program not in (select process_id from process)"
            waits = "select count(*) from lane where pool = 'program' and program in (select process_id from process)"
            return await parts.count(foreign) == 0 and await parts.count(waits) == 1

        await eventually(belong)
        llm.release("first")
        answers = await asyncio.gather(*calls)
        assert [(one.content, one.taken_over) for one in answers] == [("heard first", False), ("heard second", False)]
        await assert_balanced(parts)


async def test_who_asks_for_a_turn_that_workers_answered_after_a_reroute_is_told(database_url: str) -> None:
    async with (
        ScriptedLlm(lambda _: Reply(fault=Status(400))) as llm,
        a_host(database_url, llm) as (parts, context),
        a_hand(parts.database) as worker,
    ):
        with pytest.raises(ProviderError):
            await process_message(context, "s1", "api", "hello", request_id="r1")
        dead_letter = await parts.database.value("select dead_letter_id from dead_letter")
        await service_of(parts).reroute(OPERATOR, dead_letter, to_butler("clerk"))
        [item] = await worker.claim()
        await worker.answer(item, "by a worker")
        answer = await process_message(context, "s1", "api", "hello", request_id="r1")
        assert (answer.content, answer.taken_over) == ("by a worker", True)
