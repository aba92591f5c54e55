"""Five hundred messages in the pipeline at once: each sees its own context at every await, and nobody's afterwards."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from random import Random
from typing import Any, Final
from uuid import UUID

import pytest

from switchboard.pipeline import (
    MessagePipeline,
    RoutingContext,
    RoutingResult,
    RoutingTask,
    _clear_routing_context,
    _routing_ctx_var,
    routing_context,
)
from switchboard.store.ids import new_uuid7
from switchboard.store.models import classification
from tests.lab import Lab, lab, submission

MANY: Final = 500


@pytest.fixture
async def house(database_url: str) -> AsyncIterator[Lab]:
    async with lab(database_url) as parts:
        yield parts


def context(number: int, conversation: str) -> dict[str, Any]:
    """Everything in it tells whose it is; each has a candidate that nobody else has."""
    return {
        "request_id": str(new_uuid7()),
        "conversation": conversation,
        "team_id": "root",
        "candidates": [{"name": f"own-{number}"}, {"name": "common"}],
        "source_channel": "telegram",
        "source_endpoint_identity": "bot:house",
        "sender_identity": f"sender-{number}",
    }


@dataclass
class Crowd:
    """All messages, and what each was seen with. All sessions wait for each other, so that all of them are open."""

    parts: Lab
    contexts: Mapping[str, dict[str, Any]]
    numbers: Mapping[str, int]
    together: asyncio.Barrier
    random: Random = field(default_factory=lambda: Random(5))
    looks: int = 0
    handed_on: list[tuple[str, str, str]] = field(default_factory=list)

    def look(self, request_id: str) -> RoutingContext:
        """What this task is told that it routes must be its own."""
        seen, number = routing_context(), self.numbers[request_id]
        assert seen is not None
        assert seen.request_id == request_id
        assert seen.request_context is self.contexts[request_id]
        assert seen.source_metadata["sender_identity"] == f"sender-{number}"
        assert [one.text for one in seen.conversation_history] == [f"before {number}"]
        self.looks += 1
        return seen

    async def session(self, task: RoutingTask) -> object:
        number = self.numbers[task.request_id]
        self.look(task.request_id)
        await self.together.wait()
        for _ in range(self.random.randint(1, 5)):
            self.look(task.request_id)
            await asyncio.sleep(0)
        await asyncio.gather(*(self.child(task.request_id) for _ in range(2)))
        data = json.loads(task.prompt.data)
        assert data["message"]["text"] == f"message {number}"
        assert [one["text"] for one in data["history"]] == [f"before {number}"]
        found = await classification.find_session(self.parts.database, sha256(task.token.encode()).digest())
        assert found is not None
        assert (str(found.request_id), found.candidates[0].name) == (task.request_id, f"own-{number}")
        self.look(task.request_id)
        return self.answer(number)

    async def child(self, request_id: str) -> None:
        """A task that a session starts routes for the same message."""
        await asyncio.sleep(0)
        self.look(request_id)

    def answer(self, number: int) -> object:
        if number % 10 == 7:
            raise RuntimeError(f"the session of {number} fails")
        # One in ten names somebody else's candidate: it must not be there for this one.
        wanted = f"own-{(number + 1) % MANY}" if number % 10 == 3 else f"own-{number}"
        return {"tool_calls": [{"name": "route_to_butler", "arguments": {"butler": wanted}}], "ended": "tool_calls"}

    async def hand_on(self, butler: str, text: str, seen: RoutingContext) -> object:
        await asyncio.sleep(0)
        assert self.look(seen.request_id) is seen
        self.handed_on.append((seen.request_id, butler, text))
        return {"status": "ok"}


async def crowd_of(house: Lab, many: int) -> Crowd:
    """Each message with one that was said before it, in a conversation of its own."""
    before = await house.accept.accept_all(
        [submission(f"before {number}", sender=f"sender-{number}", thread=f"t{number}") for number in range(many)]
    )
    rows = await house.database.rows(
        "select request_id, name as conversation, thread from message_inbox join conversation using (conversation)"
    )
    assert len(rows) == len(before) == many
    keys = {int(row["thread"][1:]): row["conversation"] for row in rows}
    contexts = [context(number, keys[number]) for number in range(many)]
    known = {one["request_id"]: one for one in contexts}
    numbers = {one["request_id"]: number for number, one in enumerate(contexts)}
    return Crowd(house, known, numbers, asyncio.Barrier(many))


@pytest.mark.slow
async def test_five_hundred_interleaved_messages_see_only_themselves(house: Lab) -> None:
    crowd = await crowd_of(house, MANY)
    pipeline = MessagePipeline(house.database.pool, crowd.session, "switchboard", route_fn=crowd.hand_on)

    async def one(request_id: str) -> RoutingResult:
        number = crowd.numbers[request_id]
        assert routing_context() is None
        result = await pipeline.process(f"message {number}", {}, request_context=crowd.contexts[request_id])
        assert _routing_ctx_var.get() is None, "the context is cleared in the very task that routed"
        return result

    async with asyncio.timeout(180):
        results = await asyncio.gather(*(one(request_id) for request_id in crowd.contexts))
    assert _routing_ctx_var.get() is None
    assert crowd.looks > 5 * MANY
    for result in results:
        request_id = result.route_result["request_id"]
        number = crowd.numbers[request_id]
        good = number % 10 not in {3, 7}
        assert result.routed_targets == ([f"own-{number}"] if good else [])
        assert (result.classification_error is None) == good
    assert sorted(crowd.handed_on) == sorted(
        (request_id, f"own-{number}", f"message {number}")
        for request_id, number in crowd.numbers.items()
        if number % 10 not in {3, 7}
    )
    rows = await house.database.rows(
        "select request_id, name as conversation, candidates from classification join conversation using (conversation)"
    )
    assert len(rows) == MANY
    for row in rows:
        request_id = str(row["request_id"])
        assert row["candidates"][0] == f"own-{crowd.numbers[request_id]}"
        assert row["conversation"] == crowd.contexts[request_id]["conversation"]
    assert not await house.count("select count(*) from session_token where ended_at is null")


async def test_a_cancelled_message_leaves_no_context_and_no_open_session(house: Lab) -> None:
    begun, never = asyncio.Event(), asyncio.Event()
    left: list[object] = []

    async def session(_: RoutingTask) -> object:
        begun.set()
        await never.wait()
        return None

    async def one() -> None:
        try:
            pipeline = MessagePipeline(house.database.pool, session, "switchboard")
            await pipeline.process("x", {}, request_context=context(1, "c"))
        finally:
            left.append(routing_context())

    task = asyncio.create_task(one())
    await begun.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (task.cancelled(), left) == (True, [None])
    assert await house.count("select count(*) from session_token where ended_at is not null") == 1


async def test_messages_one_after_the_other_in_one_task_share_nothing(house: Lab) -> None:
    seen: list[RoutingContext | None] = []

    async def session(_: RoutingTask) -> object:
        seen.append(routing_context())
        return "Routed to common."

    pipeline = MessagePipeline(house.database.pool, session, "switchboard")
    for number in range(3):
        await pipeline.process("x", {}, request_context=context(number, ""))
        assert routing_context() is None
    assert [one.source_metadata["sender_identity"] for one in seen if one is not None] == [
        "sender-0",
        "sender-1",
        "sender-2",
    ]
    assert len({UUID(one.request_id) for one in seen if one is not None}) == 3


def test_clearing_is_what_ends_a_context() -> None:
    _routing_ctx_var.set(RoutingContext("r", "switchboard", {}))
    assert routing_context() is not None
    _clear_routing_context()
    assert routing_context() is None
