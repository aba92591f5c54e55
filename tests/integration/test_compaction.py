"""Compaction: old entries become a summary and facts, in one commit or not at all, and can be given back."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from pydantic import SecretStr

from switchboard.app.ops.maintenance import Retention
from switchboard.app.ops.results import erase_results
from switchboard.app.settings import Settings
from switchboard.app.wiring import make_worker, open_runtime
from switchboard.core.envelope.read import read_envelope
from switchboard.core.uuid7 import first_uuid7
from switchboard.domain.ledger import LaneKey
from switchboard.domain.llm import ModelAttempt, Reply, Report, Request
from switchboard.domain.routing import SystemId
from switchboard.journey.accept import Submission
from switchboard.journey.compaction import Compactor
from switchboard.ports.facts import Reader
from switchboard.ports.history import Entry
from switchboard.ports.models import NO_CONTEXT, USUAL, Asking, Habits
from switchboard.store.database import query
from switchboard.store.ids import IdSequence, new_uuid7
from switchboard.store.memory import compaction, facts, history
from switchboard.store.memory.facts import NewFact
from switchboard.store.memory.history import HistoryAddition
from switchboard.store.work import lanes as lane_store
from switchboard.store.work.lanes import Settlement
from tests.hands import Hand, a_hand, at_work
from tests.lab import Lab, envelope_json, lab, submission
from tests.waiting import eventually

ANN = "telegram/bot%3Ahouse/ann"
FIG = "I keep 7 fig trees"
ANSWER = json.dumps(
    {"summary": "Ann keeps fig trees.", "facts": [{"text": FIG, "entry": 3, "value": FIG, "subject": "self"}]}
)


WAITING = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"


class Cheap:
    """A sound model of which nothing special is known."""

    names: Sequence[str] = ("cheap",)
    runners: Sequence[str] = ()

    async def context(self, _: str, unknown: int = NO_CONTEXT) -> int:
        return unknown

    def flaw(self, _: str) -> str | None:
        return None

    def habits(self, _: str) -> Habits:
        return USUAL


@dataclass
class OneModel(Cheap):
    """A model that answers with what `answer` returns, or fails."""

    answer: Callable[[], Awaitable[str | None]]
    asked: list[Request] = field(default_factory=list)

    async def ask(self, request: Request, asking: Asking) -> Report:
        assert (asking.asker, asking.butler.startswith("System1/")) == ("compaction", True)
        self.asked.append(request)
        text = await self.answer()
        return Report(None, (ModelAttempt("cheap", "unavailable", "gone"),)) if text is None else Report(Reply(text))


async def always() -> str | None:
    return ANSWER


async def never() -> str | None:
    return None


async def talk(parts: Lab, hand: Hand, turns: int) -> LaneKey:
    """So many turns of Ann's private conversation; its lane."""
    lane = None
    for n in range(turns):
        await parts.accept.accept(submission(str(n), sender="ann", chat_type="private"))
        [item] = await hand.claim()
        [work] = await lane_store.load_work(parts.database, [item])
        words = FIG if n == 1 else f"message {n}"
        entries = Entry("user", words), Entry("assistant", f"reply {n}")
        said = HistoryAddition(Reader(work.system_id, work.conversation, ANN, private=True), work.received_at, entries)
        ended = Settlement(item, "declined", "hand", None, hand_on=False, said=said)
        [settled] = await lane_store.settle(parts.database, hand.worker, [ended])
        assert settled.ok
        lane = item.lane
    assert lane is not None
    return lane


async def shown(parts: Lab, lane: LaneKey) -> list[str]:
    """The summary, and the entries, that Ann's next turn is given."""
    summaries = await parts.database.rows(query("history.summary"), lane, ANN, True, True)
    entries = await parts.database.rows(query("history.load"), lane, 0, ANN, True, True)
    return [row["text"] for row in (*summaries, *entries)]


async def learned(parts: Lab) -> list[str]:
    return [one.text for one in await facts.list_facts(parts.database, None, None, None, 100)]


