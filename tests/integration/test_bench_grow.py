"""What `bench grow` fills in looks like what the real legs write: the books, the lists and explain take it so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from switchboard.app.messages.explain import explain
from switchboard.app.settings import Settings
from switchboard.app.wiring import open_runtime
from switchboard.bench import grow, lab
from switchboard.bench.filling import RARE
from switchboard.store.books import audit_books
from switchboard.store.messages.inbox import get_raw
from switchboard.store.messages.outbox import page_of_replies
from switchboard.store.messages.searching import IdRange, MessageFilter, find_messages

MESSAGES = 2000


@pytest.fixture
def home() -> Iterator[Path]:
    with lab.home() as place:
        yield place


async def test_what_is_filled_in_balances_and_is_listed(database_url: str, home: Path) -> None:
    said: list[str] = []
    settings = Settings(database_url=database_url, data_dir=home / "data", teams_dir=home / "teams")
    async with grow.growing(settings, MESSAGES, 0.02, said.append) as parts:
        result = await parts.grow()
    async with open_runtime(settings) as runtime:
        database = runtime.database
        found = await audit_books(database)
        assert (found.balanced, found.problems, found.messages.accepted) == (True, (), MESSAGES)
        assert (found.messages.in_flight, found.messages.dead) == (0, MESSAGES // 500)
        [rare] = await find_messages(database, MessageFilter(channel=RARE), IdRange(), oldest=False, limit=2)
        explained = await explain(runtime, rare.request_id)
        assert [reply.reply.state for reply in explained.replies] == ["sent"]
        assert [len(reply.receipts) for reply in explained.replies] == [1]
        assert [len(delivery.attempts) for delivery in explained.deliveries] == [1]
        bytes_, _ = await get_raw(database, rare.request_id) or (b"", "")
        assert 900 < len(bytes_) < 1200
        assert json.loads(bytes_)["source"]["channel"] == "telegram"
        assert len(await page_of_replies(database, state="sent", limit=MESSAGES)) == MESSAGES - MESSAGES // 500
    assert result.few.keys() == result.many.keys()
    assert {"accept one message", "claim", "explain", "books balance"} < result.many.keys()
    *tables, (last, *_, total) = grow.summary(result)
    assert (last, {"message_inbox", "message_raw", "outbox"} < {name for name, *_ in tables}) == ("all tables", True)
    assert total == pytest.approx(sum(size.total for size in result.sizes))
    assert said
