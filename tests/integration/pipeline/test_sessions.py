"""Sessions of the pipeline: their tokens, their calls, their log, and what a day of them costs."""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from msgspec.structs import replace

from switchboard.app.access import Access
from switchboard.core.policy.budget import Amount, BudgetRefusal, Cap, SenderCaps
from switchboard.domain.classification import Candidate
from switchboard.domain.errors import Forbidden, Unauthenticated
from switchboard.domain.llm import Bill, Reply, ToolCall, Usage
from switchboard.journey.route_call import take
from switchboard.pipeline import (
    MessagePipeline,
    ModelAttempt,
    Report,
    RoutingContext,
    RoutingTask,
    _routing_ctx_var,
    routing_context,
)
from switchboard.store.ids import new_uuid7
from switchboard.store.models import classification
from switchboard.store.models import usage as model_usage
from switchboard.store.models.classification import Reservation
from switchboard.store.models.usage import SenderAdmission
from switchboard.store.people import audit
from tests.embedding import (
    TELEGRAM,
    Model,
    by_token,
    call,
    calling,
    context,
    logged,
)
from tests.lab import Lab, spent_on, submission


async def test_what_our_server_saw_wins_over_what_the_transcript_claims(house: Lab, pool: asyncpg.Pool) -> None:
    lie = Reply(
        calls=(ToolCall("mcp__switchboard__route_to_butler", {"butler": "finance"}, {"status": "ok"}, ok=True),),
        usage=Usage(5, 6),
        model="m",
        stop_reason="end",
    )
    model = by_token(
        house, {"butler": "health", "segment": "my head"}, {"butler": "care", "segment": "hurts"}, claims=lie
    )
    known = context(candidates=[{"name": name} for name in ("health", "finance", "care")])
    result = await MessagePipeline(pool, model, "switchboard").process("my head hurts", {}, request_context=known)
    assert (result.acked_targets, result.failed_targets) == (["health", "care"], ["finance"])
    assert [one["segment"] for one in result.route_result["targets"][:2]] == ["my head", "hurts"]
    [row] = await logged(house, result)
    assert row.result["failed"][0]["kind"] == "not_recorded"


async def test_a_session_that_broke_off_after_its_call_has_routed(house: Lab, pool: asyncpg.Pool) -> None:
    called = by_token(house, {"butler": "health"})

    async def broken(task: RoutingTask) -> object:
        await called(task)
        assert await task.taken()
        raise ConnectionError("killed")

    result = await MessagePipeline(pool, broken, "switchboard").process("x", {}, request_context=context())
    assert result.acked_targets == ["health"]


async def test_what_comes_in_until_the_session_is_over_is_in_its_record(house: Lab, pool: asyncpg.Pool) -> None:
    """A call at the last moment, as a program makes it that goes on while its transcript is read already."""
    await house.database.run(
        "create function last_moment() returns trigger language plpgsql as $$ begin"
        " insert into switchboard.route_call (session_id, n, request_id, butler, reason, ok, why)"
        " values (new.session_id, 1, new.request_id, 'health', '', true, ''); return new; end $$"
    )
    await house.database.run(
        "create trigger last_moment before update of ended_at on session_token"
        " for each row execute function last_moment()"
    )
    model = Model(says=Reply(stop_reason="end", by_program=True))
    result = await MessagePipeline(pool, model, "switchboard").process("x", {}, request_context=context())
    assert (result.acked_targets, result.classification_error) == (["health"], None)


async def test_a_token_dies_with_its_session(house: Lab, pool: asyncpg.Pool) -> None:
    access, model = Access(house.database), by_token(house, {"butler": "health"})
    await MessagePipeline(pool, model, "switchboard").process("x", {}, request_context=context())
    with pytest.raises(Unauthenticated, match="ended"):
        await access.authenticate(f"Bearer {model.tasks[0].token}")

    async def broken(task: RoutingTask) -> object:
        model.tasks.append(task)
        raise RuntimeError

    await MessagePipeline(pool, broken, "switchboard").process("x", {}, request_context=context())
    with pytest.raises(Unauthenticated, match="ended"):
        await access.authenticate(f"Bearer {model.tasks[1].token}")


async def test_a_token_dies_after_minutes_or_with_its_messages_next_session(house: Lab) -> None:
    candidates = (Candidate("health"),)
    new = classification.NewSession("c", new_uuid7(), "root", candidates, timedelta(minutes=10))
    ids = [await classification.open_session(house.database, new, bytes([n])) for n in range(2)]
    assert await classification.find_session(house.database, bytes([0])) is None
    found = await classification.find_session(house.database, bytes([1]))
    assert found is not None
    assert (found.session_id, found.candidates) == (ids[1], candidates)
    with pytest.raises(Forbidden):
        await take(house.database, replace(found, session_id=ids[0]), {"butler": "health"})
    await house.database.run("update session_token set expires_at = now() - interval '1 s'")
    assert await classification.find_session(house.database, bytes([1])) is None
    with pytest.raises(Forbidden):
        await take(house.database, found, {"butler": "health"})
    assert await classification.calls_of(house.database, found.request_id, ids[1]) == []


