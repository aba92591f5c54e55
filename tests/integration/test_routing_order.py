"""Order where a model decides: nothing overtakes what waits, whatever a server believes, and no one else waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest
from msgspec.structs import replace

from switchboard.domain.routing import Classified
from switchboard.journey.ask import ClassifierBusy, Question
from switchboard.journey.classify import RouteLimits
from switchboard.store.messages.inbox import Acceptance
from switchboard.store.work.routing import waiting_of
from tests.hands import all_dead_letters, assert_balanced, at_work, settled
from tests.integration.test_classify import Held, Model, chosen, delivered, to_a
from tests.lab import Lab, butler, lab, rule, submission, team_of
from tests.waiting import eventually

TEAM: Final = team_of(butler("a"), butler("b"))
ASKS: Final = replace(TEAM, classify=True)
TO_B: Final = rule("System1/b", chat_type="private")
EVERY_SECOND: Final = [{"chat_type": "private"} if n % 2 else {} for n in range(20)]


async def send(parts: Lab, text: str, sender: str = "x", **more: str) -> Acceptance:
    return await parts.accept.accept(submission(text, sender=sender, **more))


@asynccontextmanager
async def two_servers(url: str) -> AsyncIterator[tuple[Lab, Lab]]:
    """One that knows that the team asks a model, and one that has not heard of it."""
    async with lab(url, [TEAM], [TO_B]) as stale, lab(url, [ASKS], [TO_B], classifying=True) as knows:
        assert (stale.rule_book.queued, knows.rule_book.queued) == (False, True)
        yield stale, knows


async def test_a_door_unaware_that_a_team_asks_a_model_overtakes_nothing(database_url: str) -> None:
    async with two_servers(database_url) as (stale, knows):
        assert (await send(knows, "1")).waits
        assert (await send(stale, "2", chat_type="private")).waits
        assert (await send(stale, "3", pinned="System1/b")).waits
        other = await send(stale, "o", sender="other", chat_type="private")
        assert not other.waits, "nobody waits in that conversation"
        assert await knows.count("select count(*) from lane where kind = 'route'") == 1, "and no lane is made for it"
        [again, mixed] = [
            one
            for one in await stale.accept.accept_all(
                [submission("4", sender="x", chat_type="private"), submission("o", sender="y", chat_type="private")]
            )
            if isinstance(one, Acceptance)
        ]
        assert (again.waits, mixed.waits) == (True, False)
        async with at_work(knows.worker(classifier=Model(to_a))):
            await eventually(lambda: settled(knows))
        assert await delivered(knows) == [("a", "1"), ("b", "2"), ("b", "3"), ("b", "4")]
        assert not (await send(stale, "5", chat_type="private")).waits, "nobody is before it any more"
        await assert_balanced(knows)


async def test_a_worker_that_has_not_heard_of_it_asks_the_model_all_the_same(database_url: str) -> None:
    """By its own rules nobody would get the message: there is no catch-all."""
    model = Model(to_a)
    async with (
        lab(database_url, [TEAM], [TO_B], classifying=True) as stale,
        lab(database_url, [ASKS], [TO_B], classifying=True) as knows,
    ):
        assert not stale.rule_book.queued
        assert (await send(knows, "1")).waits
        async with at_work(stale.worker(classifier=model)):
            await eventually(lambda: settled(knows))
        assert (model.asked, await delivered(knows)) == (["1"], [("a", "1")])
        await assert_balanced(knows)


async def test_order_holds_through_two_servers_of_which_one_is_stale(database_url: str) -> None:
    """As long as the first waits: servers take turns, and the stale one's own decision never counts."""
    model = Held()
    async with two_servers(database_url) as (stale, knows):
        async with at_work(knows.worker(classifier=Model(model))):
            assert (await send(knows, "0")).waits
            await model.begun.wait()
            for n in range(1, 20):
                assert (await send((stale, knows)[n % 3 == 0], str(n), **EVERY_SECOND[n])).waits
            assert await delivered(knows) == []
            model.go.set()
            await eventually(lambda: settled(knows))
        assert [int(text) for _, text in await delivered(knows)] == list(range(20))
        await assert_balanced(knows)


# Nobody waits for others ----------------------------------------------------------------------------------------------


async def test_a_slow_model_keeps_a_conversation_in_order_and_delays_no_other(
    database_url: str,
) -> None:
    """Both conversations need the model. It thinks about the first of one until all of the other has been answered."""
    go, begun = asyncio.Event(), asyncio.Event()

    async def play(question: Question) -> Classified:
        if question.text == "slow 0":
            begun.set()
            await go.wait()
        return chosen("a" if question.text[-1] in "02468" else "b")

    async with lab(database_url, [ASKS], [TO_B], classifying=True) as parts:
        async with at_work(parts.worker(classifier=Model(play))):
            await send(parts, "slow 0", sender="slow")
            await begun.wait()
            for n in range(1, 10):
                await send(parts, f"slow {n}", sender="slow", **EVERY_SECOND[n])
                await send(parts, f"fast {n}", sender="fast", **EVERY_SECOND[n])
            answered = "select count(*) from delivery d join message_inbox m using (request_id) where m.sender = $1"
            answered += " and d.state = 'answered'"

            async def all_answered() -> bool:
                return await parts.count(answered, "fast") == 9

            await eventually(all_answered)
            assert await delivered(parts, "slow") == [], "all of it waits behind the first"
            go.set()
            await eventually(lambda: settled(parts))
        for sender, first in (("slow", 0), ("fast", 1)):
            of: dict[str, list[int]] = {"a": [], "b": []}
            for name, text in await delivered(parts, sender, by_time=False):
                of[name].append(int(text[-1]))
            assert of == {"a": [n for n in range(first, 10) if n % 2 == 0], "b": [1, 3, 5, 7, 9]}
        await assert_balanced(parts)


