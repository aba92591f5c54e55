"""Histories: saved together with the reply, given back to the next turn, and never to anybody else."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from switchboard.core.turns.render import messages
from switchboard.domain.message import RequestId
from switchboard.journey.compaction import Compactor
from switchboard.journey.turn import TurnLimits
from switchboard.ports.engine import Answer, EngineFailure, Journal, NoReply, Refusal, Turn, TurnResult
from switchboard.ports.facts import Reader
from switchboard.ports.history import Entry, EntryCall
from switchboard.store.books import audit_books
from switchboard.store.memory import compaction
from switchboard.store.memory.history import HistoryAddition, StoredHistory, StoredReaders, entry_rows
from switchboard.store.work import lanes
from switchboard.store.work.lanes import Settlement
from tests.hands import a_hand, assert_balanced, at_work, settled
from tests.integration.test_compaction import OneModel
from tests.lab import TRUSTING, Lab, lab, submission
from tests.waiting import SOON, eventually


@dataclass
class Talker:
    """Answers "re: …", remembers both, and notes the history that it was given."""

    history: StoredHistory
    seen: list[list[Entry]] = field(default_factory=list)

    async def run(self, turn: Turn, _: Journal) -> TurnResult:
        if turn.dead_letter is not None:
            return NoReply(entries=(Entry("user", "of a notice"),))
        self.seen.append(list(await self.history.load(turn)))
        said = Entry("user", turn.text), Entry("assistant", f"re: {turn.text}")
        return Answer(f"re: {turn.text}", entries=said)


def history_of(parts: Lab) -> StoredHistory:
    return StoredHistory(parts.database, StoredReaders(parts.database, TRUSTING))


async def nothing() -> None:
    """Between two messages."""


async def converse(
    parts: Lab, *given: dict[str, Any], between: Callable[[], Awaitable[None]] = nothing
) -> list[list[Entry]]:
    """One message after the other; the history that each turn was given."""
    talker = Talker(history_of(parts))
    async with at_work(parts.worker({"echo": talker}, poll=0.02)):
        for message in given:
            await parts.accept.accept(submission(**message))
            await eventually(lambda: settled(parts))
            await between()
    await assert_balanced(parts)
    return talker.seen


def texts(entries: list[Entry]) -> list[str]:
    return [entry.text for entry in entries]


async def test_a_turn_is_given_what_was_said_before_it_and_by_whom(database_url: str) -> None:
    async with lab(database_url, channels=TRUSTING) as parts:
        seen = await converse(parts, *({"text": str(n), "chat_type": "private"} for n in range(3)))
    assert [texts(one) for one in seen] == [[], ["0", "re: 0"], ["0", "re: 0", "1", "re: 1"]]
    assert [(e.role, e.author, e.position) for e in seen[1]] == [
        ("user", "telegram/bot%3Ahouse/alice", 1),
        ("assistant", "", 2),
    ]
    assert all(entry.created_at for entry in seen[2])


async def test_over_many_turns_a_history_keeps_its_beginning_but_for_steps_of_20(database_url: str) -> None:
    async with lab(database_url, channels=TRUSTING) as parts:
        seen = await converse(parts, *({"text": str(n), "chat_type": "private"} for n in range(45)))
    moves = []
    for before, now in pairwise(seen):
        assert len(now) <= 40
        if now[: len(before)] != before:
            moves.append(now[0].position - before[0].position)
    assert moves == [20, 20, 20]


async def test_a_compaction_changes_the_beginning_once(database_url: str) -> None:
    """What a model is told begins with what it was told the turn before, but for three compactions of 20 entries."""
    summaries = iter(range(1, 9))

    async def answer() -> str:
        return json.dumps({"summary": f"summary {next(summaries)}"})

    async with lab(database_url, channels=TRUSTING) as parts:
        compactor = Compactor(parts.database, OneModel(answer), ["cheap"])

        async def compact() -> None:
            for lane in await compaction.claim(parts.database, 9, timedelta(0)):
                assert await compactor.compact(lane) is None

        said = ({"text": str(n), "chat_type": "private"} for n in range(45))
        seen = [messages(one, [], "UTC") for one in await converse(parts, *said, between=compact)]
    changed = [n for n, (before, now) in enumerate(pairwise(seen), 1) if now[: len(before)] != before]
    assert changed == [20, 30, 40]
    assert ["summary" in seen[n][0].text for n in (19, 20, 30, 40)] == [False, True, True, True]
    assert "summary 3" in seen[44][0].text


async def test_other_butlers_conversations_and_people_are_not_heard(database_url: str) -> None:
    async with lab(database_url, channels=TRUSTING) as parts:
        private = await converse(
            parts,
            {"text": "ann's secret", "sender": "ann", "chat_type": "private"},
            {"text": "what did ann say?", "sender": "bob", "chat_type": "private"},
            {"text": "and here?", "sender": "bob", "thread": "42", "chat_type": "group"},
            {"text": "I am here too", "sender": "ann", "thread": "42", "chat_type": "group"},
        )
    assert [texts(one) for one in private] == [[], [], [], ["and here?", "re: and here?"]]


async def test_private_words_in_a_thread_are_not_read_when_others_read_along(database_url: str) -> None:
    """Anybody who holds the token names any thread of `api`; its answers reach the sender alone."""
    api = {"channel": "api", "thread": "t"}
    async with lab(database_url, channels=TRUSTING) as parts:
        seen = await converse(
            parts,
            {"text": "ann's secret", "sender": "ann", **api},
            {"text": "what was said?", "sender": "bob", **api},
            {"text": "to all", "sender": "ann", "chat_type": "group", **api},
            {"text": "and now?", "sender": "ann", **api},
        )
    assert [texts(one) for one in seen[:3]] == [[], [], []]
    assert texts(seen[3]) == ["ann's secret", "re: ann's secret", "to all", "re: to all"]


def mail(text: str, sender: str, *, auth: bool = True, **headers: str) -> dict[str, Any]:
    head = {"to": "bot@house.example", "message-id": f"<{text}@x>", "references": "<first@x>", **headers}
    if auth:
        head["authentication-results"] = "mx.example; dkim=pass header.d=example.org"
    return {
        "text": text,
        "channel": "email",
        "endpoint": "imap:bot@house.example",
        "sender": sender,
        "event": f"<{text}@x>",
        "raw": {"headers": head},
    }


async def test_mail_that_is_not_surely_from_its_sender_reads_and_writes_nothing(database_url: str) -> None:
    ann = "ann@example.org"
    async with lab(database_url, channels=TRUSTING) as parts:
        seen = await converse(
            parts,
            mail("first", ann),
            mail("forged", ann, auth=False),
            mail("with-bob", ann, cc="bob@example.org"),
            mail("alone", ann),
        )
        kept = await parts.database.rows("select text from entry where role = 'user' order by position")
    assert [texts(one)[::2] for one in seen] == [[], [], [], ["first", "with-bob"]]
    assert [row["text"] for row in kept] == ["first", "with-bob", "alone"]


async def test_calls_are_kept_cut_and_storable(database_url: str) -> None:
    call = EntryCall("c1", "read_file", "{" + "a" * 2000, "b\0" * 2000, ok=False)

    async def result(_: Turn) -> TurnResult:
        return Answer("done", entries=(Entry("assistant", "done\0", calls=(call,)),))

    async with lab(database_url, channels=TRUSTING) as parts:
        [entry] = await after(parts, result)
    [kept] = entry.calls
    assert (kept.id, kept.ok, len(kept.arguments), entry.text) == ("c1", False, 1000, "done")
    assert kept.result == ("b\0" * 500).replace("\0", "")


async def after(parts: Lab, result: Callable[[Turn], Awaitable[TurnResult]]) -> list[Entry]:
    """The history after one turn that ends like this."""
    turns: list[Turn] = []

    @dataclass
    class Once:
        async def run(self, turn: Turn, _: Journal) -> TurnResult:
            turns.append(turn)
            return NoReply() if turn.dead_letter is not None else await result(turn)

    await parts.accept.accept(submission("x", chat_type="private"))
    limits = TurnLimits(attempts=1, timeout=SOON, backoff_base=0.01)
    async with at_work(parts.worker({"echo": Once()}, limits=limits)):
        await eventually(lambda: settled(parts))
    return list(await history_of(parts).load(turns[0]))


@pytest.mark.parametrize(
    ("result", "kept"),
    [
        (Answer("a", entries=(Entry("user", "u"), Entry("assistant", "a"))), ["u", "a"]),
        (NoReply("heard", entries=(Entry("user", "u"),)), ["u"]),
        (Refusal("no", entries=(Entry("user", "u"),)), ["u"]),
        (Answer("a"), []),
        (EngineFailure("down", retryable=False), []),
    ],
)
async def test_what_is_kept_is_what_the_turn_ended_with(
    database_url: str, result: TurnResult | EngineFailure, kept: list[str]
) -> None:
    async def ended(_: Turn) -> TurnResult:
        if isinstance(result, EngineFailure):
            raise result
        return result

    async with lab(database_url, channels=TRUSTING) as parts:
        assert texts(await after(parts, ended)) == kept


async def test_reply_and_entries_are_settled_together_or_not_at_all(database_url: str) -> None:
    async with (
        lab(database_url, channels=TRUSTING) as parts,
        a_hand(parts.database) as hand,
        a_hand(parts.database) as other,
    ):
        accepted = await parts.accept.accept(submission("x", chat_type="private"))
        [item] = await hand.claim()
        [work] = await lanes.load_work(parts.database, [item])
        said = HistoryAddition(Reader(work.system_id, work.conversation, "ann", private=True), work.received_at, ONE)
        ended = Settlement(item, "answered", "hand", None, outbox_id=accepted.request_id, text="re", said=said)
        [fenced] = await lanes.settle(parts.database, other.worker, [ended])
        assert (fenced.ok, await counts(parts, accepted.request_id)) == (False, (0, 0))
        [counted] = await lanes.settle(parts.database, hand.worker, [ended])
        assert (counted.ok, await counts(parts, accepted.request_id)) == (True, (1, 1))
        [again] = await lanes.settle(parts.database, hand.worker, [ended])
        assert (again.ok, await counts(parts, accepted.request_id)) == (False, (1, 1))


ONE = (Entry("user", "x"),)


async def counts(parts: Lab, request_id: RequestId) -> tuple[int, int]:
    """How many replies to a message, and how many entries of it, there are."""
    replies = await parts.count("select count(*) from outbox where request_id = $1", request_id)
    return replies, await parts.count("select count(*) from entry where request_id = $1", request_id)


def test_turns_without_entries_are_settled_as_before() -> None:
    assert entry_rows([]) is None


async def test_an_entry_of_a_turn_that_has_not_ended_is_on_no_clean_books(database_url: str) -> None:
    async with lab(database_url, channels=TRUSTING) as parts:
        await parts.accept.accept(submission("x", chat_type="private"))
        await parts.database.run(
            "insert into entry (lane, position, request_id, role, person, private, text, created_at) "
            "select lane, 1, request_id, 'user', 'ann', true, 'x', now() from delivery"
        )
        books = await audit_books(parts.database)
    assert [one for one in books.problems if "is in the history of" in one]
