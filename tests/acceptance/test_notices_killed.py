"""Workers are killed wherever a notice to operators is: it is sent once, or counted in the next, and never lost."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from switchboard.core.strangers import Contact, Policy
from switchboard.domain.routing import Team
from switchboard.journey.reply import PullRequest
from switchboard.lanes.faults import Point
from switchboard.ports.channel import Receipt
from switchboard.store import strangers
from tests.forked import ForkedCommand
from tests.hands import assert_balanced
from tests.lab import ROOT, lab, submission
from tests.processes import EXECUTABLE, environment

pytestmark = pytest.mark.slow
POINTS: Final[tuple[Point, ...]] = ("notice_taken", "notice_made", "after_claim", "before_complete", "after_complete")


async def start(env: Mapping[str, str]) -> ForkedCommand[bytes]:
    """A worker, in a process of its own."""
    return await asyncio.to_thread(ForkedCommand, [EXECUTABLE, "work"], env=dict(env))


async def test_a_dead_letter_and_a_stranger_are_one_notice_each_wherever_workers_are_killed(
    database_url: str, place: Path
) -> None:
    env = environment(place / "data", DATABASE_URL=database_url, NOTIFY=json.dumps(["telegram/bot:house/41"]))
    policies: dict[tuple[str, str], Policy] = {("telegram", "bot:house"): "pair"}
    async with asyncio.timeout(200), lab(database_url, [Team(ROOT, None)], (), policies=policies) as parts:
        await strangers.add(parts.database, Contact("telegram", "bot:house", "person", "41"), "test")
        for who in (41, 42):
            address = {"reply_address": {"chat": who}}
            sent = submission(sender=str(who), thread=str(who), chat_type="private", of_event=address)
            await parts.accept.accept(sent)
        for point in POINTS:
            killed = await start({**env, "SWITCHBOARD_CRASH_AT": point})
            assert await asyncio.to_thread(killed.wait, 60) == -signal.SIGKILL, point
        working = await start(env)
        texts = list[str]()
        while len([text for text in texts if text.startswith("Switchboard: ")]) < 2:
            for reply in await parts.replies.pull(PullRequest("telegram", "bot:house", wait_s=1.0)):
                await parts.replies.receipt(reply.outbox_id, reply.lease, Receipt("sent"))
                texts.append(reply.text)
        working.terminate()
        assert await asyncio.to_thread(working.wait, 60) == 0
        assert await parts.replies.pull(PullRequest("telegram", "bot:house")) == []
        assert sorted(text for text in texts if text.startswith("Switchboard: ")) == [
            "Switchboard: 1 dead letter (no_route). See: switchboard dlq list",
            "Switchboard: 1 stranger who is not let in yet (telegram/bot:house). See: switchboard pairing list",
        ]
        await assert_balanced(parts)
