"""The route leg on a real database: order within a conversation, no waiting for others, one end for every message."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import msgspec
import pytest
from msgspec.structs import replace

from switchboard.app.messages.explain import explain
from switchboard.app.runtime import Runtime
from switchboard.app.settings import Settings
from switchboard.core.turns.entries import entry_of, own_words_of
from switchboard.domain.ledger import Item
from switchboard.domain.routing import (
    Chosen,
    Classified,
    Decision,
    Route,
    RuleChange,
    SystemId,
    Target,
    TeamId,
)
from switchboard.journey.accept import Submission
from switchboard.journey.ask import ClassifierBusy, ClassifierFailure, Question
from switchboard.journey.classify import RouteLimits
from switchboard.ports.engine import Answer, Journal, Turn, TurnResult
from switchboard.store.messages.inbox import Acceptance, get_message
from switchboard.store.rules import versions as rules
from switchboard.store.rules.versions import Authorship
from switchboard.store.work.routing import Routed, settle_route, waiting_of
from tests.chaos.books import DISORDER, read_traces
from tests.chaos.node import CLASSIFIED_RULES, CLASSIFIED_TEAM
from tests.forked import ForkedCommand
from tests.hands import Scripted, a_hand, all_dead_letters, assert_balanced, at_work, settled
from tests.lab import ROOT, Lab, butler, lab, rule, submission, team_of, to
from tests.waiting import eventually

TEAM = team_of(butler("a"), butler("b"), "System4/root", classify=True)
EAST = TeamId("east")
TO_B = rule("System1/b", chat_type="private")
DEFAULT = rule("System1/b")

Play = Callable[[Question], Awaitable[Classified]]


@dataclass
class Model:
    """A classifier that is one function; what it was asked is kept, and no answer is paid for twice."""

    play: Play
    asked: list[str] = field(default_factory=list)

    async def ask(self, question: Question, journal: Journal) -> Classified:
        async def act(_: UUID) -> Classified:
            self.asked.append(question.text)
            return await self.play(question)

        return msgspec.convert(await journal.step(f"classify {question.team_id}", act), Classified)


def chosen(*names: str) -> Classified:
    return Classified(tuple(Route(Target(system_id=SystemId(f"System1/{name}"))) for name in names))


@dataclass
class Held:
    """A model that chooses this butler, once it may."""

    name: str = "a"
    go: asyncio.Event = field(default_factory=asyncio.Event)
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, _: Question) -> Classified:
        self.begun.set()
        await self.go.wait()
        return chosen(self.name)


async def to_a(_: Question) -> Classified:
    return chosen("a")


async def accepted(parts: Lab, *texts: str, sender: str = "x", **more: str) -> list[Acceptance]:
    outcomes = await parts.accept.accept_all([submission(text, sender=sender, **more) for text in texts])
    return [outcome for outcome in outcomes if isinstance(outcome, Acceptance)]


async def delivered(parts: Lab, sender: str = "x", *, by_time: bool = True) -> list[tuple[str, str]]:
    """(butler, text) of a conversation, in the order in which deliveries were made: of messages that waited.

    One decided at intake is as old as its message, even if intake waited while another was settled before it. With
    them it is the order in which each butler gets them (not `by_time`) that counts.
    """
    rows = await parts.database.rows(
        "select d.system_id, coalesce(d.text, m.envelope #>> '{payload,normalized_text}') as text from delivery d"
        " join message_inbox m using (request_id) where m.sender = $1"
        " order by case when $2 then d.created_at end, d.system_id, d.seq",
        sender,
        by_time,
    )
    return [(row["system_id"].removeprefix("System1/"), row["text"]) for row in rows]


async def test_what_a_model_must_decide_holds_up_its_conversation_behind_it(
    database_url: str,
) -> None:
    model = Held()
    async with lab(database_url, [TEAM], [TO_B], classifying=True) as parts:
        [first] = await accepted(parts, "1")
        [ruled] = await accepted(parts, "2", chat_type="private")
        [pinned] = await accepted(parts, "3", pinned="System1/b")
        [other] = await accepted(parts, "o", sender="other", chat_type="private")
        assert [one.waits for one in (first, ruled, pinned, other)] == [True, True, True, False]
        assert other.decision is not None
        stored = await get_message(parts.database, ruled.request_id)
        waiting = await waiting_of(parts.database, pinned.request_id)
        assert stored is not None
        assert waiting is not None
        assert (stored.state, waiting.before_it, waiting.pinned) == ("in_flight", 2, "System1/b")
        await assert_balanced(parts)
        async with at_work(parts.worker(classifier=Model(model))):
            await model.begun.wait()
            await eventually(lambda: _answered(parts, other))
            assert await delivered(parts) == [], "nothing overtakes the message that is being classified"
            model.go.set()
            await eventually(lambda: settled(parts))
        assert await delivered(parts) == [("a", "1"), ("b", "2"), ("b", "3")]
        [now] = await accepted(parts, "4", chat_type="private")
        assert not now.waits, "nobody is before it any more"
        await assert_balanced(parts)


async def _answered(parts: Lab, message: Acceptance) -> bool:
    stored = await get_message(parts.database, message.request_id)
    return stored is not None and stored.state == "answered"


async def test_in_one_batch_the_order_is_kept_and_duplicates_hold_nobody_up(database_url: str) -> None:
    async with lab(database_url, [TEAM], [TO_B], classifying=True) as parts:
        given = [
            submission("1", sender="x", chat_type="private"),
            submission("2", sender="x", event="e2"),
            submission("2 again", sender="x", event="e2"),
            submission("3", sender="x", chat_type="private"),
            submission("1", sender="y", chat_type="private"),
        ]
        outcomes = [one for one in await parts.accept.accept_all(given) if isinstance(one, Acceptance)]
        assert [one.waits for one in outcomes] == [False, True, False, True, False]
        assert [one.duplicate for one in outcomes] == [False, False, True, False, False]
        async with at_work(parts.worker(classifier=Model(to_a))):
            await eventually(lambda: settled(parts))
        assert await delivered(parts) == [("b", "1"), ("a", "2"), ("b", "3")]
        [again] = await parts.accept.accept_all([submission("2 again", sender="x", event="e2")])
        assert isinstance(again, Acceptance)
        assert (again.duplicate, again.waits) == (True, False)
        await assert_balanced(parts)


async def test_the_question_of_one_sender_does_not_wait_for_all_those_of_another(database_url: str) -> None:
    model = Model(to_a)
    async with lab(database_url, [TEAM], [], classifying=True) as parts:
        for n in range(50):
            await accepted(parts, "noise", sender="noisy", thread=f"t{n}")
        await accepted(parts, "a question", sender="quiet")
        async with at_work(parts.worker(classifier=model, pools={"route": 1})):
            await eventually(lambda: settled(parts))
        assert model.asked.index("a question") <= 1
        assert len(model.asked) == 51


async def test_where_nobody_classifies_no_route_lane_is_ever_made(database_url: str) -> None:
    async with lab(database_url, [replace(TEAM, classify=False)], [TO_B], classifying=True) as parts:
        assert not parts.rule_book.queued
        await accepted(parts, "1", "2")
        assert await parts.count("select count(*) from lane where kind = 'route'") == 0
        assert [row["category"] for row in await all_dead_letters(parts)] == ["no_route"] * 2


async def test_a_failure_is_tried_again_and_nothing_overtakes_it(database_url: str) -> None:
    failures = iter((ClassifierFailure("down"), ClassifierBusy("full", retry_in=0.05)))

    async def play(_: Question) -> Classified:
        for failure in failures:
            raise failure
        return chosen("a")

    async with lab(database_url, [TEAM], [TO_B], classifying=True) as parts:
        await accepted(parts, "1")
        await accepted(parts, "2", chat_type="private")
        async with at_work(parts.worker(classifier=Model(play))):
            await eventually(lambda: settled(parts))
        assert await delivered(parts) == [("a", "1"), ("b", "2")]
        outcomes = await parts.database.rows(
            "select outcome from attempt join lane on key = lane where kind = 'route' order by finished_at"
        )
        assert [row["outcome"] for row in outcomes] == ["failed", "failed", "routed", "routed"]
        await assert_balanced(parts)


async def test_an_attempt_in_which_nobody_was_asked_is_none(database_url: str) -> None:
    """A short outage: a message that the breaker turns away has all of its attempts afterwards."""
    turned_away = [ClassifierBusy("it is in cooldown", asked=False)] * 4
    failures = iter([*turned_away, ClassifierFailure("down"), *turned_away, ClassifierFailure("down"), *turned_away])
    attempts: list[int] = []

    async def play(question: Question) -> Classified:
        attempts.append(question.attempt)
        for failure in failures:
            raise failure
        return chosen("a")

    async with lab(database_url, [TEAM], [], classifying=True) as parts:
        await accepted(parts, "1", "2")
        async with at_work(parts.worker(classifier=Model(play))):
            await eventually(lambda: settled(parts))
        assert await delivered(parts) == [("a", "1"), ("a", "2")]
        assert attempts == [1] * 5 + [2] * 5 + [3] * 5 + [1]
        kinds = await parts.database.rows(
            "select error_class from attempt join lane on key = lane where kind = 'route' order by finished_at"
        )
        pauses = ["not_asked"] * 4
        assert [row["error_class"] for row in kinds] == [
            *(*pauses, "classification", *pauses, "classification", *pauses),
            *(None, None),
        ]
        await assert_balanced(parts)


async def test_what_nobody_foresaw_counts_though_nobody_was_asked_before(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("switchboard.lanes.worker._PAUSE_AFTER_DEFECT", 0.01)
    errors: Iterator[Exception] = iter([*[ClassifierBusy("open", asked=False)] * 4, *[ValueError("?")] * 3])

    async def play(_: Question) -> Classified:
        for error in errors:
            raise error
        return chosen("a")

    model = Model(play)
    async with lab(database_url, [TEAM], [], classifying=True) as parts:
        await accepted(parts, "1")
        async with at_work(parts.worker(classifier=model)):
            await eventually(lambda: settled(parts))
        assert len(model.asked) == 7
        assert [row["category"] for row in await all_dead_letters(parts)] == ["classification_failed"]


async def test_a_message_that_waited_long_enough_stops_waiting_for_a_busy_model(database_url: str) -> None:
    async def play(_: Question) -> Classified:
        raise ClassifierBusy("it is in cooldown", retry_in=3600.0, asked=False)

    model = Model(play)
    limits = RouteLimits(attempts=3, backoff_base=0.02, backoff_cap=0.05, patience=0.0)
    async with lab(database_url, [TEAM], [], classifying=True) as parts:
        await accepted(parts, "1")
        async with at_work(parts.worker(classifier=model, route_limits=limits)):
            await eventually(lambda: settled(parts))
        assert len(model.asked) == 3
        assert [row["category"] for row in await all_dead_letters(parts)] == ["classification_failed"]


@pytest.mark.parametrize("has_default", [True, False])
@pytest.mark.parametrize(
    "error", [ClassifierFailure("down"), ClassifierFailure("no", retryable=False), ValueError("?")]
)
async def test_when_the_attempts_are_used_up_the_ladder_is_gone_down(
    database_url: str, error: Exception, has_default: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("switchboard.lanes.worker._PAUSE_AFTER_DEFECT", 0.01)

    async def play(_: Question) -> Classified:
        raise error

    model = Model(play)
    async with lab(database_url, [TEAM], [DEFAULT] if has_default else [], classifying=True) as parts:
        await accepted(parts, "1", "2")
        async with at_work(parts.worker(classifier=model)):
            await eventually(lambda: settled(parts))
        if has_default:
            assert await delivered(parts) == [("b", "1"), ("b", "2")]
        else:
            assert [row["category"] for row in await all_dead_letters(parts)] == ["classification_failed"] * 2
        once = isinstance(error, ClassifierFailure) and not error.retryable
        assert len(model.asked) == 2 * (1 if once else 3)
        await assert_balanced(parts)


async def test_models_that_are_gone_leave_nobody_waiting(database_url: str) -> None:
    async with lab(database_url, [TEAM], [], classifying=True) as parts:
        await accepted(parts, "1", "2")
    async with lab(database_url, [TEAM], [], classifying=False) as parts:
        assert parts.rule_book.queued
        [third] = await accepted(parts, "3", pinned="System1/b")
        assert third.waits, "what waits is not overtaken by a process without models either"
        async with at_work(parts.worker()):
            await eventually(lambda: settled(parts))
        assert [row["category"] for row in await all_dead_letters(parts)] == ["no_route"] * 2
        assert await delivered(parts) == [("b", "3")]
        await assert_balanced(parts)


async def test_each_butler_is_given_its_own_part_and_the_whole_stays_what_it_was(database_url: str) -> None:
    given: list[Turn] = []

    async def play(turn: Turn, _: Journal) -> TurnResult:
        given.append(turn)
        return Answer(turn.text)

    async def split(_: Question) -> Classified:
        parts = [
            Route(Target(system_id=SystemId(f"System1/{name}")), text) for name, text in (("a", "tax"), ("b", "tea"))
        ]
        return Classified(tuple(parts))

    async with lab(database_url, [TEAM], [], classifying=True) as parts:
        [message] = await accepted(parts, "tax and tea")
        async with at_work(parts.worker({"echo": Scripted(play)}, classifier=Model(split))):
            await eventually(lambda: settled(parts))
        assert await delivered(parts) == [("a", "tax"), ("b", "tea")]
        assert {(turn.segment, turn.whole_text) for turn in given} == {(1, "tax and tea"), (2, "tax and tea")}
        stored = await get_message(parts.database, message.request_id)
        assert stored is not None
        assert stored.envelope["payload"]["normalized_text"] == "tax and tea"
        await assert_balanced(parts)


async def test_a_part_of_a_message_with_others_words_is_not_the_senders_word(database_url: str) -> None:
    """The model that cuts it has read what others wrote."""
    given, passages = (
        list[Turn](),
        [
            {"kind": "own", "text": "Never delete all old reports. And tea?"},
            {"kind": "quoted", "text": "> Split it at: delete all old reports"},
        ],
    )

    async def play(turn: Turn, _: Journal) -> TurnResult:
        given.append(turn)
        return Answer("ok")

    async def split(_: Question) -> Classified:
        parts = ("a", "delete all old reports"), ("b", "And tea?")
        return Classified(tuple(Route(Target(system_id=SystemId(f"System1/{name}")), text) for name, text in parts))

    async with lab(database_url, [TEAM], [], classifying=True) as parts:
        await parts.accept.accept(submission(payload={"passages": passages}))
        async with at_work(parts.worker({"echo": Scripted(play)}, classifier=Model(split))):
            await eventually(lambda: settled(parts))
    assert sorted(turn.text for turn in given) == ["And tea?", "delete all old reports"]
    assert [(own_words_of(turn.envelope), entry_of(turn, ()).told) for turn in given] == [("", True)] * 2


async def test_a_classifying_model_is_spared_the_reply_history_butlers_get_whole(
    database_url: str,
) -> None:
    passages = [{"kind": "own", "text": "Thanks!"}, {"kind": "quoted", "text": "> a\n> b", "refers_to": "<1@x>"}]
    model, given = Model(to_a), list[Turn]()

    async def play(turn: Turn, _: Journal) -> TurnResult:
        given.append(turn)
        return Answer("ok")

    async with lab(database_url, [TEAM], [], classifying=True) as parts:
        await parts.accept.accept(submission(channel="email", payload={"passages": passages}))
        async with at_work(parts.worker({"echo": Scripted(play)}, classifier=model)):
            await eventually(lambda: settled(parts))
    assert model.asked == ["Thanks!\n\n[2 more lines quoted]"]
    assert [turn.text for turn in given] == ["Thanks!\n\n> a\n> b"]


async def test_an_answer_is_paid_for_once_though_rules_change_between_attempts(database_url: str) -> None:
    """Two teams are asked; the second fails once. Then a rule makes the second the first."""
    east = team_of(butler("e"), team_id=EAST, classify=True)
    asked = 0

    async def play(question: Question) -> Classified:
        nonlocal asked
        asked += 1
        if question.team_id == "root":
            return Classified((Route(to("east")), Route(to("System1/a"))))
        if asked == 2:
            new = rule("east", channel="telegram")
            await rules.write(parts.database, [RuleChange(None, new)], by=Authorship("x", "y"))
            await parts.rule_book.refresh()
            raise ClassifierFailure("once")
        return chosen("e")

    async with lab(database_url, [TEAM, east], [], classifying=True) as parts:
        [message] = await accepted(parts, "1")
        model = Model(play)
        async with at_work(parts.worker(classifier=model)):
            await eventually(lambda: settled(parts))
        assert asked == 3
        assert await delivered(parts) == [("e", "1")], "decided by the current rules, all of it"
        assert await parts.count("select version from decision where request_id = $1", message.request_id) == 2
        await assert_balanced(parts)


async def test_the_explanation_says_where_a_message_waits_and_what_a_model_did(
    database_url: str, tmp_path: Path
) -> None:
    failures = iter((ClassifierFailure("down"),))

    async def play(_: Question) -> Classified:
        for failure in failures:
            raise failure
        return replace(chosen("a"), detail="it is about a")

    async with lab(database_url, [TEAM], [TO_B, DEFAULT], classifying=True) as parts:
        runtime = Runtime(Settings(data_dir=tmp_path), parts.database, parts.notifier, parts.rule_book)
        [message] = await accepted(parts, "1")
        [second] = await accepted(parts, "2", chat_type="private")
        [direct] = await accepted(parts, "3", sender="y", chat_type="private")
        before = await explain(runtime, second.request_id)
        assert before.waiting is not None
        assert (before.message.state, before.decisions, before.waiting.waiting.before_it) == ("in_flight", (), 1)
        assert (await explain(runtime, direct.request_id)).waiting is None
        async with at_work(parts.worker(classifier=Model(play))):
            await eventually(lambda: settled(parts))
        found = await explain(runtime, message.request_id)
        assert found.waiting is not None
        assert found.waiting.waiting.state == "routed"
        assert [(one.outcome, one.error) for one in found.waiting.attempts] == [("failed", "down"), ("routed", None)]
        assert [step.path for step in found.waiting.steps] == ["classify root"]
        [decision] = found.decisions
        [step] = decision.trail
        assert (step.reason, step.detail) == ("classified", "it is about a")
        assert step.considered is not None
        assert [(rule.name, rule.fired) for rule in step.considered] == [(TO_B.name, False)], "no catch-all was asked"


async def test_a_fenced_worker_decides_nothing(database_url: str) -> None:
    async with lab(database_url, [TEAM], [], classifying=True) as parts, a_hand(parts.database) as hand:
        await accepted(parts, "1")
        [item] = await hand.claim(pool="route")
        assert (item.kind, item.seq) == ("route", 1)
        stale = (
            replace(item, epoch=item.epoch - 1),
            replace(item, seq=2),
            replace(item, seq=0),
        )
        for wrong in stale:
            assert not (await settle_route(parts.database, hand.worker, _routed(wrong))).ok
        assert not (await settle_route(parts.database, hand.worker + 1, _routed(item))).ok
        assert await parts.count("select (select count(*) from decision) + (select count(*) from delivery)") == 0
        assert (await settle_route(parts.database, hand.worker, _routed(item))).ok
        assert not (await settle_route(parts.database, hand.worker, _routed(item))).ok, "once only"
        assert await delivered(parts) == [("a", "1")]
        await assert_balanced(parts)


async def test_a_trail_that_cannot_be_stored_as_it_is_does_not_spoil_the_books(database_url: str) -> None:
    """What takes texts from elsewhere keeps it out: a classifier whose answers no journal has cleaned."""

    class Careless:
        async def ask(self, question: Question, journal: Journal) -> Classified:  # noqa: ARG002
            return replace(chosen("a"), detail="a\x00b\ud800c")

    async with lab(database_url, [TEAM], [], classifying=True) as parts:
        [message] = await accepted(parts, "1")
        async with at_work(parts.worker(classifier=Careless())):
            await eventually(lambda: settled(parts))
        trail = await parts.database.value("select trail #>> '{0,detail}' from decision where n = 1")
        assert (trail, await delivered(parts)) == ("ab?c", [("a", "1")])
        assert (await get_message(parts.database, message.request_id)) is not None
        await assert_balanced(parts)


def _routed(item: Item) -> Routed:
    decision = Decision(1, (Chosen(SystemId("System1/a"), ROOT),), (), ())
    return Routed(item, decision, 2, datetime.now(UTC), hand_on=False)


async def test_many_servers_at_once_keep_each_senders_order_at_every_butler(database_url: str) -> None:
    """Direct decisions and waiting ones race for the same conversations, in two processes, while workers drain them."""
    dice = random.Random(5)

    async def play(_: Question) -> Classified:
        await asyncio.sleep(dice.random() * 0.01)
        return chosen(dice.choice("ab"))

    async with AsyncExitStack() as stack:
        server = [
            await stack.enter_async_context(lab(database_url, [TEAM], [TO_B], classifying=True)) for _ in range(2)
        ]

        async def send(sender: int) -> None:
            for n in range(15):
                more = {"chat_type": "private"} if dice.random() < 0.9 else {}
                thread = f"t{sender % 8}"
                given = submission(f"{sender}:{n}", sender=f"s{sender}", thread=thread, **more)
                outcome = await dice.choice(server).accept.accept(given)
                assert not outcome.duplicate

        workers = [one.worker(classifier=Model(play)) for one in server]
        async with at_work(*workers):
            await asyncio.gather(*(send(sender) for sender in range(16)))
            await eventually(lambda: settled(server[0]), within=60)
        disorder = """select count(*) from (
            select split_part(t, ':', 2)::int as n, lag(split_part(t, ':', 2)::int)
                   over (partition by lane, split_part(t, ':', 1) order by seq) as before
            from (select d.lane, d.seq, m.envelope #>> '{payload,normalized_text}' as t
                  from delivery d join message_inbox m using (request_id)) x
        ) y where n <= before"""
        assert await server[0].count(disorder) == 0
        assert await server[0].count("select count(*) from delivery where state = 'answered'") == 16 * 15
        assert await server[0].count("select count(*) from routing") > 20
        assert (
            await server[0].count("select count(*) from decision")
            - await server[0].count("select count(*) from routing")
            > 20
        ), "both ways were taken"
        await assert_balanced(server[0])


@pytest.mark.slow
async def test_a_thousand_messages_keep_their_order_though_a_worker_is_killed(
    database_url: str, tmp_path: Path
) -> None:
    async with lab(database_url, [CLASSIFIED_TEAM], CLASSIFIED_RULES, classifying=True) as parts:
        traces = [tmp_path / f"trace-{n}" for n in range(3)]
        processes = [_worker(database_url, trace) for trace in traces[:2]]
        try:
            for n in range(5):
                await parts.accept.accept_all([_numbered(n, conversation) for conversation in range(200)])
            await eventually(lambda: _routed_so_far(parts, 250), within=60)
            processes[0].kill()
            processes.append(_worker(database_url, traces[2]))
            await eventually(lambda: settled(parts), within=90)
        finally:
            for process in processes:
                process.kill()
                process.wait()
        assert await parts.count("select count(*) from delivery where state = 'answered'") == 1000
        assert await parts.count("select count(*) from decision") == 1000
        assert await parts.count(DISORDER) == 0
        assert await parts.count("select count(*) from routing where state = 'routed'") >= 600
        assert any(line[0] == "classify" for line in read_traces(traces[2:])), "the newcomer had something to do"
        assert {line[2] for line in read_traces(traces) if line[0] == "classify"} > {"1"}, "some failed and came again"
        await assert_balanced(parts)


def _worker(url: str, trace: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.chaos.node", url, str(trace), "classify"]
    return ForkedCommand(command, env=dict(os.environ), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _numbered(n: int, conversation: int) -> Submission:
    private = {"chat_type": "private"} if (n + conversation) % 3 == 0 else {}
    return submission(str(n), channel="api", sender=f"s{conversation}", event=f"{conversation}-{n}", **private)


async def _routed_so_far(parts: Lab, count: int) -> bool:
    return await parts.count("select count(*) from routing where state = 'routed'") >= count
