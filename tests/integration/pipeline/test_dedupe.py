"""A message of a key is routed once, by the pipeline or by the inbox."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID

import asyncpg

from switchboard.app.ops.maintenance import Retention
from switchboard.pipeline import (
    MessagePipeline,
    RoutingContext,
    RoutingResult,
    RoutingTask,
)
from switchboard.store.books import audit_books
from switchboard.store.ids import IdSequence
from switchboard.store.models.classification import claim_key
from tests.embedding import (
    HEALTH,
    TELEGRAM,
    Model,
    call,
    calling,
)
from tests.lab import Lab, submission


async def test_a_key_counts_once_where_dedupe_is_enabled(pool: asyncpg.Pool) -> None:
    model = calling(call("health"))
    pipeline = MessagePipeline(pool, model, "switchboard", enable_ingress_dedupe=True)
    args = {**TELEGRAM, "idempotency_key": "k" * 500}
    first = await pipeline.process("hello", args)
    again = await pipeline.process("hello again", args)
    assert again == RoutingResult("", {"status": "duplicate", "request_id": first.route_result["request_id"]})
    assert len(model.tasks) == 1
    others = [{**args, "idempotency_key": "l"}, {**args, "source_endpoint_identity": "bot:other"}, TELEGRAM, TELEGRAM]
    for other in others:
        assert (await pipeline.process("hello", other)).acked_targets == [HEALTH]
    without = MessagePipeline(pool, model, "switchboard")
    assert (await without.process("hello", args)).acked_targets == [HEALTH]


async def test_a_message_that_came_to_nothing_may_come_again(pool: asyncpg.Pool) -> None:
    model = Model(says="I cannot say.")
    pipeline = MessagePipeline(pool, model, "switchboard", enable_ingress_dedupe=True)
    args = {**TELEGRAM, "idempotency_key": "k"}
    assert (await pipeline.process("hello", args)).target_butler == ""
    model.says = {"tool_calls": [call("health")]}
    assert (await pipeline.process("hello", args)).acked_targets == [HEALTH]


async def test_a_key_whose_process_died_is_taken_over(house: Lab, pool: asyncpg.Pool) -> None:
    pipeline = MessagePipeline(pool, calling(call("health")), "switchboard", enable_ingress_dedupe=True)
    key = (await house.database.keys()).event("telegram", "bot:house", "idem:k")
    assert await claim_key(house.database, key, ago(hours=1)) is None
    args = {**TELEGRAM, "idempotency_key": "k"}
    assert (await pipeline.process("hello", args)).acked_targets == [HEALTH]
    assert (await pipeline.process("hello", args)).route_result["status"] == "duplicate"


async def test_a_key_whose_message_is_under_way_is_taken(pool: asyncpg.Pool) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def play(_: RoutingTask) -> object:
        begun.set()
        await go.wait()
        return {"tool_calls": [call("health")]}

    pipeline = MessagePipeline(pool, Model(play), "switchboard", enable_ingress_dedupe=True)
    args = {**TELEGRAM, "idempotency_key": "k"}
    first = asyncio.create_task(pipeline.process("hello", args))
    await begun.wait()
    try:
        async with asyncio.timeout(20):
            assert (await pipeline.process("hello", args)).route_result["status"] == "duplicate"
    finally:
        go.set()
    assert (await first).acked_targets == [HEALTH]


async def test_a_key_handed_on_is_known_to_the_inbox_until_the_log_is_forgotten(house: Lab, pool: asyncpg.Pool) -> None:
    model = calling(call("health"))
    pipeline = MessagePipeline(pool, model, "switchboard", route_fn=takes, enable_ingress_dedupe=True)
    args = {**TELEGRAM, "external_event_id": "17"}
    first = await pipeline.process("hello", args)
    assert (first.acked_targets, await house.count("select count(*) from message_inbox")) == ([HEALTH], 0)
    assert (await pipeline.process("hello", args)).route_result["status"] == "duplicate"
    accepted = await house.accept.accept(submission("hello", event="17"))
    assert (accepted.duplicate, str(accepted.request_id)) == (True, first.route_result["request_id"])
    assert (await audit_books(house.database)).problems == ()

    await aged(house, hours=20)
    await Retention(house.database).classifications(1)
    assert (await pipeline.process("hello", args)).route_result["status"] == "duplicate"
    await aged(house, hours=25)
    await Retention(house.database).classifications(1)
    assert not (await house.accept.accept(submission("hello", event="17"))).duplicate
    assert (await pipeline.process("hello", args)).route_result["status"] == "duplicate"


async def test_inbox_and_pipeline_know_each_others_messages_as_duplicates(house: Lab, pool: asyncpg.Pool) -> None:
    model = calling(call("health"))
    pipeline = MessagePipeline(pool, model, "switchboard", enable_ingress_dedupe=True)
    accepted = await house.accept.accept(submission("hello", event="17"))
    again = await pipeline.process("hello", {**TELEGRAM, "external_event_id": 17, "external_thread_id": "t"})
    assert again == RoutingResult("", {"status": "duplicate", "request_id": str(accepted.request_id)})
    assert model.tasks == []
    first = await pipeline.process("hello", {**TELEGRAM, "external_event_id": 18})
    accepted = await house.accept.accept(submission("hello", event="18"))
    assert (accepted.duplicate, str(accepted.request_id)) == (True, first.route_result["request_id"])
    assert await house.count("select count(*) from pipeline_key") == 0


async def test_a_message_reaching_the_inbox_while_the_model_thinks_is_sent_once(house: Lab, pool: asyncpg.Pool) -> None:
    async def play(_: RoutingTask) -> object:
        await house.accept.accept(submission("hello", event="17"))
        return [call("health")]

    pipeline = MessagePipeline(pool, Model(play), "switchboard", enable_ingress_dedupe=True)
    result = await pipeline.process("hello", {**TELEGRAM, "external_event_id": "17"})
    assert result.route_result["status"] == "duplicate"
    assert await house.count("select count(*) from message_inbox") == 1
    assert await house.count("select count(*) from delivery") == 0


async def test_a_mail_with_the_id_of_another_is_not_swallowed(house: Lab, pool: asyncpg.Pool) -> None:
    pipeline = MessagePipeline(pool, calling(call("health")), "switchboard", enable_ingress_dedupe=True)
    mail = {"source_channel": "email", "source_endpoint_identity": "house@example.org", "external_event_id": "<1@x>"}
    stranger, friend = {**mail, "sender_identity": "eve@x.example"}, {**mail, "sender_identity": "ann@y.example"}
    said = [await pipeline.process("hello", one) for one in (stranger, friend, friend)]
    assert [one.route_result["status"] for one in said] == ["routed", "routed", "duplicate"]
    assert await house.count("select count(*) from message_inbox") == 2


async def takes(_butler: str, _text: str, _: RoutingContext) -> object:
    return {"status": "ok"}


def ago(hours: float) -> UUID:
    """An id that was made so long ago."""
    return IdSequence().next(1, (datetime.now(UTC) - timedelta(hours=hours)).timestamp())[0]


async def aged(house: Lab, hours: float) -> None:
    """As if everything that was handed on had been so long ago."""
    then = ago(hours)
    await house.database.run("update dedupe set request_id = $1", then)
    await house.database.run("update pipeline_key set request_id = $1", then)
    await house.database.run("update classification set request_id = $1, at = now() - interval '3 days'", then)