async def test_what_arrives_while_the_one_before_it_is_settled_follows_it(database_url: str) -> None:
    """The worker holds the conversation and waits for the butler's lane, the server for the conversation."""
    stuck = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    model = Held("b")
    async with lab(database_url, [ASKS], [TO_B], classifying=True) as parts:
        async with at_work(parts.worker(classifier=Model(model))):
            assert not (await send(parts, "0", chat_type="private")).waits
            await eventually(lambda: settled(parts))
            assert (await send(parts, "1")).waits
            await model.begun.wait()

            async def are_stuck(number: int) -> bool:
                return await parts.count(stuck) == number

            async with parts.database.connection() as held, held.transaction():
                await held.execute("select from lane where kind = 'turn' for update")
                model.go.set()
                await eventually(lambda: are_stuck(1))
                second = asyncio.create_task(send(parts, "2", chat_type="private"))
                await eventually(lambda: are_stuck(2))
            assert not (await second).waits
            await eventually(lambda: settled(parts))
        assert await delivered(parts, by_time=False) == [("b", "0"), ("b", "1"), ("b", "2")]
        await assert_balanced(parts)


@pytest.mark.parametrize(("text", "category"), [("1", "classification_failed"), ("2", "poison")])
async def test_what_cannot_be_stored_holds_nobody_up_for_ever(
    database_url: str, monkeypatch: pytest.MonkeyPatch, text: str, category: str
) -> None:
    """A decision that the database refuses, a model's (1) or a rule's (2): a dead letter; the rest have their turn."""
    monkeypatch.setattr("switchboard.lanes.worker._PAUSE_AFTER_DEFECT", 0.01)
    async with lab(database_url, [ASKS], [TO_B], classifying=True) as parts:
        await parts.database.run("create function no() returns trigger language plpgsql as $$ begin raise 'no'; end $$")
        await parts.database.run(
            "create trigger refuse before insert on delivery for each row"
            f" when (new.system_id = 'System1/{'ab'[text == '2']}') execute function no()"
        )
        sent = [await send(parts, "1"), await send(parts, "2", chat_type="private"), await send(parts, "3")]
        async with at_work(parts.worker(classifier=Model(lambda asked: chosen_by(asked, text)))):
            await eventually(lambda: settled(parts))
        [dead_letter] = await all_dead_letters(parts)
        assert dead_letter["request_id"] == sent[int(text) - 1].request_id
        assert dead_letter["payload"]["payload"]["normalized_text"] == text
        assert dead_letter["category"] == category, dead_letter["reason"]
        await assert_balanced(parts)


async def chosen_by(question: Question, refused: str) -> Classified:
    """Whom the database takes, except for the message that it shall refuse."""
    return chosen("a" if (question.text == refused) == (refused == "1") else "b")


async def test_a_model_asking_for_hours_is_awaited_as_long_as_a_message_may_wait(database_url: str) -> None:
    async def play(_: Question) -> Classified:
        raise ClassifierBusy("come again", retry_in=7200.0)

    limits = RouteLimits(attempts=3, backoff_base=0.01, backoff_cap=0.02, patience=1000.0)
    async with lab(database_url, [ASKS], [], classifying=True) as parts:
        first = await send(parts, "1")
        async with at_work(parts.worker(classifier=Model(play), route_limits=limits)):
            await eventually(lambda: tried(parts, 1))
        waiting = await waiting_of(parts.database, first.request_id)
        assert waiting is not None
        assert waiting.ready_at is not None
        assert 900 < (waiting.ready_at - waiting.created_at).total_seconds() < 1100


async def test_after_that_time_a_whole_conversation_is_done_with_at_once(database_url: str) -> None:
    async def play(_: Question) -> Classified:
        raise ClassifierBusy("come again", retry_in=7200.0)

    limits = RouteLimits(attempts=3, backoff_base=0.01, backoff_cap=0.02, patience=0.0)
    async with lab(database_url, [ASKS], [], classifying=True) as parts:
        for n in range(5):
            await send(parts, str(n))
        async with at_work(parts.worker(classifier=Model(play), route_limits=limits)):
            await eventually(lambda: settled(parts))
        dead_letters = await all_dead_letters(parts)
        assert [dead_letter["payload"]["payload"]["normalized_text"] for dead_letter in dead_letters] == list("01234")
        assert {(dead_letter["category"], dead_letter["reason"]) for dead_letter in dead_letters} == {
            ("classification_failed", "come again")
        }
        await assert_balanced(parts)


async def tried(parts: Lab, attempts: int) -> bool:
    return await parts.count("select count(*) from attempt join lane on key = lane where kind = 'route'") == attempts