async def test_calls_that_may_not_be_are_refused_and_on_the_audit_trail(house: Lab, pool: asyncpg.Pool) -> None:
    foreign = str(uuid4())
    tries: tuple[dict[str, Any], ...] = (
        {"butler": "ghost"},
        {"butler": ""},
        {"butler": ["health"]},
        {"butler": "health", "request_id": foreign},
        {"butler": "health", "conversation": "telegram/bot%3Ahouse/mallory"},
        {"butler": "health", "team_id": "care"},
        {"butler": "health", "session_id": foreign},
        {"butler": "health", "segment": "x" * 300_000},
    )
    result = await MessagePipeline(pool, by_token(house, *tries), "switchboard").process(
        "x", {}, request_context=context()
    )
    assert (result.acked_targets, result.target_butler) == ([], "")
    entries = await audit.list_entries(house.database, 50, action="refused:route")
    assert len(entries) == len(tries)
    assert {entry.detail["request_id"] for entry in entries} == {result.route_result["request_id"]}


async def test_a_session_cannot_call_for_ever(house: Lab, pool: asyncpg.Pool) -> None:
    async def play(task: RoutingTask) -> object:
        session = (await Access(house.database).authenticate(f"Bearer {task.token}")).session
        assert session is not None
        for _ in range(classification.MAX_CALLS):
            await take(house.database, session, {"butler": "ghost"})
        with pytest.raises(Forbidden):
            await take(house.database, session, {"butler": "health"})
        return Reply(by_program=True)

    result = await MessagePipeline(pool, play, "switchboard").process("x", {}, request_context=context())
    assert result.acked_targets == []


async def test_nobody_to_choose_from_is_told_and_logged(house: Lab, pool: asyncpg.Pool) -> None:
    model = Model()
    result = await MessagePipeline(pool, model, "switchboard").process("x", {}, request_context=context(candidates=[]))
    assert "there are no candidates" in (result.classification_error or "")
    assert model.tasks == []
    [row] = await logged(house, result)
    assert row.error == result.classification_error


async def test_the_log_has_a_row_for_every_attempt(house: Lab, pool: asyncpg.Pool) -> None:
    tried = (
        ModelAttempt("first", "unavailable", "status 500", Usage(10), micros=1000, ms=7),
        ModelAttempt("second", "cooldown", "for 3 s more"),
        ModelAttempt("third", "answered", usage=Usage(3, 4)),
    )
    answer = Reply(
        calls=(ToolCall("route_to_butler", {"butler": "health"}),), usage=Usage(3, 4), model="third", stop_reason="end"
    )
    model = Model(says=Report(answer, tried))
    result = await MessagePipeline(pool, model, "switchboard").process("x", {}, request_context=context())
    rows = await logged(house, result)
    assert [(r.n, r.model, r.error, r.tokens_in, r.tokens_out, r.cost_usd) for r in rows] == [
        (1, "first", "unavailable: status 500", 10, 0, 0.001),
        (2, "second", "cooldown: for 3 s more", 0, 0, None),
        (3, "third", None, 3, 4, None),
    ]
    assert rows[2].candidates == ("health", "finance")


async def test_in_the_log_of_what_nobody_answered_the_last_attempt_stands_last(house: Lab, pool: asyncpg.Pool) -> None:
    """And what nobody told the price of is not free."""
    tried = (ModelAttempt("first", "timeout", "late", Usage(10)), ModelAttempt("second", "cooldown", "paused for 26 s"))
    result = await MessagePipeline(pool, Model(says=Report(None, tried)), "switchboard").process(
        "x", {}, request_context=context()
    )
    assert result.classification_error == "first: timeout: late; model second paused for 26 s"
    rows = await logged(house, result)
    assert [(r.n, r.model, r.tokens_in, r.cost_usd) for r in rows] == [(1, "first", 10, None), (2, "second", 0, None)]


async def test_the_context_is_there_within_and_gone_after(pool: asyncpg.Pool) -> None:
    model = calling(call("health"))
    await MessagePipeline(pool, model, "switchboard").process("x", TELEGRAM)
    [seen] = model.contexts
    assert seen is not None
    assert (seen.source_butler, seen.source_metadata["sender_identity"]) == ("switchboard", "alice")
    assert _routing_ctx_var.get() is None