async def test_at_forty_entries_the_oldest_twenty_become_a_summary_and_facts(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        model = OneModel(always)
        compactor = Compactor(parts.database, model, ["cheap"])
        await talk(parts, hand, 19)
        assert await compactor.start_due() == 0
        lane = await talk(parts, hand, 1)
        assert await compactor.start_due() == 1
        await eventually(lambda: none_due(parts))
        assert (await shown(parts, lane))[:2] == ["Ann keeps fig trees.", "message 10"]
        assert await learned(parts) == [FIG]
        assert len(model.asked) == 1
        await talk(parts, hand, 10)
        assert await compactor.compact(lane) is None
        assert "Ann keeps fig trees." in model.asked[1].said
        await compactor.aclose()


async def none_due(parts: Lab) -> bool:
    return await parts.count("select count(*) from compaction") == 0


async def test_a_failure_changes_nothing_and_after_three_the_next_turn_retries(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        compactor = Compactor(parts.database, OneModel(never), ["cheap"])
        lane = await talk(parts, hand, 20)
        before = await shown(parts, lane)
        at_once = timedelta(0)
        assert [len(await compaction.claim(parts.database, 5, at_once)) for _ in range(5)] == [1, 1, 1, 0, 0]
        assert "gone" in (await compactor.compact(lane) or "")
        assert (await shown(parts, lane), await learned(parts)) == (before, [])
        await talk(parts, hand, 1)
        assert len(await compaction.claim(parts.database, 5, at_once)) == 1


@pytest.mark.parametrize(
    "change",
    [
        "update entry set learn = false where position = 3",
        "update entry set text = 'other' where position = 20",
        "delete from entry where position = 1",
    ],
)
async def test_nothing_is_committed_over_a_range_that_has_changed_meanwhile(database_url: str, change: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        lane = await talk(parts, hand, 20)

        async def slow() -> str | None:
            await parts.database.run(change)
            return ANSWER

        problem = await Compactor(parts.database, OneModel(slow), ["cheap"]).compact(lane)
        assert problem == "the entries have changed meanwhile"
        assert await parts.count("select count(*) from summary") == 0
        assert await learned(parts) == []


async def test_one_deadline_holds_for_all_who_said_something_in_private(database_url: str) -> None:
    """The lane is claimed again after two minutes."""
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        lane = await talk(parts, hand, 20)
        await parts.database.run("update entry set person = 'p' || position / 8 where lane = $1", lane)
        now = 0.0

        async def slow() -> str | None:
            nonlocal now
            now += 60.0
            return ANSWER

        model = OneModel(slow)
        problem = await Compactor(parts.database, model, ["cheap"], clock=lambda: now).compact(lane)
        assert problem == "the models took more than 90 s"
        assert [request.deadline for request in model.asked] == [90.0, 30.0]


async def test_two_compactions_of_one_range_leave_one(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        lane = await talk(parts, hand, 20)
        both = asyncio.Barrier(2)

        async def together() -> str | None:
            await both.wait()
            return ANSWER

        compactor = Compactor(parts.database, OneModel(together), ["cheap"])
        problems = await asyncio.gather(compactor.compact(lane), compactor.compact(lane))
        assert sorted(map(str, problems)) == ["None", "the entries have changed meanwhile"]
        assert await parts.count("select count(*) from summary") == 1


async def test_originals_can_be_given_back_for_thirty_days_and_are_erased_then(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        lane = await talk(parts, hand, 20)
        before = await shown(parts, lane)
        compactor = Compactor(parts.database, OneModel(always), ["cheap"])
        assert await compactor.compact(lane) is None
        assert await compaction.erase(parts.database, 100) == 0
        [kept] = await compaction.list_summaries(parts.database, None, None, 10)
        assert (kept.first_position, kept.last_position, kept.restorable) == (1, 20, 20)
        assert await compaction.restore(parts.database, kept.summary_id) == 20
        assert await shown(parts, lane) == before
        assert await compactor.compact(lane) == "it has too few entries without a summary"
        assert await shown(parts, lane) == before
        await parts.database.run("update entry set compacted_at = now() - interval '31 days' where position <= 20")
        assert await compaction.erase(parts.database, 100) == 20
        assert await compaction.restore(parts.database, kept.summary_id) == 0


async def erased(parts: Lab, position: int) -> int:
    """Erase what was said in messages before that of this position; in how many histories there was something."""
    sql = "select coalesce((select min(request_id::text)::uuid from entry where position = $1), $2)"
    return await history.erase(parts.database, await parts.database.value(sql, position, UUID(int=2**128 - 1)), 10)


async def test_a_history_that_was_erased_goes_on_behind_it(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        lane = await talk(parts, hand, 5)
        assert (await erased(parts, 7), await erased(parts, 7)) == (1, 0)
        assert await shown(parts, lane) == ["message 3", "reply 3", "message 4", "reply 4"]
        assert await erased(parts, 99) == 1
        assert await shown(parts, lane) == []
        await talk(parts, hand, 1)
        place = await parts.database.row(query("history.last"), *await place_of(parts, lane))
        assert place is not None
        assert (place["position"], place["compacted"]) == (12, 10)
        model = OneModel(always)
        compactor = Compactor(parts.database, model, ["cheap"])
        await talk(parts, hand, 18)
        assert await none_due(parts), "38 entries"
        await talk(parts, hand, 1)
        assert await compactor.compact(lane) is None
        assert '"entry": 11' in model.asked[0].said
        assert '"entry": 31' not in model.asked[0].said


async def place_of(parts: Lab, lane: LaneKey) -> tuple[str, str]:
    """Butler and conversation of a lane."""
    sql = "select l.system_id, c.name from lane l join conversation c using (conversation) where l.key = $1"
    row = await parts.database.row(sql, lane)
    assert row is not None
    return row["system_id"], row["name"]


async def test_what_is_older_than_a_year_is_erased_but_for_facts(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        lane = await talk(parts, hand, 20)
        assert await Compactor(parts.database, OneModel(always), ["cheap"]).compact(lane) is None
        assert await Retention(parts.database).entries(365) == 0
        old = first_uuid7(datetime.now(UTC) - timedelta(days=366))
        await parts.database.run("update entry set request_id = $1 where position <= 30", old)
        await parts.database.run("update summary set summary_id = $1", old)
        assert await Retention(parts.database).entries(367) == 0
        assert await Retention(parts.database).entries(365) == 2  # a history, and the text of a summary
        assert (await shown(parts, lane))[0] == "message 15"
        assert await learned(parts) == [FIG]
        [fact] = await facts.list_facts(parts.database, None, None, None, 10)
        found = await facts.get_fact(parts.database, fact.fact_id)
        assert found is not None
        assert [source.text for source in found[1]] == [None]
        assert await facts.forget(parts.database, fact.fact_id) == 1


async def test_what_was_read_and_then_erased_is_in_no_summary(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        lane = await talk(parts, hand, 20)

        async def slow() -> str | None:
            assert await erased(parts, 5) == 1
            return ANSWER

        problem = await Compactor(parts.database, OneModel(slow), ["cheap"]).compact(lane)
        assert problem == "the entries have changed meanwhile"
        assert await learned(parts) == []


async def test_tool_results_stay_while_a_turn_runs_or_its_words_are_in_a_history(
    database_url: str, tmp_path: Path
) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        lane = await talk(parts, hand, 21)
        assert await Compactor(parts.database, OneModel(always), ["cheap"]).compact(lane) is None
        await parts.database.run("update entry set learn = false where position in (23, 24)")  # as of what is forgotten
        running = (await parts.accept.accept(submission("runs", sender="ann", chat_type="private"))).request_id
        rows = await parts.database.rows("select request_id from entry where role = 'user' order by position")
        compacted, kept, forgotten = (rows[n]["request_id"] for n in (9, 10, 11))
        a_month_ago = datetime.now(UTC) - timedelta(days=31)
        unknown, old = new_uuid7(), IdSequence().next(1, a_month_ago.timestamp())[0]
        others = ("plan.md", str(uuid4()), str(kept).upper())
        for name in (*map(str, (compacted, kept, forgotten, running, unknown, old)), *others):
            result = tmp_path / "notes" / "ann" / "tool-results" / name / "web_fetch.txt"
            result.parent.mkdir(parents=True)
            result.write_text("found")
        await parts.database.run("update entry set request_id = $1 where position in (25, 26)", old)
        assert await erase_results(parts.database, tmp_path, 30) == 4
        left = {one.name for one in (tmp_path / "notes" / "ann" / "tool-results").iterdir()}
        assert left == {str(kept), str(running), *others}
        assert await erase_results(parts.database, tmp_path, 30) == 0
        assert await erase_results(parts.database, tmp_path / "none", 30) == 0


async def test_images_stay_until_their_turn_has_ended(database_url: str, tmp_path: Path) -> None:
    now, reader = datetime.now(UTC), tmp_path / "notes" / "ann"
    names = [f"inbox/{n:016x}.png" for n in range(5)]
    recent, ended, running, dead, old = names
    async with lab(database_url) as parts:
        for name in (ended, running, dead, old):
            await parts.accept.accept(with_image(name))
        state = "update delivery set state = $1 where request_id = (select request_id from delivery order by 1 {})"
        await parts.database.run(state.format("limit 1"), "answered")
        await parts.database.run(state.format("offset 2 limit 1"), "dead")
        for name, hours in ((recent, 0), (ended, 2), (running, 2), (dead, 2), (old, 31 * 24)):
            (reader / name).parent.mkdir(parents=True, exist_ok=True)
            (reader / name).write_bytes(b"seen")
            at = (now - timedelta(hours=hours)).timestamp()
            os.utime(reader / name, (at, at))
        await erase_results(parts.database, tmp_path, 30)
        assert {f"inbox/{one.name}" for one in (reader / "inbox").iterdir()} == {recent, running, dead}


def with_image(name: str) -> Submission:
    envelope = envelope_json("look")
    image = {
        "media_type": "image/png",
        "filename": name,
        "size_bytes": 4,
        "storage_ref": f"sha256:{Path(name).stem:0<64}",
    }
    envelope["payload"]["attachments"] = [image]
    raw = json.dumps(envelope).encode()
    return Submission(read_envelope(raw), raw)


async def test_the_directory_of_a_reader_who_has_nothing_any_more_is_removed(database_url: str, tmp_path: Path) -> None:
    async with lab(database_url) as parts:
        result = tmp_path / "notes" / "ann" / "tool-results" / str(new_uuid7()) / "web_fetch.txt"
        result.parent.mkdir(parents=True)
        result.write_text("found")
        (tmp_path / "notes" / "bea" / "inbox").mkdir(parents=True)
        assert await erase_results(parts.database, tmp_path, 30) == 1
        assert not list((tmp_path / "notes").iterdir())


async def test_a_worker_removes_old_results_on_its_machine(database_url: str, tmp_path: Path) -> None:
    result = tmp_path / "workspaces" / ".results" / "notes" / "ann" / "tool-results" / str(new_uuid7()) / "x.txt"
    result.parent.mkdir(parents=True)
    result.write_text("found")
    settings = Settings(database_url=SecretStr(database_url), data_dir=tmp_path)

    async def gone() -> bool:
        return not result.parent.exists()

    async with open_runtime(settings) as runtime, at_work(make_worker(runtime)):
        await eventually(gone)


async def test_what_is_forgotten_is_in_no_summary_and_not_given_back(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        lane = await talk(parts, hand, 20)
        compactor = Compactor(parts.database, OneModel(always), ["cheap"])
        assert await compactor.compact(lane) is None
        [fact] = await facts.list_facts(parts.database, None, None, None, 10)
        assert await facts.forget(parts.database, fact.fact_id) == 1
        [kept] = await compaction.list_summaries(parts.database, None, None, 10)
        assert (kept.text, kept.restorable) == ("", 18), "all but what she said, and the reply to it"
        assert await compaction.restore(parts.database, kept.summary_id) == 18
        assert not [one for one in await shown(parts, lane) if "fig" in one]
        assert await learned(parts) == []


async def learned_and_forgotten(parts: Lab, hand: Hand) -> LaneKey:
    """A lane of 40 entries, the first 20 compacted, and what was learned from them forgotten."""
    lane = await talk(parts, hand, 20)
    assert await Compactor(parts.database, OneModel(always), ["cheap"]).compact(lane) is None
    assert await forget_all(parts) == 1
    return lane


async def forget_all(parts: Lab) -> int:
    found = await facts.list_facts(parts.database, None, None, None, 10)
    return sum([await facts.forget(parts.database, one.fact_id) for one in found])


async def test_what_is_forgotten_while_a_model_condenses_is_not_brought_back(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        lane = await talk(parts, hand, 20)
        compactor = Compactor(parts.database, OneModel(always), ["cheap"])
        assert await compactor.compact(lane) is None
        await talk(parts, hand, 10)

        async def slow() -> str | None:
            assert await forget_all(parts) == 1
            return json.dumps({"summary": "Ann keeps fig trees, as before."})

        problem = await Compactor(parts.database, OneModel(slow), ["cheap"]).compact(lane)
        assert problem == "the entries have changed meanwhile"
        assert (await shown(parts, lane))[0] == "message 10", "no summary"


async def test_forgotten_words_said_again_enter_no_fact_and_no_summary(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        lane = await learned_and_forgotten(parts, hand)
        await talk(parts, hand, 20)  # the 43rd entry says it again
        assert await Compactor(parts.database, OneModel(nothing), ["cheap"]).compact(lane) is None

        async def again() -> str | None:
            return ANSWER.replace('"entry": 3', '"entry": 43')

        repeating = OneModel(again)
        problem = await Compactor(parts.database, repeating, ["cheap"]).compact(lane)
        assert problem == "the entries have changed meanwhile"
        assert FIG in repeating.asked[0].said
        attentive = OneModel(nothing)
        assert await Compactor(parts.database, attentive, ["cheap"]).compact(lane) is None
        assert FIG not in attentive.asked[0].said
        assert "reply 1" not in attentive.asked[0].said, "the reply to it may say it, too"
        assert not [one for one in await shown(parts, lane) if "fig" in one]
        assert await learned(parts) == []


async def nothing() -> str | None:
    return json.dumps({"summary": "They talk.", "facts": []})


async def test_what_is_learned_while_it_is_forgotten_is_not_kept(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        lane = await talk(parts, hand, 20)
        assert await Compactor(parts.database, OneModel(always), ["cheap"]).compact(lane) is None
        [fact] = await facts.list_facts(parts.database, None, None, None, 10)
        same = NewFact(fact.author, "self", True, FIG.upper(), (5,))
        async with parts.database.connection() as forgetting, forgetting.transaction():
            assert await forgetting.fetchval(query("facts.forget"), fact.fact_id) == 1
            saving = asyncio.create_task(facts.save(parts.database, lane, SystemId(fact.system_id), [same]))
            await eventually(lambda: parts.count(WAITING))
        assert await saving == 0
        assert await learned(parts) == []


async def test_what_is_forgotten_while_it_is_learned_again_is_gone(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        lane = await talk(parts, hand, 20)
        assert await Compactor(parts.database, OneModel(always), ["cheap"]).compact(lane) is None
        [fact] = await facts.list_facts(parts.database, None, None, None, 10)
        more = NewFact(fact.author, "self", True, f"In Leeds {FIG}", (5,))
        rows = await facts.fact_rows(parts.database, SystemId(fact.system_id), [more])
        async with parts.database.connection() as learning, learning.transaction():
            assert await learning.fetchval(query("facts.save"), lane, rows) == 1
            forgetting = asyncio.create_task(facts.forget(parts.database, fact.fact_id))
            await eventually(lambda: parts.count(WAITING))
        assert await forgetting == 2
        assert await learned(parts) == []
        assert await parts.count("select count(*) from entry where not learn") == 4, "both sources and their replies"


async def test_what_is_forgotten_twice_at_once_is_gone_once(database_url: str) -> None:
    async with lab(database_url) as parts, a_hand(parts.database) as hand:
        lane = await talk(parts, hand, 20)
        assert await Compactor(parts.database, OneModel(always), ["cheap"]).compact(lane) is None
        [fact] = await facts.list_facts(parts.database, None, None, None, 10)
        gone = await asyncio.gather(*(facts.forget(parts.database, fact.fact_id) for _ in range(4)))
        assert sorted(gone) == [0, 0, 0, 1]
