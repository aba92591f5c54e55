"""A butler hands its message on: to whom it may, by which decision, and that exactly one answer comes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pytest

from switchboard.domain.planning import RouteDecision
from switchboard.domain.routing import Rule, SystemId, TeamId
from switchboard.journey.handing_on import MOST, below
from switchboard.ports.engine import Answer, Engine, HandedOn, Journal, NoReply, Refusal, Turn, TurnResult
from switchboard.store.messages.inbox import get_message
from switchboard.store.work import ledger
from switchboard.testing.scripted_llm import ScriptedLlm
from tests.hands import Scripted, all_dead_letters, assert_balanced, at_work, settled, turns
from tests.lab import ROOT, Lab, butler, lab, member, rule, submission, team_of
from tests.trios import Given, a_trio
from tests.waiting import eventually

CARE, NIGHT, CARS = TeamId("care"), TeamId("night"), TeamId("cars")
DESK, CLERK, NURSE, OWL, DRIVER = (SystemId(f"System1/{name}") for name in ("desk", "clerk", "nurse", "owl", "driver"))
TREE: Final = (
    team_of(butler("desk", "other"), member("System4/root", "other")),
    team_of(butler("clerk", "first", owners=["api:alice"]), team_id=CARE, purpose="Looks after people"),
    team_of(butler("owl", "other"), butler("nurse", "other"), team_id=NIGHT, parent=CARE, purpose="At night"),
    team_of(butler("driver", "other"), team_id=CARS),
)
RULES: Final = (rule("care"), rule(CLERK, team=CARE), rule(NURSE, team=NIGHT))


async def answers(turn: Turn, _: Journal) -> TurnResult:
    return NoReply() if turn.dead_letter is not None else Answer(f"{turn.member.name}: {turn.text}")


OTHER: Final = Scripted(answers)


async def after(parts: Lab, first: Engine, sent: Sequence[Any] = (), other: Engine = OTHER) -> Any:
    """The request id of a message to the clerk, whose engine is `first`, when all is settled."""
    *earlier, last = sent or [submission("it hurts", channel="api")]
    await parts.accept.accept_all(earlier)
    accepted = await parts.accept.accept(last)
    async with at_work(parts.worker({"first": first, "other": other})):
        await eventually(lambda: settled(parts))
    await assert_balanced(parts)
    return accepted.request_id


def handing_on(name: str) -> Scripted:
    async def play(_: Turn, __: Journal) -> TurnResult:
        return HandedOn(name, "it knows better")

    return Scripted(play)


@pytest.mark.parametrize(
    ("name", "receiver", "reasons"), [(OWL, OWL, ["handed_on"]), (NIGHT, NURSE, ["handed_on", "catch_all"])]
)
async def test_another_butler_answers_by_a_decision_that_says_who_made_it(
    database_url: str, name: str, receiver: SystemId, reasons: list[str]
) -> None:
    async with lab(database_url, TREE, RULES) as parts:
        request_id = await after(parts, handing_on(name))
        assert await parts.replies_to(request_id) == [f"{receiver.partition('/')[2]}: it hurts"]
        lanes = [(lane.split(":")[1], state) for lane, _, state, _ in await turns(parts)]
        assert lanes == [(CLERK, "declined"), (receiver, "answered")]
        _, further = await ledger.decisions_of(parts.database, request_id)
        assert [step["reason"] for step in further.trail] == reasons
        assert (further.n, further.trail[0]["team_id"]) == (2, CARE)
        assert further.trail[0]["detail"] == f"by {CLERK}: it knows better"
        why = await ledger.attempts_of(parts.database, request_id)
        assert {f"handed on to {name}"} == {one.error for one in why if one.error}


@pytest.mark.parametrize("name", [CLERK, CARE, DESK, ROOT, DRIVER, CARS, "System1/nobody", "\0"])
async def test_not_to_itself_nor_sideways_nor_upwards(database_url: str, name: str) -> None:
    async with lab(database_url, TREE, RULES) as parts:
        request_id = await after(parts, handing_on(name))
        assert await parts.replies_to(request_id) == []
        [letter] = await all_dead_letters(parts)
        assert letter["category"] == "target_unavailable"
        assert "below care" in letter["reason"]


async def test_no_rule_in_the_team_makes_a_dead_letter_of_whoever_handed_it_on(database_url: str) -> None:
    async with lab(database_url, TREE, RULES[:2]) as parts:
        await after(parts, handing_on(NIGHT))
        [letter] = await all_dead_letters(parts)
        assert (letter["category"], letter["team_id"], letter["system_id"]) == ("no_route", CARE, CLERK)
        assert letter["reason"].startswith("handed on to night: ")


async def test_a_message_that_its_receiver_refuses_is_dead_and_not_declined(database_url: str) -> None:
    async def refuses(turn: Turn, _: Journal) -> TurnResult:
        return NoReply() if turn.dead_letter is not None else Refusal("not mine")

    async with lab(database_url, TREE, RULES) as parts:
        request_id = await after(parts, handing_on(OWL), other=Scripted(refuses))
        stored = await get_message(parts.database, request_id)
        assert stored is not None
        assert stored.state == "dead"
        [letter] = await all_dead_letters(parts)
        assert (letter["category"], letter["team_id"], letter["system_id"]) == ("refused", NIGHT, OWL)


async def test_who_has_the_message_already_answers_it_once(database_url: str) -> None:
    both: Sequence[Rule] = (RULES[0], rule(CLERK, "night", team=CARE), RULES[2])
    async with lab(database_url, TREE, both) as parts:
        request_id = await after(parts, handing_on(NURSE))
        assert await parts.replies_to(request_id) == ["nurse: it hurts"]
        assert await parts.count("select count(*) from decision") == 1


async def test_many_at_once_reach_their_receivers_in_order(database_url: str) -> None:
    async with lab(database_url, TREE, RULES) as parts:
        sent = [submission(f"{n}", channel="api", sender=f"s{n % 5}") for n in range(40)]
        await after(parts, handing_on(NIGHT), sent)
        rows = await parts.database.rows(
            "select recipient, array_agg(text order by seq) as said from outbox group by 1"
        )
        assert {row["recipient"]: row["said"] for row in rows} == {
            f"s{i}": [f"nurse: {n}" for n in range(i, 40, 5)] for i in range(5)
        }


async def test_whom_a_turn_is_offered(database_url: str) -> None:
    many = tuple(butler(f"b{n}", team=CARS) for n in range(MOST))
    tree = (*TREE[:3], team_of(*TREE[3].members, *many, team_id=CARS), team_of(team_id="empty"))
    async with lab(database_url, tree, RULES) as parts:
        rules = parts.rule_book.rules
        assert below(rules, {}, CARE) == {NIGHT: "At night", OWL: "", NURSE: ""}
        assert below(rules, {}, NIGHT) == {}
        assert list(below(rules, {}, ROOT))[:4] == [CARE, CARS, CLERK, "System1/b0"]
        assert len(below(rules, {}, ROOT)) == MOST
        seen: list[object] = []

        async def play(turn: Turn, _: Journal) -> TurnResult:
            seen.append(turn.below())
            return NoReply()

        await after(parts, Scripted(play))
        assert seen == [below(rules, {}, CARE)]


async def test_the_router_of_a_plan_hands_a_message_on(database_url: str) -> None:
    planner = Given(RouteDecision("subagent", OWL))
    async with lab(database_url, TREE, RULES) as parts, ScriptedLlm([]) as llm, a_trio(llm, planner) as (engine, _):
        request_id = await after(parts, engine, [submission("it hurts", channel="api", sender="alice")])
        assert await parts.replies_to(request_id) == ["owl: it hurts"]
        [question] = planner.asked
        assert question.menu.subagents == {NIGHT: "At night", OWL: "", NURSE: ""}
        _, further = await ledger.decisions_of(parts.database, request_id)
        assert further.trail[0]["detail"] == f"by {CLERK}: its router decided so"
        assert await parts.count("select count(*) from entry where role = 'assistant'") == 0