async def test_nested_routing_restores_the_outer_context(pool: asyncpg.Pool) -> None:
    inner = MessagePipeline(pool, calling(call("finance")), "inner")
    seen: list[str | None] = []

    async def hand_on(_: str, text: str, __: RoutingContext) -> object:
        await inner.process(text, TELEGRAM)
        now = routing_context()
        seen.append(None if now is None else now.source_butler)
        return {"status": "ok"}

    outer = MessagePipeline(pool, calling(call("health")), "outer", route_fn=hand_on)
    await outer.process("x", TELEGRAM)
    assert seen == ["outer"]
    assert routing_context() is None


# The account of a day -----------------------------------------------------------------------------------------------


async def test_the_account_of_a_day_is_shared_and_never_overdrawn(house: Lab) -> None:
    day, cap, hour = datetime.now(UTC).date(), Cap(tokens=100), timedelta(hours=1)
    made = await asyncio.gather(
        *(classification.reserve_day(house.database, wanted(day, 30), cap, hour) for _ in range(8))
    )
    held = [one for one in made if isinstance(one, classification.Reservation)]
    assert len(held) == 3
    assert all(one.used == 90 for one in made if isinstance(one, BudgetRefusal))
    await classification.settle_day(house.database, held[0], Bill("test", "m", Usage(8, 2), 2))
    assert await spent_on(house.database, day) == Amount(10, 2)
    assert isinstance(
        await classification.reserve_day(house.database, wanted(day, 30), cap, hour), classification.Reservation
    )
    await house.database.run("update model_reservation set until = now() - interval '1 s'")
    assert isinstance(
        await classification.reserve_day(house.database, wanted(day, 90), cap, hour), classification.Reservation
    )


# The share of a sender ----------------------------------------------------------------------------------------------


async def admitted(house: Lab, sender: str, reserved: Reservation, caps: SenderCaps) -> SenderAdmission:
    """Whether a model may be asked for a new message of this sender."""
    accepted = await house.accept.accept(submission(sender=sender, thread=str(reserved.reservation_id)))
    return await model_usage.admit(house.database, accepted.request_id, reserved, timedelta(hours=1), caps)


def wanted(day: date, tokens: int) -> Reservation:
    return Reservation(new_uuid7(), day, Amount(tokens))


async def test_concurrent_sessions_exceed_the_share_of_a_sender_by_at_most_one(house: Lab) -> None:
    day, caps = datetime.now(UTC).date(), SenderCaps(tokens=1000)
    asked = [wanted(day, 400) for _ in range(8)]
    found = await asyncio.gather(*(admitted(house, "mallory", one, caps) for one in asked))
    assert sorted(one.reached or "" for one in found) == ["", "", "", *["sender_tokens_per_day"] * 5]
    begun = [(one.flow, each) for one, each in zip(found, asked, strict=True) if one.reached is None]
    assert (await admitted(house, "anna", wanted(day, 400), caps)).reached is None
    for flow, each in begun:
        assert flow is not None
        await model_usage.settle(house.database, flow, each, 300)
    assert (await admitted(house, "mallory", wanted(day, 400), caps)).reached is None, "900 tokens are used"
    assert (await admitted(house, "mallory", wanted(day, 400), caps)).reached == "sender_tokens_per_day"
    await house.database.run("update model_reservation set until = now() - interval '1 s'")
    assert (await admitted(house, "mallory", wanted(day, 400), caps)).reached is None, "its process died"


async def test_concurrent_newcomers_exceed_their_share_by_at_most_one_session(house: Lab) -> None:
    day, caps = datetime.now(UTC).date(), SenderCaps(newcomer_tokens=100)
    found = await asyncio.gather(*(admitted(house, f"stranger {n}", wanted(day, 60), caps) for n in range(8)))
    assert sorted(one.reached or "" for one in found) == ["", "", *["newcomer_tokens_per_day"] * 6]
    stood = await model_usage.spending_of(house.database, day)
    assert (stood.held_newcomer_tokens, stood.held_tokens) == (120, 0), "the cap of the day has its own reservations"
    free = await classification.reserve_day(house.database, wanted(day, 100), Cap(100), timedelta(hours=1))
    assert isinstance(free, Reservation)


async def test_a_sender_that_was_only_refused_is_still_new_the_next_day(house: Lab) -> None:
    today, caps = datetime.now(UTC).date(), SenderCaps(newcomer_tokens=100)
    tomorrow = today + timedelta(days=1)
    for day, sender in ((today, "known"), (tomorrow, "new")):
        first = wanted(day, 100)
        found = await admitted(house, sender, first, caps)
        assert found.flow is not None
        assert found.reached is None
        await model_usage.settle(house.database, found.flow, first, 100)
        refused = await admitted(house, "stranger", wanted(day, 100), caps)
        assert refused.reached == "newcomer_tokens_per_day"
    assert (await admitted(house, "known", wanted(tomorrow, 100), caps)).reached is None
