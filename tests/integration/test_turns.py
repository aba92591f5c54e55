"""Turns: whatever an engine does, the message ends in exactly one of the ways that are promised."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import astuple, replace

from switchboard.domain.routing import Member, Rule, Team
from switchboard.journey.turn import TurnLimits
from switchboard.ports.engine import (
    Answer,
    Engine,
    EngineFailure,
    Journal,
    ModelUsage,
    NoReply,
    Refusal,
    Turn,
    TurnResult,
)
from switchboard.store.messages.inbox import get_message
from switchboard.store.rules import teams
from switchboard.store.work import ledger
from tests.hands import Scripted, all_dead_letters, assert_balanced, at_work, settled, turns
from tests.lab import DEFAULT_RULES, Lab, butler, lab, member, rule, submission, team_of
from tests.waiting import eventually

LIMITS = TurnLimits(attempts=3, timeout=10, backoff_base=0.02, backoff_cap=0.05)
SYSTEM4 = member("System4/root", "scout")


class Scout:
    """The engine of System4: remembers what it was told."""

    def __init__(self, result: TurnResult | Exception | None = None) -> None:
        self.result = result or NoReply()
        self.told: list[Turn] = []

    async def run(self, turn: Turn, _: Journal) -> TurnResult:
        self.told.append(turn)
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


def team(*members: Member) -> list[Team]:
    return [team_of(*members, SYSTEM4)]


async def run_one(parts: Lab, scout: Scout, result: TurnResult | Exception, **more: Any) -> dict[str, Any]:
    """One message to System1/echo, whose engine gives `result`; the message's delivery."""

    async def play(_: Turn, __: Journal) -> TurnResult:
        if isinstance(result, Exception):
            raise result
        return result

    accepted = await parts.accept.accept(submission("x", channel="api"))
    engines: dict[str, Engine] = {"echo": Scripted(play), "scout": scout}
    async with at_work(parts.worker(engines, **{"limits": LIMITS, **more})):
        await eventually(lambda: settled(parts))
    [row] = await parts.database.rows("select * from delivery where request_id = $1", accepted.request_id)
    await assert_balanced(parts)
    stored = await get_message(parts.database, accepted.request_id)
    assert stored is not None
    assert stored.state == row["state"]
    return dict(row)


async def test_an_answer_is_a_reply_in_the_outbox(database_url: str) -> None:
    scout = Scout()
    async with lab(database_url, team(butler("echo"))) as parts:
        delivery = await run_one(parts, scout, Answer("hello yourself"))
        assert (delivery["state"], delivery["error_class"]) == ("answered", None)
        assert await parts.replies_to(delivery["request_id"]) == ["hello yourself"]
        assert scout.told == []


async def test_no_reply_is_declined_without_a_reply_or_a_dead_letter(database_url: str) -> None:
    async with lab(database_url, team(butler("echo"))) as parts:
        delivery = await run_one(parts, Scout(), NoReply("spam"))
        assert delivery["state"] == "declined"
        assert await parts.replies_to(delivery["request_id"]) == []
        assert await all_dead_letters(parts) == []
        assert await parts.count("select count(*) from attempt where error = 'spam'") == 1


@pytest.mark.parametrize("kind", [lambda **more: Answer("cut", **more), NoReply, lambda **more: Refusal("no", **more)])
async def test_the_models_a_turn_used_and_why_it_stopped_are_kept_per_attempt(
    database_url: str, kind: Callable[..., TurnResult]
) -> None:
    usage = (ModelUsage("large", 812, 24, 100, 50, 0.0031), ModelUsage("small\0", 5))
    async with lab(database_url, team(butler("echo"))) as parts:
        delivery = await run_one(parts, Scout(), kind(stop_reason="limit:tokens", usage=usage))
        [attempt] = await ledger.attempts_of(parts.database, delivery["request_id"])
        assert attempt.stop_reason == "limit:tokens"
        shown = ("model", "tokens_in", "tokens_out", "tokens_cache_read", "tokens_cache_write", "cost_usd")
        assert attempt.usage == [dict(zip(shown, astuple(one), strict=True)) for one in usage]


async def test_an_engine_that_asks_no_model_leaves_no_usage(database_url: str) -> None:
    async with lab(database_url, team(butler("echo"))) as parts:
        delivery = await run_one(parts, Scout(), Answer("plain"))
        [attempt] = await ledger.attempts_of(parts.database, delivery["request_id"])
        assert (attempt.stop_reason, attempt.usage) == (None, None)


