"""The engine `memo`: what is filed, what is found, and who never sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from switchboard.agents.memo import MemoEngine, answer_text, excerpt
from switchboard.core.channels.registry import CHANNELS
from switchboard.core.envelope.identity import conversation
from switchboard.core.envelope.strict import strict
from switchboard.core.people.readers import person_of
from switchboard.domain.envelope import Envelope
from switchboard.domain.ledger import Item
from switchboard.domain.message import Conversation, Message, RequestId
from switchboard.domain.routing import Chosen, Decision, SystemId, Unrouted
from switchboard.journey.turn import turn_of
from switchboard.lanes.journal import StepLog, StoredJournal
from switchboard.lanes.kinds import KINDS
from switchboard.ports.engine import Answer, NoReply, Turn, TurnResult
from switchboard.ports.memos import Memo
from switchboard.store.database import Database
from switchboard.store.ids import new_uuid7
from switchboard.store.messages import inbox
from switchboard.store.models.memos import StoredMemos
from switchboard.store.work import lanes
from switchboard.store.work.lanes import Settlement
from switchboard.store.work.processes import NewProcess
from switchboard.testing.engines import MemoryJournal, Record
from tests.lab import ROOT, envelope, envelope_json, member
from tests.waiting import SOON

# memo -------------------------------------------------------------------------------------------------------------

NOTES = SystemId("System1/notes")


@dataclass
class MemoLab:
    """A worker's place at a real database: accepts messages and lets the memo engine answer them."""

    database: Database
    worker: int

    async def accept(self, given: Envelope, decision: Decision) -> Message:
        request_id = RequestId(new_uuid7())
        message = Message(
            request_id,
            conversation(given, CHANNELS[given.source.channel]),
            str(request_id),
            given,
            b"{}",
            "application/json",
            datetime.now(UTC),
        )
        await inbox.accept(self.database, [inbox.Arrival(message, decision)])
        return message

    async def claim(self) -> tuple[Item, Turn]:
        [item] = await lanes.claim(self.database, self.worker, tuple(KINDS), {"work": [1, 1, 1, 1]})
        [work] = await lanes.load_work(self.database, [item])
        return item, turn_of(work, member(work.system_id, "memo", work.team_id), item.attempts)

    async def turn(self) -> TurnResult:
        """Claim the next delivery or notice, and do it."""
        item, turn = await self.claim()
        async with await StoredJournal.open(StepLog(self.database, self.worker), item, turn.request_id) as journal:
            result = await MemoEngine(StoredMemos(self.database)).run(turn, journal)
        settlement = Settlement(item, "declined", "memo", datetime.now(UTC), hand_on=False)
        [settled] = await lanes.settle(self.database, self.worker, [settlement])
        assert settled.ok
        return result

    async def ask(self, text: str, *, to: SystemId = NOTES, **more: Any) -> str:
        """Send a message to a butler; its answer. `more` as of `envelope`."""
        given = envelope(text, **more)
        await self.accept(given, Decision(1, (Chosen(to, ROOT),), (), ()))
        result = await self.turn()
        assert isinstance(result, Answer)
        return result.text

    async def memos(self) -> list[asyncpg.Record]:
        return list(await self.database.rows("select * from memo order by created_at"))


@asynccontextmanager
async def memo_lab(url: str) -> AsyncIterator[MemoLab]:
    database = await Database.connect(url, size=2)
    try:
        connection = await database.dedicated_connection()
        try:
            worker = await lanes.register_worker(connection, NewProcess("worker", (), "test", 1, "0", 600), lock=True)
            yield MemoLab(database, worker)
        finally:
            await connection.close()
    finally:
        await database.close()


@pytest.fixture
async def lab(database_url: str) -> AsyncIterator[MemoLab]:
    async with memo_lab(database_url) as made:
        yield made


def earlier(answer: str) -> list[str]:
    """The earlier memos in an answer, without their dates."""
    return [line.split(": ", 1)[1] for line in answer.splitlines() if line.startswith("- ")]


async def test_the_memo_engine_files_and_says_so(lab: MemoLab) -> None:
    answer = await lab.ask("Buy milk\n tomorrow")
    assert (
        answer
        == "Filed: “Buy milk tomorrow”. Ask me about it later: I have no model, but I can find whatever I have filed."
    )
    [memo] = await lab.memos()
    assert (memo["text"], memo["system_id"], memo["private"]) == ("Buy milk\n tomorrow", NOTES, True)
    assert memo["person"] == "telegram/bot%3Ahouse/alice"


