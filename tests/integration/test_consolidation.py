"""Consolidation: facts are found in what is new, once, in one space at a time, for so many tokens; undone as one."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Final

import pytest

from switchboard.app.memory.checks import check_consolidation
from switchboard.domain.ledger import LaneKey
from switchboard.domain.llm import ModelAttempt, Reply, Report, Request, Usage
from switchboard.domain.message import Conversation
from switchboard.domain.routing import SystemId
from switchboard.journey.compaction import Compactor
from switchboard.journey.consolidation import NOTHING_NEW, Consolidator
from switchboard.ports.facts import Reader
from switchboard.ports.models import Asking
from switchboard.store.ids import new_uuid7
from switchboard.store.memory import consolidation, facts
from switchboard.store.memory.facts import NewFact
from tests.hands import a_hand
from tests.integration.test_compaction import ANN, FIG, Cheap, OneModel, always, learned, talk
from tests.lab import Lab, lab
from tests.waiting import eventually
from tests.width import wide

Answer = Callable[[list[dict[str, object]]], str | None]
DAY: Final = 50_000
SPENT: Final = Usage(900, 100, 0.01)


@dataclass
class Script(Cheap):
    """A model that answers what it reads of a conversation with what `answer` makes of that."""

    answer: Answer
    read: list[list[dict[str, object]]] = field(default_factory=list)

    async def ask(self, request: Request, asking: Asking) -> Report:
        assert asking.asker == "consolidation"
        told = json.loads(request.messages[0].text)["conversation"]
        self.read.append(told)
        text = self.answer(told)
        if text is None:
            return Report(None, (ModelAttempt("cheap", "unavailable", "gone"),))
        return Report(Reply(text, usage=SPENT), (ModelAttempt("cheap", "answered", usage=SPENT),))


def stating(*stated: object) -> str:
    return json.dumps({"facts": stated})


def fig(entry: object = 3, text: str = FIG) -> dict[str, object]:
    return {"text": text, "entry": entry, "value": text, "subject": "self", "predicate": "owns"}


def figs(_: object) -> str:
    return stating(fig())


def obey(told: list[dict[str, object]]) -> str:
    """All that anybody has said are facts of everybody's."""
    return stating(*(fig(entry, str(one["text"])) for one in told[-3:] for entry in (one["entry"], told[0]["entry"])))


def consolidator(parts: Lab, model: Script, budget: int = DAY) -> Consolidator:
    return Consolidator(parts.database, model, ["cheap"], budget)


async def add(
    parts: Lab, lane: LaneKey, said: Sequence[tuple[str, str]], *, person: str = ANN, private: bool = True
) -> None:
    """Turns of which nothing but their entries is known: what was said, and the reply."""
    last = await parts.count("select coalesce(max(position), 0) from entry where lane = $1", lane)
    for n, texts in enumerate(said):
        turn = new_uuid7()
        for m, (role, text) in enumerate(zip(("user", "assistant"), texts, strict=True)):
            await parts.database.run(
                "insert into entry (lane, position, request_id, role, person, private, text, created_at) "
                "values ($1, $2, $3, $4, $5, $6, $7, clock_timestamp())",
                *(lane, last + 2 * n + m + 1, turn, role, person, private, text),
            )


async def rewind(parts: Lab, lane: LaneKey) -> None:
    """Let all be new once more."""
    await parts.database.run("update consolidation set position = 0, ready_at = '-infinity' where lane = $1", lane)


async def outcomes(parts: Lab) -> list[tuple[str | None, int]]:
    """Of runs, the latest first: what became of them, and how many new facts they found."""
    return [(one.outcome, one.facts) for one in await consolidation.list_runs(parts.database, None, None, 1000)]


