"""A reply to a message of ours goes to the butler that wrote it, whatever the rules say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from switchboard.domain.errors import Forbidden
from switchboard.domain.ledger import OutboxPart
from switchboard.journey.accept import Submission
from switchboard.journey.reply import PullRequest
from switchboard.ports.channel import Receipt
from switchboard.store.messages.inbox import Acceptance
from tests.lab import Lab, butler, lab, rule, submission, team_of
from tests.waiting import eventually

TEAM = team_of(butler("first"), butler("second"), "System4/root")
RULES = (
    rule("System1/first", channel="telegram", priority=1, telegram_user_id="7"),
    rule("System1/second", channel="telegram"),
)


def update(message_id: int, user: int, replied_to: int | None = None) -> dict[str, Any]:
    """A Telegram update in one group chat."""
    message: dict[str, Any] = {
        "message_id": message_id,
        "from": {"id": user},
        "chat": {"id": -100, "type": "group"},
    }
    if replied_to is not None:
        message["reply_to_message"] = {"message_id": replied_to}
    return {"update_id": message_id, "message": message}


@pytest.fixture
async def parts(database_url: str) -> AsyncIterator[Lab]:
    """A lab with two butlers and a worker; user 7's messages go to the first, everybody else's to the second."""
    async with lab(database_url, (TEAM,), RULES) as made:
        worker = made.worker()
        working = asyncio.create_task(worker.run())
        yield made
        worker.stop()
        await working


async def say(parts: Lab, raw: dict[str, Any], text: str = "hello") -> str:
    """Submit; the butler that the message is decided for."""
    sent = submission(
        text, raw=raw, thread="-100", sender=str(raw["message"]["from"]["id"]), event=str(raw["update_id"])
    )
    accepted = await parts.accept.accept(sent)
    assert accepted.decision is not None
    return accepted.decision.chosen[0].system_id


async def send_the_reply(parts: Lab, platform_message_id: str) -> None:
    """What a connector does: fetch the reply, send it, tell the id that the platform gave it."""
    pulled = await parts.replies.pull(PullRequest("telegram", "bot:house", wait_s=20))
    assert len(pulled) == 1
    await parts.replies.receipt(pulled[0].outbox_id, pulled[0].lease, Receipt("sent", platform_message_id))


async def test_a_reply_to_what_a_butler_wrote_goes_to_that_butler(parts: Lab) -> None:
    assert await say(parts, update(1, 7)) == "System1/first"
    await send_the_reply(parts, "500")
    assert await say(parts, update(2, 8)) == "System1/second"
    assert await say(parts, update(3, 8, replied_to=500)) == "System1/first"


async def test_a_reply_to_any_part_goes_to_the_butler_that_wrote_it(parts: Lab) -> None:
    assert await say(parts, update(1, 7)) == "System1/first"
    [reply] = await parts.replies.pull(PullRequest("telegram", "bot:house", wait_s=20))
    for number in range(3):
        await parts.replies.part(reply, reply.lease, OutboxPart(number, 3, "sent", None, f"50{number}"), None)
    await parts.replies.receipt(reply.outbox_id, reply.lease, Receipt("sent", "502"))
    for n, part in enumerate((500, 501, 502), 2):
        assert await say(parts, update(n, 8, replied_to=part)) == "System1/first"


async def test_a_connector_pins_only_to_butlers_that_wrote_in_the_conversation(parts: Lab) -> None:
    def pinned(event: str, thread: str, to: str = "System1/first") -> Submission:
        return replace(submission("hello", thread=thread, pinned=to, event=event), by_operator=False)

    assert await say(parts, update(1, 7)) == "System1/first"
    await send_the_reply(parts, "500")
    given = [
        pinned("2", "-100"),
        pinned("3", "-100", "System1/second"),
        pinned("4", "elsewhere"),
        submission("hello", thread="elsewhere", pinned="System1/first", event="5"),
    ]
    first, *refused, operators = await parts.accept.accept_all(given)
    for taken in (first, operators):
        assert isinstance(taken, Acceptance)
        assert taken.decision is not None
        assert taken.decision.trail[0].reason == "pin"
    assert [isinstance(one, Forbidden) and one.code for one in refused] == ["pin_refused"] * 2


async def test_a_reply_to_what_is_not_ours_follows_the_rules(parts: Lab) -> None:
    assert await say(parts, update(1, 7)) == "System1/first"
    await send_the_reply(parts, "500")
    assert await say(parts, update(2, 8, replied_to=499)) == "System1/second"


async def test_a_reply_to_what_switchboard_itself_wrote_follows_the_rules(parts: Lab) -> None:
    assert await say(parts, update(1, 8), "/stop") == "switchboard"
    await send_the_reply(parts, "500")
    assert await say(parts, update(2, 8, replied_to=500)) == "System1/second"


async def test_no_reply_is_claimed_without_being_handed_out(parts: Lab) -> None:
    """Replies are committed all the time while a connector pulls: each is handed out once and none ends uncertain."""
    count = 120
    handed: list[str] = []

    async def connector() -> None:
        while len(handed) < count:
            for reply in await parts.replies.pull(PullRequest("telegram", "bot:house", wait_s=1)):
                handed.append(reply.text)
                await parts.replies.receipt(reply.outbox_id, reply.lease, Receipt("sent"))

    pulling = [asyncio.create_task(connector()) for _ in range(3)]
    for n in range(count):
        await parts.accept.accept(submission(str(n), sender=f"s{n % 40}", raw=None))
    await eventually(
        lambda: parts.count("select (count(*) = $1)::int from outbox where state = 'sent'", count), within=60
    )
    await asyncio.gather(*pulling)
    assert sorted(handed) == sorted(map(str, range(count)))