async def test_the_nearest_earlier_memos_come_first_and_are_three(lab: MemoLab) -> None:
    for text in ("milk", "the dentist is on Monday", "buy milk and bread", "bread", "milk and honey and bread"):
        await lab.ask(text)
    found = earlier(await lab.ask("buy milk, bread"))
    assert found[0] == "buy milk and bread"
    assert len(found) == 3
    assert "the dentist is on Monday" not in found


async def test_one_persons_memos_are_never_shown_to_another(lab: MemoLab) -> None:
    await lab.ask("the safe code is 1234", sender="alice")
    strangers: list[dict[str, Any]] = [
        {"sender": "bob"},
        {"sender": "Alice"},
        {"sender": "alice", "channel": "email"},
        {"sender": "alice", "endpoint": "bot:office"},
        {"sender": "house/alice", "endpoint": "bot"},
    ]
    for stranger in strangers:
        assert "1234" not in await lab.ask("what is the safe code?", **stranger)
    assert earlier(await lab.ask("what is the safe code?", sender="alice")) == ["the safe code is 1234"]


async def test_a_person_finds_what_was_said_in_another_conversation(lab: MemoLab) -> None:
    await lab.ask("the wifi password is hidden", thread="one", chat_type="private")
    found = earlier(await lab.ask("wifi password?", thread="two", chat_type="private"))
    assert found == ["the wifi password is hidden"]


async def test_a_group_hears_only_what_was_said_in_it(lab: MemoLab) -> None:
    await lab.ask("party for Carol: secret", sender="alice")
    await lab.ask("party plan: other group", sender="alice", thread="g2", chat_type="group")
    await lab.ask("party plan: cake", sender="bob", thread="g1", chat_type="group")
    answer = await lab.ask("what about the party?", sender="alice", thread="g1", chat_type="supergroup")
    assert earlier(answer) == ["party plan: cake"]


async def test_a_group_that_shares_the_key_of_a_private_chat_hears_nothing_of_it(lab: MemoLab) -> None:
    # Without a thread the conversation is known by its sender, in private and in a group alike.
    await lab.ask("the safe code is 1234", sender="alice", chat_type="private")
    for chat_type in ("group", "supergroup", "channel"):
        answer = await lab.ask("what is the safe code?", sender="alice", chat_type=chat_type)
        assert "1234" not in answer


@pytest.mark.parametrize(
    "group",
    [
        {"thread": "-1001"},
        {"raw": {"update_id": 1, "message": {"chat": {"id": -1001, "type": "group"}, "from": {"id": 42}}}},
        {"channel": "slack", "thread": "C0123"},
    ],
)
async def test_a_chat_that_does_not_say_what_it_is_may_be_a_group(lab: MemoLab, group: dict[str, Any]) -> None:
    channel = group.get("channel", "telegram")
    await lab.ask("the safe code is 1234", sender="42", channel=channel, chat_type="private")
    assert "1234" not in await lab.ask("what is the safe code?", sender="42", **group)


@pytest.mark.parametrize("alone", [{"thread": "42"}, {}, {"channel": "email", "thread": "<1@x>"}, {"channel": "cli"}])
async def test_a_chat_in_which_nobody_else_can_be_is_private(lab: MemoLab, alone: dict[str, Any]) -> None:
    channel = alone.get("channel", "telegram")
    await lab.ask("the safe code is 1234", sender="42", channel=channel, thread="before", chat_type="private")
    assert "1234" in await lab.ask("what is the safe code?", sender="42", **alone)


async def test_several_writers_are_a_group(lab: MemoLab) -> None:
    await lab.ask("the safe code is 1234", sender="alice")
    given = envelope_json("what is the safe code?", sender="alice", thread="t")
    given["sender"]["participants"] = {"alice": "Alice", "bob": "Bob"}
    await lab.accept(strict(Envelope, given), Decision(1, (Chosen(NOTES, ROOT),), (), ()))
    assert "1234" not in str(await lab.turn())


async def test_butlers_do_not_share_their_memos(lab: MemoLab) -> None:
    await lab.ask("milk", to=SystemId("System1/shopping"))
    assert earlier(await lab.ask("milk")) == []


async def test_a_repeated_turn_files_once(lab: MemoLab) -> None:
    await lab.accept(envelope("milk"), Decision(1, (Chosen(NOTES, ROOT),), (), ()))
    _, turn = await lab.claim()
    seed = uuid4()
    engine = MemoEngine(StoredMemos(lab.database))
    answers = [await engine.run(turn, MemoryJournal(Record(seed))) for _ in range(2)]
    assert answers[0] == answers[1]
    assert len(await lab.memos()) == 1