async def test_a_refusal_is_a_dead_letter_told_to_system4_as_a_turn(database_url: str) -> None:
    scout = Scout()
    async with lab(database_url, team(butler("echo"))) as parts:
        delivery = await run_one(parts, scout, Refusal("not mine"))
        assert (delivery["state"], delivery["error_class"]) == ("dead", "refused")
        [dead] = await all_dead_letters(parts)
        assert (dead["category"], dead["reason"], dead["handler"]) == ("refused", "not mine", "System4/root")
        [told] = scout.told
        assert told.member.system_id == "System4/root"
        assert told.text == "x"
        assert told.dead_letter == {
            "dead_letter_id": str(dead["dead_letter_id"]),
            "team_id": "root",
            "category": "refused",
            "reason": "not mine",
            "system_id": "System1/echo",
        }
        assert await parts.count("select count(*) from notice where state = 'delivered'") == 1


async def test_system4_may_answer_a_notice_but_nobody_gets_that_as_a_reply(database_url: str) -> None:
    async with lab(database_url, team(butler("echo"))) as parts:
        delivery = await run_one(parts, Scout(Answer("I see")), Refusal("not mine"))
        assert await parts.replies_to(delivery["request_id"]) == []
        assert await parts.count("select count(*) from notice where state = 'delivered'") == 1


@pytest.mark.parametrize(
    "result",
    [
        Refusal("nor mine"),
        EngineFailure("broken"),
        EngineFailure("broken", retryable=False),
        EngineFailure("slow", error_class="timeout"),
    ],
)
async def test_a_system4_that_cannot_take_the_notice_ends_it_without_a_loop(
    database_url: str, result: TurnResult | Exception
) -> None:
    scout = Scout(result)
    async with lab(database_url, team(butler("echo"))) as parts:
        await run_one(parts, scout, Refusal("not mine"))
        assert len(scout.told) <= LIMITS.attempts
        assert len(await all_dead_letters(parts)) == 1
        assert await parts.count("select count(*) from notice") == 1
        assert await parts.count("select count(*) from notice where state = 'failed' and error_class is not null") == 1


