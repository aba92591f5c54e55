"""What tests of `MessagePipeline` need: a house of butlers, models that play what they are given, request contexts."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
from msgspec import structs

from switchboard.app.access import Access
from switchboard.domain.llm import Reply, ToolCall
from switchboard.domain.routing import TeamId
from switchboard.domain.shown import Logged
from switchboard.journey.route_call import take
from switchboard.pipeline import (
    RoutingContext,
    RoutingResult,
    RoutingTask,
    routing_context,
)
from switchboard.store.ids import new_uuid7
from switchboard.store.models import classification
from tests.lab import Lab, butler, member, rule, submission, team_of

HEALTH, FINANCE = "System1/health", "System1/finance"
CARE = TeamId("care")
DONE = {"result": {"status": "ok"}}
TEAMS = (
    team_of(
        structs.replace(member(HEALTH), description="Doctors, pills, appointments", capabilities=("calendar",)),
        structs.replace(member(FINANCE), description="Bills and taxes"),
        member("System1/asleep", active=False),
        "System4/root",
        purpose="the house",
    ),
    team_of(butler("gardener"), team_id=CARE, purpose="everything about the garden"),
)
RULES = (rule("System1/gardener", team=CARE),)
TELEGRAM = {
    "source_channel": "telegram",
    "source_identity": "bot",
    "source_endpoint_identity": "bot:house",
    "sender_identity": "alice",
}


@dataclass
class Model:
    """A dispatch function that plays what it is given and keeps what it was asked."""

    play: Callable[[RoutingTask], Awaitable[object]] | None = None
    says: object = None
    tasks: list[RoutingTask] = field(default_factory=list)
    contexts: list[RoutingContext | None] = field(default_factory=list)

    async def __call__(self, task: RoutingTask) -> object:
        self.tasks.append(task)
        self.contexts.append(routing_context())
        return self.says if self.play is None else await self.play(task)

    @property
    def data(self) -> Any:
        """The block of JSON that the last prompt holds."""
        return json.loads(self.tasks[-1].prompt.data)


def call(butler: str, name: str = "route_to_butler", **more: Any) -> dict[str, Any]:
    """A call as an API's answer holds it: nobody has run it."""
    return {"name": name, "arguments": {"butler": butler, **more}}


def calling(*calls: Mapping[str, Any], **more: Any) -> Model:
    return Model(says={"tool_calls": list(calls), "ended": "tool_calls", **more})


def by_token(house: Lab, *arguments: Mapping[str, Any], claims: Reply | None = None) -> Model:
    """A session that calls our server with its token, as a command line does."""

    async def play(task: RoutingTask) -> Reply:
        session = (await Access(house.database).authenticate(f"Bearer {task.token}")).session
        assert session is not None
        calls = []
        for one in arguments:
            result = await take(house.database, session, one)
            calls.append(ToolCall("mcp__switchboard__route_to_butler", one, result, result["status"] == "accepted"))
        return replace(claims or Reply(calls=tuple(calls), stop_reason="end"), by_program=True)

    return Model(play)


def context(**more: Any) -> dict[str, Any]:
    """What the Switchboard says of a message."""
    candidates = [{"name": "health", "description": "Doctors"}, {"name": "finance"}]
    return {
        "request_id": str(new_uuid7()),
        "conversation": "telegram/bot%3Ahouse/alice",
        "team_id": "root",
        "candidates": candidates,
        **TELEGRAM,
        **more,
    }


async def logged(house: Lab, result: RoutingResult) -> list[Logged]:
    return await classification.attempts(house.database, UUID(result.route_result["request_id"]))


async def talk(house: Lab, said: Sequence[tuple[str, timedelta]], thread: str | None = None) -> tuple[UUID, str]:
    """Messages of a conversation, each so long ago, a reply to each; the id of a last one, and the conversation."""
    now, key = datetime.now(UTC), ""
    for text, ago in said:
        accepted = await house.accept.accept(submission(text, channel="telegram", thread=thread))
        row = await house.database.row(
            "select name from message_inbox join conversation using (conversation) where request_id = $1",
            accepted.request_id,
        )
        assert row is not None
        key, at = row["name"], now - ago
        moved = UUID(int=(int(at.timestamp() * 1000) << 80) | (accepted.request_id.int & ((1 << 80) - 1)))
        ids = (accepted.request_id, moved)
        await house.database.run("select make_partitions($1, $1)", at)
        await house.database.run("update dedupe set request_id = $2 where request_id = $1", *ids)
        await house.database.run(
            "update message_inbox set request_id = $2, received_at = $3 where request_id = $1", *ids, at
        )
        await house.database.run(
            "insert into outbox (lane, seq, outbox_id, request_id, system_id, channel, endpoint,"
            " recipient, reply_to, text, state, created_at)"
            " select lane_key('send', null, conversation_key($1)), coalesce(max(seq), 0) + 1, $2, $3, 'System1/health',"
            " 'telegram', 'bot:house', 'alice', 'e', 're: ' || $4, 'sent', $5 from outbox"
            " where lane = lane_key('send', null, conversation_key($1))",
            *(key, uuid4(), moved, text, at + timedelta(seconds=1)),
        )
    return new_uuid7(), key


def foreign_pool(url: str) -> asyncpg.Pool:
    """An embedder's own pool: no search path, no codecs."""
    return asyncpg.create_pool(url, min_size=0, max_size=4)
