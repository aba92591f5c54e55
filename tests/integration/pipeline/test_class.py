"""`MessagePipeline` as its second document has it, on a pool of the embedder."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

import switchboard.pipeline
from switchboard.pipeline import (
    MessagePipeline,
    RoutingContext,
    RoutingResult,
    email_check_and_route_inbox,
    routing_context,
)
from tests.documents import HOME, blocks
from tests.embedding import (
    DONE,
    FINANCE,
    HEALTH,
    TELEGRAM,
    Model,
    call,
    calling,
    context,
    logged,
    talk,
)
from tests.lab import Lab


async def test_an_embedder_needs_a_pool_and_a_dispatch_function(house: Lab, pool: asyncpg.Pool) -> None:
    """Source by the arguments, an id of its own, candidates of the root team: its live butlers and its sub-teams."""
    model = calling(call("System1/health"), model="m", usage={"input_tokens": 7, "output_tokens": 2, "cost_usd": 0.5})
    args = {**TELEGRAM, "external_event_id": 17, "external_thread_id": "t", "idempotency_key": "k"}
    result = await MessagePipeline(pool, model, "switchboard").process("my head hurts", args, tool_name="bot_telegram")
    assert [one["name"] for one in model.data["candidates"]] == [FINANCE, HEALTH, "care"]
    assert model.data["candidates"][1]["capabilities"] == ["calendar"]
    assert model.data["candidates"][2]["description"] == "everything about the garden"
    assert (result.target_butler, result.acked_targets) == (HEALTH, [HEALTH])
    assert result.route_result["status"] == "routed"
    [seen] = model.contexts
    assert seen is not None
    assert seen.source_metadata == {
        **TELEGRAM,
        "external_event_id": "17",
        "external_thread_id": "t",
        "idempotency_key": "k",
        "tool_name": "bot_telegram",
    }
    [row] = await logged(house, result)
    assert (row.model, row.tokens_in, row.tokens_out, row.cost_usd) == ("m", 7, 2, 0.5)
    assert row.result["acked"] == [HEALTH]


async def test_an_embedder_gets_the_history_of_the_conversation_in_its_arguments(
    house: Lab, pool: asyncpg.Pool
) -> None:
    await talk(house, [("before", timedelta(minutes=1))], thread="t/1")
    model = calling(call("health"))
    args = {**TELEGRAM, "external_thread_id": "t/1"}
    await MessagePipeline(pool, model, "switchboard").process("x", args)
    assert [one["text"] for one in model.data["history"]] == ["before", "re: before"]
    assert routing_context() is None


async def test_the_example_of_the_manual_runs(
    house: Lab, pool: asyncpg.Pool, capsys: pytest.CaptureFixture[str]
) -> None:
    [example] = (one.text for one in blocks(HOME / "docs/models.md") if one.language == "python")
    space: dict[str, Any] = {}
    exec(example, space)  # noqa: S102
    assert await space["route"](pool, "pay the rent") == FINANCE
    assert capsys.readouterr().out == f"{FINANCE} 5488423581 pay the rent\n"
    assert await house.count("select count(*) from pipeline_key") == 1


def test_the_result_has_the_fields_of_the_document() -> None:
    shown = {one.name: one.type for one in fields(RoutingResult)}
    assert shown == {
        "target_butler": "str",
        "route_result": "dict[str, Any]",
        "classification_error": "str | None",
        "routing_error": "str | None",
        "routed_targets": "list[str]",
        "acked_targets": "list[str]",
        "failed_targets": "list[str]",
    }


def test_the_public_names_are_these() -> None:
    assert sorted(switchboard.pipeline.__all__) == [
        "MessagePipeline",
        "ModelAttempt",
        "Reply",
        "Report",
        "RoutingContext",
        "RoutingResult",
        "RoutingTask",
        "ToolCall",
        "Usage",
        "email_check_and_route_inbox",
        "routing_context",
    ]
    assert all(hasattr(switchboard.pipeline, name) for name in switchboard.pipeline.__all__)


@pytest.mark.parametrize(
    ("tool_name", "identity"),
    [("user_telegram_send", "user"), ("bot_email_check", "bot"), ("telegram", "unknown"), (None, "unknown")],
)
async def test_the_identity_is_that_of_the_tool_name(pool: asyncpg.Pool, tool_name: str | None, identity: str) -> None:
    model = calling(call("health"))
    await MessagePipeline(pool, model, "switchboard").process("x", {}, tool_name=tool_name)
    [seen] = model.contexts
    assert seen is not None
    assert seen.source_metadata["source_identity"] == identity


async def test_ids_are_uuid7_of_the_present_time(pool: asyncpg.Pool) -> None:
    pipeline = MessagePipeline(pool, calling(call("health")), "switchboard")
    ids = [UUID((await pipeline.process("x", {})).route_result["request_id"]) for _ in range(3)]
    assert ids == sorted(ids)
    assert {one.version for one in ids} == {7}
    assert abs(datetime.now(UTC).timestamp() - (ids[0].int >> 80) / 1000) < 3600


async def test_the_old_wiring_is_accepted_and_warned_of(pool: asyncpg.Pool) -> None:
    model = calling(call("health"))
    pipeline = MessagePipeline(pool, model, "switchboard")
    with pytest.warns(DeprecationWarning, match="connector"):
        pipeline.set_pipeline(object())
    with pytest.warns(DeprecationWarning, match="connector"):
        [result] = await email_check_and_route_inbox(pipeline, [{"text": "hello", "sender_identity": "a@b.example"}])
    assert result.acked_targets == [HEALTH]
    assert model.data["message"]["channel"] == "email"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await pipeline.process("hello", {})


# Functions in place of parts ----------------------------------------------------------------------------------------


async def test_a_function_may_classify_in_place_of_a_model(house: Lab, pool: asyncpg.Pool) -> None:
    given: list[tuple[str, str, str]] = []

    async def classify(_text: str, candidates: Sequence[Any], _: RoutingContext) -> object:
        assert {one.name for one in candidates} == {"health", "finance"}
        return [{"butler": "health", "segment": "my head"}, "finance", "ghost"]

    async def hand_on(name: str, text: str, seen: RoutingContext) -> object:
        given.append((name, text, seen.request_id))
        return {"status": "ok"}

    pipeline = MessagePipeline(pool, Model(), "switchboard", classify_fn=classify, route_fn=hand_on)
    known = context()
    result = await pipeline.process("my head, my taxes", {}, request_context=known)
    assert given == [("health", "my head", known["request_id"]), ("finance", "my head, my taxes", known["request_id"])]
    assert (result.acked_targets, result.failed_targets) == (["health", "finance"], ["ghost"])
    assert "ghost" in (result.classification_error or ""), "a part of the message went nowhere, and that is told"
    assert result.route_result["status"] == "partial"
    assert await house.count("select count(*) from session_token") == 0


async def test_a_butler_that_the_session_served_is_not_served_again(pool: asyncpg.Pool) -> None:
    given: list[str] = []

    async def hand_on(name: str, _text: str, _: RoutingContext) -> object:
        given.append(name)
        return {"status": "accepted"}

    model = calling({**call("health"), **DONE}, call("finance"))
    result = await MessagePipeline(pool, model, "switchboard", route_fn=hand_on).process(
        "x", {}, request_context=context()
    )
    assert given == ["finance"]
    assert result.acked_targets == ["health", "finance"]
    said = Model(says="Routed to health.")
    result = await MessagePipeline(pool, said, "switchboard", route_fn=hand_on).process(
        "x", {}, request_context=context()
    )
    assert (given, result.acked_targets) == (["finance", "health"], ["health"])


async def test_partial_success_is_told_as_it_is(pool: asyncpg.Pool) -> None:
    async def hand_on(name: str, _text: str, _: RoutingContext) -> object:
        return {"status": "ok" if name == "finance" else "busy"}

    model = calling(call("health", segment="my head"), call("finance", segment="my taxes"))
    result = await MessagePipeline(pool, model, "switchboard", route_fn=hand_on).process(
        "my head, my taxes", {}, request_context=context()
    )
    assert (result.target_butler, result.routed_targets) == ("finance", ["health", "finance"])
    assert (result.acked_targets, result.failed_targets) == (["finance"], ["health"])
    assert "busy" in (result.routing_error or "")
    assert result.route_result["status"] == "partial"
    assert [(one["butler"], one["segment"], one["status"]) for one in result.route_result["targets"]] == [
        ("health", "my head", "failed"),
        ("finance", "my taxes", "accepted"),
    ]