async def test_ten_turns_are_looked_through_once_and_never_again_without_news(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        model = Script(figs)
        worker = consolidator(parts, model)
        await talk(parts, hand, 9)
        assert await worker.start_due() == 0
        lane = await talk(parts, hand, 1)
        assert await worker.start_due() == 1
        await eventually(lambda: came_to(parts, [("kept", 1)]))
        for _ in range(wide(500, 50)):
            assert await worker.start_due() == 0
            assert await worker.consolidate(lane) == NOTHING_NEW
        assert (len(model.read), await learned(parts)) == (1, [FIG])
        [run] = await consolidation.list_runs(parts.database, None, None, 10)
        assert (run.person, run.first_position, run.last_position, run.episodes) == (ANN, 1, 20, 10)
        assert (run.model, run.tokens, run.cost_usd, run.reason) == ("cheap", 1000, 0.01, "")
        await worker.aclose()


async def came_to(parts: Lab, wanted: list[tuple[str | None, int]]) -> bool:
    return await outcomes(parts) == wanted


async def test_a_single_turn_is_looked_through_after_a_day(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        lane = await talk(parts, hand, 2)
        store, hour = parts.database, timedelta(minutes=5)
        assert await consolidation.claim(store, 2, hour) == []
        await store.run("update entry set created_at = created_at - interval '25 hours'")
        assert await consolidation.claim(store, 2, hour) == [lane]
        assert await consolidation.claim(store, 2, hour) == [], "it is another process's for five minutes"


@pytest.mark.parametrize(
    ("answer", "outcome", "reason"),
    [
        (None, "failed", "cheap: unavailable"),
        ("There are none.", "rejected", "not a JSON object"),
        ('{"facts": "figs"}', "rejected", "not a list"),
        (stating(*[fig()] * 11), "rejected", "11 facts"),
        (stating(fig(), fig(99)), "rejected", "not shown: 99"),
        (stating(fig(), {"text": FIG}), "rejected", "without a number"),
        (stating(fig(), FIG), "rejected", "without a number"),
    ],
)
async def test_an_answer_that_cannot_be_trusted_changes_nothing(
    database_url: str, answer: str | None, outcome: str, reason: str
) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        lane = await talk(parts, hand, 2)
        problem = await consolidator(parts, Script(lambda _: answer)).consolidate(lane)
        [run] = await consolidation.list_runs(parts.database, None, None, 10)
        assert (run.outcome, reason in str(problem), reason in run.reason) == (outcome, True, True)
        assert await learned(parts) == []
        assert await consolidator(parts, Script(figs)).consolidate(lane) is None, "it is as new as it was"
        assert await learned(parts) == [FIG]


async def test_doctor_tells_of_a_model_that_cannot_do_it(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        await talk(parts, hand, 10)
        worker = consolidator(parts, Script(lambda _: "There are none."))
        for n in range(1, 4):
            assert await check_consolidation(parts.database) == []
            await parts.database.run("update consolidation set ready_at = '-infinity'")
            assert await worker.start_due() == 1
            await eventually(partial(came_to, parts, [("rejected", 0)] * n))
        [found] = await check_consolidation(parts.database)
        assert "1 conversation, three times or more; last: the answer is not a JSON object" in found.detail
        await worker.aclose()


async def test_a_butler_uses_its_tokens_of_a_day_and_no_more(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        lane, model = await talk(parts, hand, 2), Script(lambda _: "")
        worker = consolidator(parts, model, budget=4_000)
        problems = [await worker.consolidate(lane) for _ in range(10)]
        assert problems[-1] == "the butler's tokens of the day are used up"
        assert len(model.read) == problems.count("the answer is not a JSON object") <= 4
        await parts.database.run("update consolidation_run set started_at = started_at - interval '1 day'")
        assert await worker.consolidate(lane) == "the answer is not a JSON object"


async def test_of_two_workers_one_keeps_what_it_found(database_url: str) -> None:
    both = asyncio.Barrier(2)

    class Together(Script):
        async def ask(self, request: Request, asking: Asking) -> Report:
            await both.wait()
            return await super().ask(request, asking)

    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        lane = await talk(parts, hand, 2)
        ends = await asyncio.gather(*(consolidator(parts, Together(figs)).consolidate(lane) for _ in range(2)))
        assert sorted(map(str, ends)) == ["None", "what was read has changed meanwhile"]
        assert (await learned(parts), await parts.count("select count(*) from fact_source")) == ([FIG], 1)
        assert sorted(await outcomes(parts)) == [("kept", 1), ("stale", 0)]


@pytest.mark.parametrize("meanwhile", ["unlearned", "compacted", "forgotten"])
async def test_what_changes_while_a_model_is_asked_is_respected(database_url: str, meanwhile: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        lane, database = await talk(parts, hand, 20), parts.database

        class Meanwhile(Script):
            async def ask(self, request: Request, asking: Asking) -> Report:
                if meanwhile == "unlearned":
                    await database.run("update entry set learn = false where position = 3")
                else:
                    assert await Compactor(database, OneModel(always), ["cheap"]).compact(lane) is None
                if meanwhile == "forgotten":
                    [fact] = await facts.list_facts(database, None, None, None, 9)
                    await facts.forget(database, fact.fact_id)
                return await super().ask(request, asking)

        problem = await consolidator(parts, Meanwhile(figs)).consolidate(lane)
        assert problem == "what was read has changed meanwhile"
        kept = [FIG] if meanwhile == "compacted" else []
        assert (await learned(parts), await outcomes(parts)) == (kept, [("stale", 0)])
        again = Script(lambda told: stating(*(fig() for one in told if one["entry"] == 3)))
        await consolidator(parts, again).consolidate(lane)
        assert await learned(parts) == kept


async def test_a_run_is_undone_as_one_and_what_is_said_again_counts_again(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        lane, database = await talk(parts, hand, 1), parts.database
        await add(parts, lane, [(FIG, "Good."), ("I own a boat", "Nice."), ("I own a kite", "Oh.")])
        stated = [fig(3), fig(5, "I own a boat"), fig(7, "I own a kite")]
        assert await consolidator(parts, Script(lambda _: stating(*stated[1:2]))).consolidate(lane) is None
        await rewind(parts, lane)
        await database.run("update fact_source set position = 99")
        assert await consolidator(parts, Script(lambda _: stating(*stated))).consolidate(lane) is None
        run, before = await consolidation.list_runs(database, None, None, 9)
        assert (run.facts, before.facts) == (2, 1)
        assert await consolidation.undo_run(database, run.run) == 2
        assert await consolidation.undo_run(database, run.run) == 0
        assert await consolidation.undo_run(database, new_uuid7()) is None
        counting = "select text from fact where undone_at is null order by text"
        assert [row["text"] for row in await database.rows(counting)] == ["I own a boat"], "another run found it, too"
        assert await parts.count("select count(*) from fact_source where position = 5") == 0
        await rewind(parts, lane)
        assert await consolidator(parts, Script(lambda _: stating(*stated))).consolidate(lane) is None
        assert [row["text"] for row in await database.rows(counting)] == ["I own a boat"], "nobody said so since"
        await add(parts, lane, [(FIG, "I know.")])
        assert await consolidator(parts, Script(lambda _: stating(fig(9)))).consolidate(lane) is None
        assert [row["text"] for row in await database.rows(counting)] == [FIG, "I own a boat"]


@pytest.mark.parametrize("by_run", [False, True])
async def test_what_is_undone_is_not_found_again_in_the_same_entry(database_url: str, *, by_run: bool) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        lane, database = await talk(parts, hand, 20), parts.database
        assert await consolidator(parts, Script(figs)).consolidate(lane) is None
        [fact], [run] = (
            await facts.list_facts(database, None, None, None, 9),
            await consolidation.list_runs(database, None, None, 9),
        )
        undone = await (consolidation.undo_run(database, run.run) if by_run else facts.undo(database, fact.fact_id))
        assert undone
        otherwise = stating(fig(3, "keep 7 fig trees"), {**fig(), "value": "7 fig trees", "predicate": "likes"})
        await rewind(parts, lane)
        assert await consolidator(parts, Script(lambda _: otherwise)).consolidate(lane) is None
        assert await Compactor(database, OneModel(always), ["cheap"]).compact(lane) is None
        assert await parts.count("select count(*) from fact where undone_at is null") == 0
        await add(parts, lane, [("keep 7 fig trees", "Good.")])
        again = Script(lambda told: stating(fig(told[-2]["entry"], "keep 7 fig trees")))
        assert await consolidator(parts, again).consolidate(lane) is None
        assert await parts.count("select count(*) from fact where undone_at is null") == 1, "that is said anew"


async def test_what_was_also_stated_without_an_entry_outlives_a_run(database_url: str) -> None:
    """As an operator adds it, or a program."""
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        lane, database = await talk(parts, hand, 20), parts.database
        assert await consolidator(parts, Script(figs)).consolidate(lane) is None
        [fact] = await facts.list_facts(database, None, None, None, 9)
        [run] = await consolidation.list_runs(database, None, None, 9)
        ann = Reader(SystemId(fact.system_id), Conversation(run.conversation), fact.author, private=True)
        assert await facts.learn(database, ann, NewFact(ann.person, "self", True, FIG, ())) == 0
        assert await consolidation.undo_run(database, run.run) == 0
        assert await parts.count("select count(*) from fact where undone_at is null") == 1


async def test_what_two_runs_have_found_is_gone_when_both_are_undone(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        lane, database = await talk(parts, hand, 1), parts.database
        for model in (Script(lambda _: stating({**fig(3), "until": "2027-01-31"})), Script(lambda _: stating(fig(5)))):
            await add(parts, lane, [(f"{FIG} this year", "Good.")])
            assert await consolidator(parts, model).consolidate(lane) is None
        late, early = await consolidation.list_runs(database, None, None, 9)
        assert await consolidation.undo_run(database, early.run) == 0
        [left] = await database.rows("select undone_at, valid_to from fact where text = $1", FIG)
        assert tuple(left) == (None, None), "nothing of the run that is undone is left"
        assert await consolidation.undo_run(database, late.run) == 1
        assert await learned(parts) == [FIG]
        assert await parts.count("select count(*) from fact where undone_at is null") == 0


async def test_what_a_day_is_not_enough_for_is_looked_through_in_parts(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        lane, bob = await talk(parts, hand, 1), ANN.replace("ann", "bob")
        for _ in range(5):
            await add(parts, lane, [("I keep figs. " * 300, "Good.")])
            await add(parts, lane, [("I keep nuts. " * 300, "Good.")], person=bob)
        model = Script(lambda _: stating())
        worker, looked = consolidator(parts, model, 20_000), list[str | None]()
        while (problem := await worker.consolidate(lane)) != NOTHING_NEW:
            looked.append(problem)
            await parts.database.run("update consolidation_run set started_at = started_at - interval '1 day'")
        assert (set(looked), {len(told) <= 10 for told in model.read}) == ({None}, {True})
        await rewind(parts, lane)
        used = (
            "update consolidation_run set started_at = clock_timestamp(), tokens = case run when $1 then $2 else 0 end"
        )
        await parts.database.run(used, (await consolidation.list_runs(parts.database, None, None, 1))[0].run, 13_000)
        asked = len(model.read)
        assert await worker.consolidate(lane) == "the butler's tokens of the day are used up"
        assert len(model.read) == asked, "nothing is asked for one space if there is not enough for the next one"


async def test_no_model_reads_two_spaces_together(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        lane, bob = await talk(parts, hand, 1), ANN.replace("ann", "bob")
        await add(parts, lane, [("I keep herons", "Ann's.")])
        await add(parts, lane, [("I keep otters", "Everybody's.")], private=False)
        await add(parts, lane, [("I keep newts", "Bob's.")], person=bob)
        model = Script(obey)
        assert await consolidator(parts, model).consolidate(lane) is None
        read = [" ".join(str(one["text"]) for one in told) for told in model.read]
        assert [[word for word in ("herons", "otters", "newts") if word in text] for text in read] == [
            ["herons"],
            ["otters"],
            ["newts"],
        ]
        rows = await parts.database.rows("select author, space, text from fact where text like 'I keep%' order by text")
        assert [tuple(row) for row in rows] == [
            (ANN, "private", "I keep herons"),
            (bob, "private", "I keep newts"),
            (ANN, "group", "I keep otters"),
        ]


async def test_what_the_assistant_repeats_confirms_nothing(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        lane = await talk(parts, hand, 2)
        assert await consolidator(parts, Script(figs)).consolidate(lane) is None
        await add(parts, lane, [("What do you know?", f"You told me: {FIG}. I own a boat.")] * 50)
        worker = consolidator(parts, Script(obey))
        while await worker.consolidate(lane) is None:
            pass
        assert await learned(parts) == [FIG]
        assert await parts.count("select count(*) from fact_source") == 1


async def test_a_model_that_lies_about_what_it_read_changes_no_facts(database_url: str) -> None:
    """The same conversation is read again and again; what it states is drawn from what others said, or turned round."""
    dice = random.Random(7)

    def lie(told: list[dict[str, object]]) -> str:
        pieces = [str(one["text"]) for one in told]
        text = dice.choice(pieces).replace("keep", dice.choice(("do not keep", "kept with Bob", "stole")))
        text = dice.choice((text, f"{dice.choice(pieces)} and {dice.choice(pieces)}", "I owe Bob 900 euros"))
        value = dice.choice((text, "keep", "fig trees", "boat", *text.split()))
        entry = dice.choice([one["entry"] for one in told])
        dates = {"from": "2020-01-01", "until": "2020-01-02"}
        return stating(
            {**fig(3), "predicate": dice.choice(("lives_at", "allergic_to")), **dates},
            {**fig(), "text": text, "value": value, "entry": entry},
        )

    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        lane = await talk(parts, hand, 2)
        await add(parts, lane, [("I keep bees", f"Fine. {FIG}."), ("Do I keep a boat?", "I keep a boat.")])
        stated = [fig(), fig(5, "I keep bees")]
        assert await consolidator(parts, Script(lambda _: stating(*stated))).consolidate(lane) is None
        columns = "select text, predicate, value, denied, valid_to, undone_at from fact order by text"
        before = [tuple(row) for row in await parts.database.rows(columns)]
        worker = consolidator(parts, Script(lie), budget=10**9)
        for _ in range(wide(500, 40)):
            await rewind(parts, lane)
            assert await worker.consolidate(lane) is None
        after = [tuple(row) for row in await parts.database.rows(columns)]
        assert after == before
        assert await parts.count("select count(*) from fact_source") == 2
