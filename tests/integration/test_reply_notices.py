"""People are told of replies that only they can help, once, and a conversation that is blocked is left in peace."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from switchboard.app.dead_letters.replies import ReplyNotices
from switchboard.app.dead_letters.service import DeadLetterService
from switchboard.app.dead_letters.telling import report_json
from switchboard.domain.errors import Conflict
from switchboard.domain.ledger import LeasedRow
from switchboard.journey.reply import PullRequest
from switchboard.ports.channel import Receipt, SendFailure
from switchboard.store import books
from switchboard.store.messages import dead_letters
from switchboard.store.messages.dead_letters import ALL_DEAD_LETTERS, Backoff
from tests.dead_letters import OPERATOR, WHY, opened, to_butler
from tests.hands import assert_balanced, at_work, settled
from tests.lab import Lab, submission
from tests.waiting import eventually

PULL = PullRequest("telegram", "bot:house")
BRAKED, BLOCKED = (Receipt("failed", error="alice's words", because=why) for why in ("braked", "blocked"))
UNCERTAIN = Receipt("uncertain", error="alice's words")

House = tuple[Lab, DeadLetterService]


@pytest.fixture
async def house(database_url: str) -> AsyncIterator[House]:
    async with opened(database_url) as made:
        yield made


async def worked(parts: Lab, *texts: str) -> None:
    """Messages of alice, echoed, and notices read."""
    for text in texts:
        await parts.accept.accept(submission(text))
    async with at_work(parts.worker()):
        await eventually(lambda: settled(parts))


async def replied(parts: Lab, receipt: Receipt) -> LeasedRow:
    """The next reply, with what became of it."""
    [reply] = await parts.replies.pull(PULL)
    await parts.replies.receipt(reply.outbox_id, reply.lease, receipt)
    return reply


async def told(parts: Lab) -> int:
    """How many dead letters are made; as in a process that has just begun."""
    return await ReplyNotices(parts.database, parts.notifier, parts.rule_book).tell()


@pytest.mark.parametrize(
    ("receipt", "category"),
    [(UNCERTAIN, "reply_uncertain"), (BRAKED, "reply_braked"), (BLOCKED, "reply_unreachable")],
    ids=lambda one: one if isinstance(one, str) else "",
)
async def test_people_are_told_once_and_a_resent_reply_closes_the_letter(
    house: House, receipt: Receipt, category: str
) -> None:
    parts, service = house
    await worked(parts, "my secret wish")
    reply = await replied(parts, receipt)
    assert (await told(parts), await told(parts)) == (1, 0)
    [letter] = (await service.list(OPERATOR, ALL_DEAD_LETTERS, limit=9, cursor=None))[0]
    assert (letter.category, letter.handler, letter.team_id) == (category, "System4/root", "root")
    await worked(parts)
    [notice] = await dead_letters.notices_of(parts.database, reply.request_id)
    assert (notice.dead_letter_id, notice.state) == (letter.dead_letter_id, "delivered")

    [report] = await dead_letters.to_tell(parts.database, 9, Backoff(1, 1))
    body = report_json(report).decode()
    assert f"switchboard outbox resend {reply.outbox_id}" in json.loads(body)["text"]
    assert not {"wish", "alice"} & set(body.replace("'", " ").split()), "it tells nothing that others wrote"
    with pytest.raises(Conflict, match=f"send reply {reply.outbox_id} again"):
        await service.reroute(OPERATOR, letter.dead_letter_id, to_butler("spare"))
    with pytest.raises(Conflict, match="send reply"):
        await service.reroute(OPERATOR, letter.dead_letter_id, WHY)

    await books.balance_books(parts.database)
    assert (await books.outcomes_of(parts.database, datetime.now(UTC).date())).dead == 0, "the message was answered"
    assert await dead_letters.untold(parts.database, letter.dead_letter_id, 9) == [], "nobody who wrote is told"
    await assert_balanced(parts)

    await parts.replies.resend(reply.outbox_id)
    assert await dead_letters.count_pending(parts.database) == 0
    again = await replied(parts, receipt)
    assert (again.outbox_id, again.unreachable, await told(parts)) == (reply.outbox_id, False, 1)
    await assert_balanced(parts)


@pytest.mark.parametrize("because", ["braked", "blocked"])
async def test_a_conversation_that_gets_no_replies_is_told_once_whatever_waits(
    house: House, because: SendFailure
) -> None:
    parts, service = house
    await worked(parts, "1", "2", "3")
    for _ in range(2):
        await replied(parts, Receipt("failed", because=because))
    assert await told(parts) == 1
    await replied(parts, Receipt("failed", because=because))
    assert await told(parts) == 0
    [letter] = (await service.list(OPERATOR, ALL_DEAD_LETTERS, limit=9, cursor=None))[0]
    await service.handle(OPERATOR, letter.dead_letter_id, "seen")
    await assert_balanced(parts)


async def test_a_blocked_conversation_is_left_alone_until_somebody_writes_again(house: House) -> None:
    parts, _ = house
    await worked(parts, "1", "2", "3")
    assert [(await replied(parts, BLOCKED)).unreachable for _ in range(2)] == [False, True]
    [letter] = [await told(parts)]
    await worked(parts, "4")
    assert [(await replied(parts, BLOCKED)).unreachable for _ in range(2)] == [True, False]
    assert (letter, await told(parts)) == (1, 0), "it is known"
    await worked(parts, "5")
    assert not (await replied(parts, Receipt("sent"))).unreachable
    await worked(parts, "6")
    await replied(parts, BLOCKED)
    assert await parts.count("select count(*) from outbox where untold is not null") == 1, "it is news again"
    await assert_balanced(parts)


async def test_what_is_being_sent_again_is_told_to_nobody(house: House) -> None:
    parts, _ = house
    await worked(parts, "1")
    reply = await replied(parts, UNCERTAIN)
    await parts.replies.resend(reply.outbox_id)
    assert await told(parts) == 0
    assert await dead_letters.count_pending(parts.database) == 0
