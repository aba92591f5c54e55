"""A platform reports that it did not deliver what it had taken: the reply has failed, and people are told once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from switchboard.app.access import Principal
from switchboard.app.dead_letters.replies import ReplyNotices
from switchboard.app.dead_letters.service import DeadLetterService
from switchboard.domain.ledger import LeasedRow, OutboxPart
from switchboard.journey.reply import PullRequest
from switchboard.ports.channel import Receipt
from switchboard.ports.connector import LateFailure
from switchboard.store.messages import outbox
from switchboard.store.messages.dead_letters import ALL_DEAD_LETTERS
from tests.dead_letters import OPERATOR, opened
from tests.hands import assert_balanced, at_work, settled
from tests.lab import Lab, submission
from tests.servers import open_server
from tests.waiting import eventually

ACCOUNT = ("telegram", "bot:house")
PULL = PullRequest(*ACCOUNT)
AT = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
LATE = LateFailure(platform_message_id="wamid.1", reason="(131026) message undeliverable", at=AT)
BLOCKED = replace(LATE, because="blocked")

House = tuple[Lab, DeadLetterService]


@pytest.fixture
async def house(database_url: str) -> AsyncIterator[House]:
    async with opened(database_url) as made:
        yield made


async def worked(parts: Lab, *texts: str) -> None:
    for text in texts:
        await parts.accept.accept(submission(text))
    async with at_work(parts.worker()):
        await eventually(lambda: settled(parts))


async def leased(parts: Lab) -> LeasedRow:
    [reply] = await parts.replies.pull(PULL)
    return reply


async def sent(parts: Lab, *ids: str) -> LeasedRow:
    """The next reply, in parts with these ids if there are several."""
    reply = await leased(parts)
    for n, one in enumerate(ids if len(ids) > 1 else ()):
        await parts.replies.part(reply, reply.lease, OutboxPart(n, len(ids), "sent", None, one, None), None)
    await parts.replies.receipt(reply.outbox_id, reply.lease, Receipt("sent", ids[0]))
    return reply


async def state(parts: Lab, reply: LeasedRow) -> str:
    return (await outbox.get_reply(parts.database, reply.outbox_id)).state


async def report(parts: Lab, late: LateFailure = LATE) -> str | None:
    return await outbox.report_late_failure(parts.database, *ACCOUNT, late)


async def told(house: House) -> list[str]:
    """The categories of the letters that are made, as in a process that has just begun."""
    parts, service = house
    await ReplyNotices(parts.database, parts.notifier, parts.rule_book).tell()
    return [one.category for one in (await service.list(OPERATOR, ALL_DEAD_LETTERS, limit=9, cursor=None))[0]]


async def test_a_reply_fails_by_a_report_once_and_anew_when_sent_again(house: House) -> None:
    parts, _ = house
    await worked(parts, "hello")
    reply = await sent(parts, "wamid.1")
    assert [await report(parts), await report(parts)] == ["failed", "failed"]
    row = await outbox.get_reply(parts.database, reply.outbox_id)
    assert row.error == f"the platform had taken it, and reported later: {LATE.reason}"
    assert [await told(house), await told(house)] == [["reply_undelivered"]] * 2
    await parts.replies.resend(reply.outbox_id)
    again = await sent(parts, "wamid.1")  # as mails, whose id stays
    assert (again.outbox_id, again.unreachable) == (reply.outbox_id, False)
    assert await report(parts) == "sent", "the old report is repeated"
    assert await report(parts, replace(LATE, at=AT + timedelta(hours=1))) == "failed"
    await assert_balanced(parts)


@pytest.mark.parametrize("ids", [("wamid.1",), ("wamid.0", "wamid.1")])
async def test_a_report_that_comes_before_the_receipt_counts_with_it(house: House, ids: tuple[str, ...]) -> None:
    parts, _ = house
    await worked(parts, "hello")
    assert await report(parts) is None
    reply = await sent(parts, *ids)
    assert await state(parts, reply) == "failed"
    assert await told(house) == ["reply_undelivered"]
    await assert_balanced(parts)


async def test_only_the_part_that_was_not_delivered_is_sent_again(house: House) -> None:
    parts, _ = house
    await worked(parts, "hello")
    reply = await sent(parts, "wamid.0", "wamid.1", "wamid.2")
    assert await report(parts) == "failed"
    await parts.replies.resend(reply.outbox_id)
    again = await leased(parts)
    assert [(one.part, one.state) for one in again.parts] == [(0, "sent"), (2, "sent")]


async def test_where_nothing_can_be_sent_nothing_is_until_somebody_writes(house: House) -> None:
    parts, _ = house
    await worked(parts, "1", "2")
    await sent(parts, "wamid.1")
    assert await report(parts, BLOCKED) == "failed"
    assert await told(house) == ["reply_unreachable"]
    before = await leased(parts)
    await parts.replies.receipt(before.outbox_id, before.lease, Receipt("failed", because="blocked"))
    assert (before.unreachable, await told(house)) == (True, ["reply_unreachable"])
    await worked(parts, "3")
    after = await leased(parts)
    assert not after.unreachable
    await assert_balanced(parts)


async def test_what_somebody_wrote_before_the_report_came_is_answered(house: House) -> None:
    parts, _ = house
    await worked(parts, "1")
    await sent(parts, "wamid.1")
    await worked(parts, "2")
    assert await report(parts, BLOCKED) == "failed"
    assert not (await leased(parts)).unreachable


@pytest.mark.parametrize(
    ("ids", "late"),
    [
        (("wamid.2",), LATE),
        (("wamid.1", "wamid.1"), LATE),
    ],
    ids=["of nobody", "of two replies"],
)
async def test_a_report_of_no_certain_reply_fails_none(house: House, ids: tuple[str, ...], late: LateFailure) -> None:
    parts, _ = house
    await worked(parts, *ids)
    replies = [await sent(parts, one) for one in ids]
    assert await report(parts, late) is None
    assert [await state(parts, one) for one in replies] == ["sent"] * len(ids)
    assert await outbox.report_late_failure(parts.database, "telegram", "bot:other", late) is None
    none, day = timedelta(0), timedelta(days=1)
    assert [await outbox.forget_late_failures(parts.database, *ages) for ages in ((none, day), (day, none))] == [0, 2]


BODY: dict[str, Any] = {
    **dict(zip(("channel", "endpoint"), ACCOUNT, strict=True)),
    "platform_message_id": "wamid.1",
    "outcome": "failed",
    "reason": "undeliverable",
    "at": AT.isoformat(),
}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (BODY, 200),
        (BODY | {"because": "blocked"}, 200),
        (BODY | {"endpoint": "bot:other"}, 403),
        (BODY | {"outcome": "sent"}, 422),
        (BODY | {"because": "braked"}, 422),
        (BODY | {"at": "2026-11-29T12:00:00"}, 422),
    ],
)
async def test_a_connector_reports_for_its_own_account(
    database_url: str, tmp_path: Path, body: dict[str, Any], status: int
) -> None:
    async with open_server(database_url, tmp_path / "data") as server:
        token = await server.token_for(Principal("connector", "own", *ACCOUNT))
        answer = await server.http.post("/v1/outbox/late", json=body, headers=token)
    assert answer.status_code == status
    assert status != 200 or answer.json() == {"state": None}