async def test_a_dead_letter_is_filed_and_shown_to_nobody(lab: MemoLab) -> None:
    handler = SystemId("System4/root")
    unrouted = Unrouted(ROOT, "no_route", "canary in the reason", handler)
    await lab.accept(envelope("where am I"), Decision(1, (), (unrouted,), ()))
    assert isinstance(await lab.turn(), NoReply)
    [memo] = await lab.memos()
    assert memo["text"] == "Dead letter (no_route): canary in the reason\nwhere am I"
    for chat_type in ("private", "group"):
        assert "canary" not in await lab.ask("where am I", to=handler, chat_type=chat_type)


async def test_attachments_are_filed_by_name(lab: MemoLab) -> None:
    given = envelope_json("")
    given["payload"]["attachments"] = [
        {"media_type": "image/png", "filename": "roof.png", "size_bytes": 1},
        {"media_type": "audio/ogg", "size_bytes": 1},
    ]
    await lab.accept(strict(Envelope, given), Decision(1, (Chosen(NOTES, ROOT),), (), ()))
    assert "[roof.png] [audio/ogg]" in str(await lab.turn())
    assert earlier(await lab.ask("where is roof.png")) == ["[roof.png] [audio/ogg]"]


async def test_a_very_long_name_is_still_one_person(lab: MemoLab) -> None:
    long = "é" * 511
    await lab.ask("milk", sender=long + "1")
    assert earlier(await lab.ask("milk", sender=long + "2")) == []
    assert earlier(await lab.ask("milk", sender=long + "1")) == ["milk"]
    assert len(person_of(envelope(sender=long))) == 400


HOSTILE = [
    "it's \\ 'quoted' | & ! <-> ( ) :* ''",
    "foo:* bar:A 'baz",
    "'; drop table memo; --",
    "\\' \\\\ \\",
    "a'b\\c'd http://x.org/a'b?c='d' e-mail@ex'ample.org",
    "''''",
    "& | !",
    "İıßŉ ǰΐ",
    "a\tb\u2028c\u00a0d\ufeff",
    "$1 $2 %s %(x)s {0}",
    "/path/to/the'file <tag attr='x'> &amp;",
]


@pytest.mark.parametrize("text", HOSTILE)
async def test_hostile_text_is_only_text(lab: MemoLab, text: str) -> None:
    await lab.ask("unrelated words", sender="alice")
    await lab.ask(text, sender="alice")
    found = earlier(await lab.ask(text, sender="alice"))
    assert found in ([excerpt(text)], [])
    assert "unrelated words" not in found


HUGE = {
    "one word": "x" * 1_000_000,
    "many words": " ".join(f"w{n}" for n in range(150_000)),
    "two letters": " ".join(chr(0x4E00 + n % 20000) + chr(0x4E00 + n // 2) for n in range(30_000)),
    "four bytes": " ".join(chr(0x20000 + n % 40000) for n in range(300_000)),
    "hyphens": "-".join(f"a{n}" for n in range(100_000)),
    "paths": " ".join(f"http://h{n}.org/p{n}/q" for n in range(40_000)),
    "quotes": "'\\" * 500_000,
}


@pytest.mark.parametrize("name", HUGE)
async def test_a_huge_text_is_filed_and_found(lab: MemoLab, name: str) -> None:
    def memo(text: str) -> Memo:
        return Memo(uuid4(), Conversation("a/b/c"), NOTES, RequestId(new_uuid7()), "a/b/c", True, text)

    first, second = memo(HUGE[name]), memo(HUGE[name])
    assert await StoredMemos(lab.database).file(first)
    assert not await StoredMemos(lab.database).file(first)
    async with asyncio.timeout(SOON):
        found = await StoredMemos(lab.database).nearest(second, 3)
    assert [f.memo_id for f in found] in ([first.memo_id], [])
    assert len(answer_text(second.text, found)) < 1000


async def test_only_earlier_messages_are_found(lab: MemoLab) -> None:
    def memo(request_id: UUID) -> Memo:
        return Memo(uuid4(), Conversation("a/b/c"), NOTES, RequestId(request_id), "a/b/c", True, "milk")

    first, second = new_uuid7(), new_uuid7()
    await StoredMemos(lab.database).file(memo(second))
    assert await StoredMemos(lab.database).nearest(memo(first), 3) == []
