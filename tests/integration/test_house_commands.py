"""The commands that Switchboard itself answers: where a conversation begins anew, and what looks like a command."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from switchboard.core.classification.history import LIMITS
from switchboard.core.turns.house import HELP, NEW, START
from switchboard.journey.compaction import Compactor
from switchboard.ports.facts import Reader
from switchboard.ports.history import Entry
from switchboard.store.ids import new_uuid7
from switchboard.store.memory import compaction
from switchboard.store.memory.history import HistoryAddition, StoredHistory, StoredReaders
from switchboard.store.messages.inbox import Acceptance
from switchboard.store.models import classification
from switchboard.store.work import lanes as lane_store
from switchboard.store.work.lanes import Settlement
from switchboard.testing.scripted_llm import Reply, Request, ScriptedLlm
from tests.hands import Hand, a_hand, assert_balanced, at_work, settled
from tests.integration.test_compaction import ANN, OneModel, always, shown, talk
from tests.lab import DEFAULT_RULES, DEFAULT_TEAMS, Lab, butler, lab, rule, submission, team_of
from tests.turning import a_model_engine
from tests.waiting import eventually

TEAM = team_of(butler("clerk", "model"))
RULES = [rule("System1/clerk")]


def echoing(request: Request) -> Reply:
    return Reply(text=f"You said {request.messages[-1].text[-8:]}")


async def say(parts: Lab, text: str, sender: str = "ann", **more: str) -> Acceptance:
    return await parts.accept.accept(submission(text, sender=sender, thread=sender, chat_type="private", **more))


async def test_after_new_by_any_process_a_model_is_told_nothing_said_before(database_url: str) -> None:
    async with (
        lab(database_url, [TEAM], RULES) as parts,
        lab(database_url, [TEAM], RULES) as other,
        ScriptedLlm(echoing) as llm,
        a_model_engine(llm, history=StoredHistory(parts.database, StoredReaders(parts.database, parts.channels))) as (
            engine,
            _,
        ),
        at_work(parts.worker({"model": engine})),
    ):
        for sender in ("ann", "bob"):
            await say(parts, "fig trees", sender)
        await eventually(lambda: settled(parts))
        command = await say(other, "/new@house")
        again = await say(other, "/new")
        for sender in ("ann", "bob"):
            await say(parts, "and now?", sender)
        await eventually(lambda: settled(parts))
        assert await parts.replies_to(command.request_id) == await parts.replies_to(again.request_id) == [NEW]
        told = ["fig trees" in " ".join(one.text for one in request.messages) for request in llm.requests[2:]]
        assert sorted(told) == [False, True]  # Bob's conversation goes on
        await assert_balanced(parts)


async def test_a_message_from_before_the_command_answered_after_it_is_not_told(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        await say(parts, "secret")
        [item] = await hand.claim()
        [work] = await lane_store.load_work(parts.database, [item])
        now, limits = datetime.now(UTC), LIMITS["realtime"]
        asked = parts.database, work.conversation, new_uuid7(), limits, now
        assert [one.text for one in await classification.history(*asked)] == ["secret"]
        await say(parts, "/new")
        reader = Reader(work.system_id, work.conversation, ANN, private=True)
        entries = Entry("user", "secret"), Entry("assistant", "I see")
        said = HistoryAddition(reader, work.received_at, entries)
        ended = Settlement(item, "declined", "hand", None, hand_on=False, said=said)
        assert [one.ok for one in await lane_store.settle(parts.database, hand.worker, [ended])] == [True]
        assert await StoredHistory(parts.database, StoredReaders(parts.database, parts.channels)).read(reader) == []
        # Neither is a model told that decides who gets the next message.
        assert await classification.history(*asked) == []


async def test_no_summary_spans_the_beginning_of_a_conversation(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        model = OneModel(always)
        compactor = Compactor(parts.database, model, ["cheap"])
        lane = await talk(parts, hand, 25)
        assert await compactor.compact(lane) is None
        await begin(parts, hand)
        assert await shown(parts, lane) == []
        assert await compaction.load(parts.database, lane) is None
        await talk(parts, hand, 20)
        assert (await shown(parts, lane))[0] == "message 0"
        assert await compactor.compact(lane) is None
        assert "Ann keeps fig trees." not in model.asked[-1].said  # the summary of before
        assert (await shown(parts, lane))[:2] == ["Ann keeps fig trees.", "message 10"]
        await compactor.aclose()


async def test_a_summary_in_progress_when_a_conversation_restarts_is_dropped(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        lane = await talk(parts, hand, 20)

        async def meanwhile() -> str | None:
            await begin(parts, hand)
            return await always()

        problem = await Compactor(parts.database, OneModel(meanwhile), ["cheap"]).compact(lane)
        assert problem == "the entries have changed meanwhile"
        assert await shown(parts, lane) == []


async def begin(parts: Lab, hand: Hand) -> None:
    await parts.accept.accept(submission("/new", sender="ann", chat_type="private"))
    [item] = await hand.claim()
    await hand.answer(item)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("/help", HELP),
        ("/START", START),
        ("/start K7QM2XWP4B", START),
        ("/hlep", "Did you mean /help? If not, write it without the slash."),
        ("/stop please", "Did you mean /stop? Send it alone, with nothing behind it."),
        ("/stop!", "Did you mean /stop? Send it alone, with nothing behind it."),
        ("/approve", "To approve something, send /approve and the id that the request names, and nothing else."),
        ("/answer 1a2b3c4d", "To answer a question, send /answer, the id that the question names, and your answer."),
        ("/weather", None),
        ("/new curtains for the living room, in blue or green", None),
        ("/help@other_bot", None),
        ("see /help", None),
    ],
)  # fmt: skip
async def test_commands_and_slips_are_answered_and_all_else_goes_to_the_butler(
    database_url: str, text: str, answer: str | None
) -> None:
    async with lab(database_url) as parts, at_work(parts.worker()):
        message = await say(parts, text)
        await eventually(lambda: settled(parts))
        assert await parts.replies_to(message.request_id) == [answer or text]


async def test_a_rule_that_names_a_command_comes_first(database_url: str) -> None:
    own = rule("System1/echo", channel="telegram", command="/help")
    async with lab(database_url, DEFAULT_TEAMS, [*DEFAULT_RULES, own]) as parts, at_work(parts.worker()):
        asked, other = await say(parts, "/help"), await say(parts, "/hepl")
        await eventually(lambda: settled(parts))
        assert await parts.replies_to(asked.request_id) == ["/help"]
        assert (await parts.replies_to(other.request_id))[0].startswith("Did you mean /help?")