async def test_a_system4_with_a_defect_ends_its_notice_too(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("switchboard.lanes.worker._PAUSE_AFTER_DEFECT", 0.02)
    scout = Scout(ZeroDivisionError("a defect"))
    async with lab(database_url, team(butler("echo"))) as parts:
        await run_one(parts, scout, Refusal("not mine"))
        assert len(scout.told) == LIMITS.attempts
        assert len(await all_dead_letters(parts)) == 1
        assert await parts.count("select count(*) from notice where state = 'failed'") == 1


async def test_a_system4_without_an_installed_engine_ends_its_notice_at_once(database_url: str) -> None:
    members = (butler("echo"), replace(SYSTEM4, engine="not installed"))
    async with lab(database_url, [team_of(*members)]) as parts:
        await run_one(parts, Scout(), Refusal("no"))
        assert await parts.count("select count(*) from notice where error_class = 'target_unavailable'") == 1


async def test_a_turn_that_takes_too_long_is_cut_off_and_tried_again(database_url: str) -> None:
    cut_off = 0

    async def play(turn: Turn, _: Journal) -> TurnResult:
        nonlocal cut_off
        if turn.attempt < 3:
            try:
                await asyncio.Event().wait()
            finally:
                cut_off += 1
        return Answer("at last")

    async with lab(database_url, team(butler("echo"))) as parts:
        accepted = await parts.accept.accept(submission("x", channel="api"))
        limits = replace(LIMITS, timeout=0.1)
        async with at_work(parts.worker({"echo": Scripted(play)}, limits=limits)):
            await eventually(lambda: settled(parts))
        assert cut_off == 2
        assert [t[2:] for t in await turns(parts)] == [("failed", "timeout")] * 2 + [("answered", None)]
        assert await parts.replies_to(accepted.request_id) == ["at last"]
        await assert_balanced(parts)


async def test_a_failure_that_no_retry_helps_ends_at_once(database_url: str) -> None:
    async with lab(database_url, team(butler("echo"))) as parts:
        failure = EngineFailure("no such model", error_class="validation", retryable=False)
        delivery = await run_one(parts, Scout(), failure)
        assert (delivery["state"], delivery["error_class"]) == ("dead", "validation")
        [dead] = await all_dead_letters(parts)
        assert (dead["category"], dead["reason"]) == ("target_unavailable", "no such model")
        assert Counter(t[2] for t in await turns(parts) if t[0].startswith("turn:")) == {"failed": 1}


async def test_a_butler_whose_engine_is_not_installed_gives_a_dead_letter(database_url: str) -> None:
    async with lab(database_url, team(butler("echo", engine="nobody has this"))) as parts:
        delivery = await run_one(parts, Scout(), Answer("never"))
        assert delivery["state"] == "dead"
        [dead] = await all_dead_letters(parts)
        assert dead["category"] == "target_unavailable"
        assert "nobody has this" in dead["reason"]


async def test_a_butler_that_has_left_meanwhile_gives_a_dead_letter(database_url: str) -> None:
    async with lab(database_url, team(butler("echo"), butler("other"))) as parts:
        await parts.accept.accept(submission("x", channel="api"))
        await parts.database.run("delete from member where system_id = 'System1/echo'")
        await parts.database.run("insert into rule_set (version, author, reason) values (99, 'test', 'gone')")
        assert await parts.rule_book.refresh()
        async with at_work(parts.worker({"scout": Scout()})):
            await eventually(lambda: settled(parts))
        [dead] = await all_dead_letters(parts)
        assert dead["category"] == "target_unavailable"
        assert "no longer a member" in dead["reason"]
        await assert_balanced(parts)


async def _unroutable(url: str, rules: Sequence[Rule], members: Sequence[Team], scout: Scout) -> list[dict[str, Any]]:
    async with lab(url, members, rules) as parts:
        await parts.accept.accept(submission("hello", channel="api"))
        async with at_work(parts.worker({"scout": scout})):
            await eventually(lambda: settled(parts))
        await assert_balanced(parts)
        assert await parts.count("select count(*) from delivery") == 0
        assert await parts.count("select count(*) from lane where state <> 'idle'") == 0
        return await all_dead_letters(parts)


async def test_what_nobody_can_take_is_a_dead_letter_that_system4_is_told_of(database_url: str) -> None:
    scout = Scout()
    rules = [rule("System1/echo", channel="telegram")]
    [dead] = await _unroutable(database_url, rules, team(butler("echo")), scout)
    assert (dead["category"], dead["handler"], dead["lane"]) == ("no_route", "System4/root", None)
    [told] = scout.told
    assert told.dead_letter is not None
    assert told.dead_letter["category"] == "no_route"
    assert told.dead_letter["system_id"] is None


async def test_what_nobody_can_take_is_kept_even_in_a_tree_without_system4(database_url: str) -> None:
    [dead] = await _unroutable(database_url, [], [team_of(butler("echo"))], Scout())
    assert (dead["category"], dead["handler"]) == ("no_route", None)


async def test_the_notices_of_one_conversation_are_told_in_order(database_url: str) -> None:
    scout = Scout()
    async with lab(database_url, team(butler("echo")), []) as parts:
        for n in range(8):
            await parts.accept.accept(submission(str(n), channel="api"))
        async with at_work(parts.worker({"scout": scout})):
            await eventually(lambda: settled(parts))
        assert [t.text for t in scout.told] == [str(n) for n in range(8)]
        assert [t[1:3] for t in await turns(parts)] == [(n, "declined") for n in range(1, 9)]
        await assert_balanced(parts)


async def test_a_reply_goes_to_where_its_message_came_from_and_nowhere_else(database_url: str) -> None:
    async with lab(database_url, team(butler("echo")), DEFAULT_RULES) as parts:
        for n in range(6):
            given = submission(
                f"text {n}", sender=f"user{n}", thread=f"thread{n}" if n % 2 else None, endpoint=f"bot{n}"
            )
            await parts.accept.accept(given)
        async with at_work(parts.worker()):
            await eventually(lambda: settled(parts))
        rows = await parts.database.rows(
            "select o.text, o.recipient, o.endpoint, o.thread, o.reply_to,"
            " m.envelope #>> '{event,external_event_id}' as e"
            " from outbox o join message_inbox m using (request_id)"
        )
        assert len(rows) == 6
        for row in rows:
            n = row["text"].removeprefix("text ")
            assert (row["recipient"], row["endpoint"]) == (f"user{n}", f"bot{n}")
            assert row["thread"] == (f"thread{n}" if int(n) % 2 else None)
            assert row["reply_to"] == row["e"]


async def test_new_members_take_effect_for_the_next_turn(database_url: str) -> None:
    async with lab(database_url, team(butler("echo"))) as parts:
        assert await teams.seed(parts.database, team(butler("echo", engine="other")), [], author="t", reason="r")
        assert await parts.rule_book.refresh()
        assert not await parts.rule_book.refresh()
        accepted = await parts.accept.accept(submission("x", channel="api"))
        async with at_work(parts.worker({"other": Scripted(_other)})):
            await eventually(lambda: settled(parts))
        assert await parts.replies_to(accepted.request_id) == ["other"]


async def _other(_: Turn, __: Journal) -> TurnResult:
    return Answer("other")
