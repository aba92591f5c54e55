"""Each end that a turn can come to, through a worker: limits of the turn and of the day, and what a model ends by."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from switchboard.agents.model.engine import ModelEngine
from switchboard.app.metrics import Metrics
from switchboard.app.models.dispatcher import open_models
from switchboard.app.models.process import ProcessModels
from switchboard.app.settings import Settings
from switchboard.core.policy.budget import Amount, SenderCaps
from switchboard.core.policy.retry import OutagePolicy
from switchboard.core.turns.loop import CUT_OFF, DAY_SPENT, EMPTY
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.llm import ChatMessage, Request
from switchboard.domain.message import RequestId
from switchboard.journey.turn import TurnLimits
from switchboard.ports.engine import EngineContext
from switchboard.ports.models import Asking
from switchboard.ports.tools import Tool, ToolOutcome, ToolScope
from switchboard.store.ids import new_uuid7
from switchboard.store.models import usage as model_usage
from switchboard.store.models.classification import Reservation
from switchboard.store.work import ledger
from switchboard.testing.scripted_llm import Call, Reply, ScriptedLlm, Status, Usage
from tests.engines import Book
from tests.hands import assert_balanced, at_work, settled
from tests.lab import Lab, butler, lab, rule, submission, team_of
from tests.turning import OWNER, NoMemos, Noting
from tests.waiting import eventually

LIMITS = TurnLimits(3, 30, 0.02, 0.05, outage=OutagePolicy(least=0.05, most=0.1, told=60.0, given_up=60.0))
LOOK = Reply(calls=(Call("look"),), usage=Usage(60, 40))
TWICE = Reply(calls=(Call("look", {"text": "a"}), Call("look", {"text": "b"})))


@asynccontextmanager
async def clerk(
    database_url: str, llm: ScriptedLlm, tool: Tool, *, limits: JsonMapping | None = None, **settings: Any
) -> AsyncIterator[Lab]:
    """A worker with one butler, over models of the settings as a worker opens them."""
    team = team_of(butler("clerk", "model", owners=OWNER, limits=limits or {}))
    prices = {"price_in": 1000.0, "price_out": 1000.0}
    model = {"name": "m", "kind": "openai", "model": "m", "base_url": f"{llm.url}/v1", **prices}
    async with lab(database_url, [team], [rule("System1/clerk")]) as parts:
        models = ProcessModels(Settings.model_validate({"models": [model], **settings}), parts.database)
        engine = ModelEngine(EngineContext(NoMemos(), Book(), models=models, workspaces=Path("/nonexistent")), [tool])
        try:
            async with at_work(parts.worker({"model": engine}, limits=LIMITS)):
                yield parts
        finally:
            await models.aclose()


async def accept(parts: Lab, text: str = "hello", *, sender: str = "x", thread: str | None = None) -> RequestId:
    told = submission(text, channel="api", sender=sender, event=text, thread=thread)
    return (await parts.accept.accept(told)).request_id


async def ended(parts: Lab, request_id: RequestId) -> tuple[str, str]:
    """The reply to a message, and why its turn ended."""
    await eventually(lambda: settled(parts), within=60)
    await assert_balanced(parts)
    [text] = await parts.replies_to(request_id)
    return text, await why_ended(parts, request_id)


async def why_ended(parts: Lab, request_id: RequestId) -> str:
    query = "select coalesce(max(stop_reason), 'end') from attempt where request_id = $1"
    return str(await parts.database.value(query, request_id))


def changing() -> Noting:
    """A tool with another result at each call, so that no call is a repetition."""

    async def act(_: JsonMapping, __: ToolScope) -> ToolOutcome:
        return ToolOutcome(str(len(tool.calls)))

    tool = Noting("look", act=act)
    return tool


@pytest.mark.parametrize("last", [Reply("So far, nothing."), Reply(fault=Status(400))], ids=["answers", "fails"])
@pytest.mark.parametrize(
    ("limits", "reason", "calls"),
    [
        ({}, "limit:requests", 24),
        ({"requests": 3}, "limit:requests", 2),
        ({"tool_calls": 2}, "limit:tool_calls", 2),
        ({"tokens": 150}, "limit:tokens", 2),
        ({"cost": 0.15}, "limit:money", 2),
        ({"seconds": 1e-6}, "limit:time", 1),
    ],
    ids=str,
)
async def test_at_a_limit_there_is_one_last_request_without_calls(
    database_url: str, limits: JsonMapping, reason: str, calls: int, last: Reply
) -> None:
    tool = changing()
    async with (
        ScriptedLlm([LOOK] * calls + [last]) as llm,
        clerk(database_url, llm, tool, limits=limits) as parts,
    ):
        text, stop_reason = await ended(parts, await accept(parts))
        assert (stop_reason, len(tool.calls), llm.left) == (reason, calls, 0)
        assert llm.requests[-1].body["tool_choice"] == "none"
    assert text == "So far, nothing." if last.text else text.startswith("I have stopped here: ")


async def test_after_forty_calls_the_others_are_said_not_to_be_carried_out(database_url: str) -> None:
    tool = changing()
    async with ScriptedLlm([*[TWICE] * 19, Reply(calls=TWICE.calls * 2), Reply("Enough.")]) as llm:
        async with clerk(database_url, llm, tool) as parts:
            assert await ended(parts, await accept(parts)) == ("Enough.", "limit:tool_calls")
        results = [result.text for result in llm.requests[-1].results][-4:]
    assert len(tool.calls) == 40
    assert results[:2] == ["39", "40"]
    assert all(result.startswith("not carried out") for result in results[2:])


@pytest.mark.parametrize(
    "replies", [[LOOK] * 3, [LOOK, Reply(calls=(Call("look", {"text": "b"}),))] * 2], ids=["A-A-A", "A-B-A-B"]
)
async def test_calls_that_lead_nowhere_are_a_limit(database_url: str, replies: Sequence[Reply]) -> None:
    tool = Noting("look")
    async with ScriptedLlm([*replies, Reply("I give up.")]) as llm, clerk(database_url, llm, tool) as parts:
        assert await ended(parts, await accept(parts)) == ("I give up.", "limit:repeats")
    assert len(tool.calls) == len(replies)


async def test_calls_that_were_cut_off_never_run_and_the_model_is_told(database_url: str) -> None:
    tool = Noting("look")
    replies = [Reply(calls=LOOK.calls, finish="length"), Reply("Briefly: yes.", finish="length")]
    async with ScriptedLlm(replies) as llm, clerk(database_url, llm, tool) as parts:
        assert await ended(parts, await accept(parts)) == ("Briefly: yes.", "length")
        assert llm.requests[1].prompt.endswith(CUT_OFF)
    assert tool.calls == []


@pytest.mark.parametrize("then", [Reply("Here."), Reply("")], ids=["answer", "empty again"])
async def test_an_empty_reply_is_asked_for_once_more(database_url: str, then: Reply) -> None:
    async with ScriptedLlm([Reply(""), then]) as llm, clerk(database_url, llm, Noting("look")) as parts:
        text, stop_reason = await ended(parts, await accept(parts))
    assert (text, stop_reason) == (("Here.", "end") if then.text else (EMPTY, "error"))


async def test_a_refusal_is_the_end(database_url: str) -> None:
    async with ScriptedLlm([Reply("", finish="filter")]) as llm, clerk(database_url, llm, Noting("look")) as parts:
        request_id = await accept(parts)
        await eventually(lambda: settled(parts), within=60)
        assert await why_ended(parts, request_id) == "refused"
        await assert_balanced(parts)


async def test_what_was_read_from_caches_and_written_into_them_is_on_record(database_url: str) -> None:
    replies = [Reply(calls=LOOK.calls, usage=Usage(100, 5, 0, 80)), Reply("Done.", usage=Usage(150, 5, 80, 40))]
    async with ScriptedLlm(replies) as llm, clerk(database_url, llm, Noting("look")) as parts:
        request_id = await accept(parts)
        await ended(parts, request_id)
        [attempt] = await ledger.attempts_of(parts.database, request_id)
        [used] = attempt.usage or []
        assert (used["tokens_in"], used["tokens_cache_read"], used["tokens_cache_write"]) == (250, 80, 120)
        [model] = await model_usage.models_of(parts.database, datetime.now(UTC).date())
        assert (model.attempts, model.cache_read, model.cache_write) == (2, 80, 120)
        metrics = (await Metrics().render(parts.database)).decode()
        assert 'switchboard_model_cache_tokens_today{way="read"} 80.0' in metrics
        assert 'switchboard_model_cache_tokens_today{way="write"} 120.0' in metrics


# A day ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spending", [{"tokens_per_day": 10**6}, {"tokens_per_day": 0, "cost_per_day": 1000.0}], ids=["tokens", "money"]
)
async def test_a_turn_ends_where_the_day_is_spent_and_so_does_all_else_that_asks(
    database_url: str, spending: JsonMapping
) -> None:
    spent = "insert into model_day (day, tokens, micros) values ((now() at time zone 'UTC')::date, 1000000, 1000000000)"
    spent += " on conflict (day) do update set tokens = excluded.tokens, micros = excluded.micros"

    async def spend(_: JsonMapping, __: ToolScope) -> ToolOutcome:
        await parts.database.run(spent)
        return ToolOutcome("bought")

    async with (
        ScriptedLlm([LOOK, Reply("A new day.")]) as llm,
        clerk(database_url, llm, Noting("look", act=spend), spending=spending) as parts,
    ):
        assert await ended(parts, await accept(parts)) == (DAY_SPENT, "limit:money")
        assert await ended(parts, await accept(parts, "more")) == (DAY_SPENT, "limit:money")
        assert len(llm.requests) == 1
        await parts.database.run("delete from model_day")
        assert await ended(parts, await accept(parts, "later")) == ("A new day.", "end")


async def test_a_turn_waits_for_what_running_requests_have_reserved(database_url: str) -> None:
    reserve = """insert into model_reservation (reservation_id, day, tokens, until)
        values (gen_random_uuid(), (now() at time zone 'UTC')::date, 999000, now() + interval '1 minute')"""
    async with (
        ScriptedLlm([Reply("There is room.")]) as llm,
        clerk(database_url, llm, Noting("look"), spending={"tokens_per_day": 1_000_000}) as parts,
    ):
        await parts.database.run(reserve)
        request_id = await accept(parts)

        async def refused() -> bool:
            return bool(await parts.database.value("select refused > 1 from model_day"))

        await eventually(refused, within=30)
        await parts.database.run("delete from model_reservation")
        assert await ended(parts, request_id) == ("There is room.", "end")


async def test_a_sender_uses_up_their_own_share_of_the_day_and_nobody_elses(database_url: str) -> None:
    replies = [Reply("Yes.", usage=Usage(5_000, 1_000)), Reply("Hello, Anna.")]
    async with (
        ScriptedLlm([*replies, Reply("At your service.", usage=Usage(50_000, 1)), Reply("Again.")]) as llm,
        clerk(database_url, llm, Noting("look"), turn={"sender_tokens_per_day": 7_000}) as parts,
    ):
        assert await ended(parts, await accept(parts, "dig", sender="mallory")) == ("Yes.", "end")
        for text in ("dig", "deeper"):
            refused = await accept(parts, f"{text} again", sender="mallory")
            assert await ended(parts, refused) == (DAY_SPENT, "limit:money")
        assert await ended(parts, await accept(parts, "hi", sender="anna")) == ("Hello, Anna.", "end")
        assert len(llm.requests) == 2
        for text, reply in zip(("dear owner", "and again"), ("At your service.", "Again."), strict=True):
            assert await ended(parts, await accept(parts, text)) == (reply, "end"), "who owns the butler has no limit"
        stood = await model_usage.spending_of(parts.database, datetime.now(UTC).date())
        assert (stood.senders_refused, stood.refused) == (2, 0)


async def test_a_turn_waits_for_what_other_requests_of_its_sender_have_reserved(database_url: str) -> None:
    held = Reply("First.", gate="held", usage=Usage(100, 10))
    async with (
        ScriptedLlm([held, Reply("Second.")]) as llm,
        clerk(database_url, llm, Noting("look"), turn={"sender_tokens_per_day": 1_500}) as parts,
    ):
        first = await accept(parts, "one", sender="mallory", thread="a")
        await llm.waiting("held")
        second = await accept(parts, "two", sender="mallory", thread="b")

        async def refused() -> bool:
            return bool(await parts.database.value("select senders_refused > 1 from model_day"))

        await eventually(refused, within=30)
        llm.release("held")
        await eventually(lambda: settled(parts), within=60)
        assert [await parts.replies_to(one) for one in (first, second)] == [["First."], ["Second."]]
        assert await parts.database.value("select count(*) from model_reservation") == 0


async def test_turns_do_not_use_up_what_classification_may_use_for_a_sender(database_url: str) -> None:
    day, hour, caps = datetime.now(UTC).date(), timedelta(hours=1), SenderCaps(tokens=10)
    async with (
        ScriptedLlm([Reply("Yes.", usage=Usage(5_000, 1_000))]) as llm,
        clerk(database_url, llm, Noting("look")) as parts,
    ):
        request_id = await accept(parts, sender="mallory")
        await ended(parts, request_id)
        assert await parts.database.value("select turn_tokens from model_flow") == 6_000
        wanted = Reservation(new_uuid7(), day, Amount(10))
        found = await model_usage.admit(parts.database, request_id, wanted, hour, caps)
        assert found.reached is None


async def test_compaction_keeps_within_the_day_too(database_url: str) -> None:
    model = {"name": "m", "kind": "openai", "model": "m", "base_url": "http://127.0.0.1:9/v1"}
    settings = Settings.model_validate({"models": [model], "spending": {"tokens_per_day": 10}})
    async with lab(database_url) as parts:
        models = open_models(settings, parts.database)
        try:
            report = await models.ask(Request((ChatMessage("user", "sum up"),)), Asking(("m",), "compaction"))
        finally:
            await models.aclose()
    assert report.spent_up
