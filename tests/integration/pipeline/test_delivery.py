"""Without a `route_fn` the pipeline delivers through the inbox and lanes of its database; real workers answer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from msgspec.structs import replace

from switchboard.core.policy.liveness import LivenessPolicy
from switchboard.domain.errors import InvalidInput
from switchboard.domain.routing import SystemId, Team
from switchboard.pipeline import MessagePipeline, RoutingTask
from switchboard.store.messages import inbox
from switchboard.store.rules import remote_agents
from tests.embedding import (
    DONE,
    FINANCE,
    HEALTH,
    RULES,
    TEAMS,
    TELEGRAM,
    Model,
    call,
    calling,
    context,
    foreign_pool,
)
from tests.hands import all_dead_letters, assert_balanced, at_work, settled
from tests.lab import Lab, butler, lab, submission
from tests.waiting import eventually


@asynccontextmanager
async def opened(database_url: str, root: Team, **more: Any) -> AsyncIterator[tuple[Lab, asyncpg.Pool]]:
    """A house with this root team, and the pool of an embedder."""
    async with lab(database_url, (root, TEAMS[1]), RULES, **more) as house, foreign_pool(database_url) as pool:
        yield house, pool


async def answers(house: Lab) -> list[tuple[str, str]]:
    """Let a worker answer everything; who answered what, in any order."""
    async with at_work(house.worker()):
        await eventually(lambda: settled(house))
    await assert_balanced(house)
    rows = await house.database.rows("select system_id, text from outbox")
    return sorted((row["system_id"], row["text"]) for row in rows)


async def test_a_worker_answers_what_the_pipeline_routed(house: Lab, pool: asyncpg.Pool) -> None:
    pipeline = MessagePipeline(pool, calling(call("health")), "switchboard")
    result = await pipeline.process("my head hurts", {**TELEGRAM, "external_event_id": 17, "sender_name": "Alice"})
    assert (result.target_butler, result.route_result["status"]) == (HEALTH, "routed")
    assert await answers(house) == [(HEALTH, "my head hurts")]
    stored = await inbox.get_message(house.database, UUID(result.route_result["request_id"]))
    assert stored is not None
    assert (stored.conversation, stored.state) == ("telegram/bot%3Ahouse/alice", "answered")
    assert stored.envelope["event"]["external_event_id"] == "17"
    assert stored.envelope["sender"]["display_name"] == "Alice"


async def test_several_butlers_get_their_parts_and_a_team_hands_its_part_down(house: Lab, pool: asyncpg.Pool) -> None:
    parts = {"health": "my head", "finance": "my taxes", "care": "my roses"}
    model = calling(*(call(name, segment=part) for name, part in parts.items()))
    result = await MessagePipeline(pool, model, "switchboard").process("my head, my taxes, my roses", TELEGRAM)
    assert result.acked_targets == [HEALTH, FINANCE, "care"]
    assert await answers(house) == [
        (FINANCE, "my taxes"),
        ("System1/gardener", "my roses"),
        (HEALTH, "my head"),
    ]


@pytest.mark.parametrize("classify", [True, False])
async def test_a_team_without_a_rule_for_it_asks_the_model_or_has_a_dead_letter(
    database_url: str, classify: bool
) -> None:
    asked: list[tuple[list[str], object]] = []

    async def play(task: RoutingTask) -> object:
        names = [one.name for one in task.candidates]
        asked.append((names, model.data["message"]["text"]))
        both = [call("care", segment="my roses"), call("health", segment="my head")]
        return both if "care" in names else [call(names[0])]

    model = Model(play)
    teams = (TEAMS[0], replace(TEAMS[1], classify=classify))
    async with lab(database_url, teams, ()) as house, foreign_pool(database_url) as pool:
        result = await MessagePipeline(pool, model, "switchboard").process("my roses, my head", TELEGRAM)
        by_worker = await answers(house)
        letters = [(one["team_id"], one["text"]) for one in await all_dead_letters(house)]
    if classify:
        assert (result.acked_targets, letters) == (["care", HEALTH], [])
        assert asked[1] == (["System1/gardener"], "my roses")
        assert by_worker == [("System1/gardener", "my roses"), (HEALTH, "my head")]
    else:
        assert (result.acked_targets, letters) == ([HEALTH], [("care", "my roses")])
        assert result.routing_error == "care: no rule matches"


async def test_its_messages_are_in_the_history_of_what_comes_later(house: Lab, pool: asyncpg.Pool) -> None:
    model = calling(call("health"))
    pipeline = MessagePipeline(pool, model, "switchboard")
    for text in ("my head hurts", "still"):
        await pipeline.process(text, TELEGRAM)
    assert [one["text"] for one in model.data["history"]] == ["my head hurts"]
    await answers(house)
    await pipeline.process("better", TELEGRAM)
    said = [(one["from"], one["text"]) for one in model.data["history"]]
    assert sorted(said) == sorted((who, text) for who in ("them", "us") for text in ("my head hurts", "still"))
    await pipeline.process("who am I?", {**TELEGRAM, "sender_identity": None})
    assert model.data["history"] == [], "unknown senders share no conversation"


async def test_its_candidates_are_those_that_live_as_they_describe_themselves(database_url: str) -> None:
    url = "http://127.0.0.1:9/mcp"
    members = (*TEAMS[0].members, butler("gone", "mcp", url=url), butler("far", "mcp", url=url))
    async with opened(database_url, replace(TEAMS[0], members=members)) as (house, pool):
        far = remote_agents.Announcement(description="Stars", capabilities=("telescope",))
        await remote_agents.beat(house.database, SystemId("System1/far"), far, LivenessPolicy())
        await remote_agents.quarantine(house.database, SystemId("System1/gone"), "tester", "it is broken")
        model = calling(call("far"))
        await MessagePipeline(pool, model, "switchboard").process("look up", TELEGRAM)
    candidates = {one["name"]: one for one in model.data["candidates"]}
    assert list(candidates) == ["System1/far", FINANCE, HEALTH, "care"]
    assert candidates["System1/far"] == {
        "name": "System1/far",
        "description": "Stars",
        "capabilities": ["telescope"],
    }


async def test_a_context_may_name_a_team_of_which_the_candidates_are(house: Lab, pool: asyncpg.Pool) -> None:
    given = context(team_id="care")
    del given["candidates"]
    result = await MessagePipeline(pool, calling(call("gardener")), "switchboard").process("x", request_context=given)
    assert result.acked_targets == ["System1/gardener"]
    assert await answers(house) == [("System1/gardener", "x")]


async def test_a_name_that_a_context_brings_must_be_somebody_who_lives(house: Lab, pool: asyncpg.Pool) -> None:
    given = context(candidates=[{"name": "health"}, {"name": "asleep"}])
    model = calling(call("health"), call("asleep"))
    result = await MessagePipeline(pool, model, "switchboard").process("x", request_context=given)
    assert (result.acked_targets, result.failed_targets) == (["health"], ["asleep"])
    assert "no candidate 'asleep'" in (result.routing_error or "")
    assert await answers(house) == [(HEALTH, "x")]


async def test_what_a_session_has_served_itself_is_not_delivered(house: Lab, pool: asyncpg.Pool) -> None:
    model = calling({**call("health"), **DONE}, call("finance"))
    result = await MessagePipeline(pool, model, "switchboard").process("x", TELEGRAM)
    assert set(result.acked_targets) == {HEALTH, FINANCE}
    assert await answers(house) == [(FINANCE, "x")]


async def test_what_the_inbox_has_already_is_only_classified(house: Lab, pool: asyncpg.Pool) -> None:
    accepted = await house.accept.accept(submission("hello"))
    given = context(request_id=str(accepted.request_id))
    result = await MessagePipeline(pool, calling(call("health")), "switchboard").process("hello", request_context=given)
    assert (result.target_butler, result.route_result["status"]) == ("health", "chosen")
    assert await house.count("select count(*) from delivery") == 0


async def test_behind_a_message_that_waits_for_a_model_it_waits_too(database_url: str) -> None:
    async with opened(database_url, replace(TEAMS[0], classify=True), classifying=True) as (house, pool):
        await house.accept.accept(submission("first"))
        result = await MessagePipeline(pool, calling(call("health")), "switchboard").process("second", TELEGRAM)
        assert (result.target_butler, result.acked_targets) == (HEALTH, [])
        assert result.route_result["status"] == "waiting"
        assert await house.count("select count(*) from routing where state = 'pending'") == 2


async def test_a_text_that_can_be_no_message_is_refused_before_a_model_is_paid(pool: asyncpg.Pool) -> None:
    model = calling(call("health"))
    pipeline = MessagePipeline(pool, model, "switchboard")
    for text, args in (("", TELEGRAM), ("x" * 300_000, TELEGRAM), ("x", {**TELEGRAM, "source_channel": "c" * 99})):
        with pytest.raises(InvalidInput):
            await pipeline.process(text, args)
    assert model.tasks == []
    assert (await pipeline.process("nul \0 and \ud800", TELEGRAM)).acked_targets == [HEALTH]


async def test_the_pool_is_left_as_it_was(house: Lab) -> None:
    """One connection, with settings and a codec of the embedder."""

    async def own(connection: asyncpg.Connection) -> None:
        await connection.set_type_codec("jsonb", schema="pg_catalog", encoder=json.dumps, decoder=json.loads)

    settings = {"search_path": "pg_catalog", "statement_timeout": "54321"}
    async with asyncpg.create_pool(
        house.database.url, min_size=1, max_size=1, init=own, server_settings=settings
    ) as pool:
        await MessagePipeline(pool, calling(call("health"), call("care")), "switchboard").process("x", TELEGRAM)
        row = await pool.fetchrow(
            """select current_setting('search_path'), current_setting('statement_timeout'), '{"a": 1}'::jsonb"""
        )
        assert row is not None
        assert tuple(row) == ("pg_catalog", "54321ms", {"a": 1})
    assert len(await answers(house)) == 2
