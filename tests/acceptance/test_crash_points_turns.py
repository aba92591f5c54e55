"""Ten turns of three calls, killed in the middle, twice: each is answered once, and nothing is done again.

A strict provider tells what it was asked, the tools write down what they did, and the journal says what was on record
when a process died. Between its lives, prompt, time zone, models and schemas change: no turn notices. The same of the
compaction of their histories: each comes about once.
"""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from switchboard.lanes.faults import Point
from switchboard.testing.scripted_llm import ScriptedLlm
from tests.acceptance.lives import COMPACTION, PEOPLE, REQUESTS, Asked, Lives, asked, fill
from tests.acceptance.model_node import MODELS, team
from tests.forked import Forks
from tests.hands import assert_balanced
from tests.lab import Lab, lab, rule

pytestmark = pytest.mark.slow


async def talked(parts: Lab) -> None:
    """So much was said before that these turns make their histories long enough to be compacted."""
    await parts.database.run(
        "insert into entry (lane, position, request_id, role, person, private, text, created_at) "
        "select d.lane, h.n, d.request_id, case h.n % 2 when 1 then 'user' else 'assistant' end, "
        "'api/bot%3Ahouse/' || m.sender, true, 'I keep the bees of ' || m.sender || ', hive ' || h.n, now() "
        "from delivery d join message_inbox m using (request_id), generate_series(1, 38) h (n)"
    )


async def assert_all_is_well(lives: Lives) -> None:
    parts = lives.parts
    rows = await parts.database.rows("select recipient, text from outbox order by recipient")
    assert [(row["recipient"], row["text"]) for row in rows] == [(who, f"done for {who}") for who in PEOPLE]
    assert await parts.count("select count(*) from dead_letter") == 0
    waited = "select count(*) from attempt where outcome not in ('answered', 'lost')"
    assert await parts.count(waited) == 0, "what was killed goes on at once, without the pause after a failure"
    await assert_balanced(parts)
    paid = [line for line in (lives.place / "trace").read_text().splitlines() if line.startswith("pay ")]
    assert max(Counter(paid).values(), default=0) <= 1, "a call with effects was repeated"
    assert_little_is_asked_again(lives.asked)
    assert_nothing_is_noticed(lives.llm)


def assert_little_is_asked_again(lives: list[Counter[Asked]]) -> None:
    """All are asked; after a kill each turn asks again at most for the one answer that was on its way."""
    seen: set[Asked] = set()
    for new in lives:
        again = Counter(who for who, n in new if (who, n) in seen)
        assert max(again.values(), default=0) <= 1, f"more than one request was asked again after a kill: {again}"
        assert max(new.values(), default=0) <= 1, f"one process has asked the same again: {new}"
        seen |= set(new)
    assert {one for one in seen if one[1] != COMPACTION} == {(who, n) for who in PEOPLE for n in REQUESTS}


def assert_nothing_is_noticed(llm: ScriptedLlm) -> None:
    """All requests of a turn begin with the same words and tools, and go to the same model."""
    heads: dict[str, set[tuple[object, ...]]] = {}
    for request in llm.requests:
        who, n = asked(request)
        if n != COMPACTION:
            head = request.model, request.system, request.prompt, str(request.body["tools"])
            heads.setdefault(who, set()).add(head)
    assert {len(found) for found in heads.values()} == {1}


POINTS: Final[list[tuple[Point, str]]] = [
    ("before_journal", "start"),
    ("before_step", "request:1"),
    ("before_journal", "request:2"),
    ("between_steps", "request:4"),
    ("before_journal", "tool:1"),
    ("before_step", "tool:2"),
    ("before_journal", "tool:2"),
    ("between_steps", "tool:2"),
    ("before_complete", ""),
    ("after_complete", ""),
]
"""In what is frozen; before, after and behind a request, and a call (the second has effects); at the end."""


@pytest.mark.parametrize(("point", "path"), POINTS)
async def test_turns_are_resumed_where_they_were(
    database_url: str, tmp_path: Path, forks: Forks, point: Point, path: str
) -> None:
    async with lab(database_url, [team(tmp_path, "old")], [rule("System1/clerk")]) as parts:
        await fill(parts)
        lives = Lives(forks, parts, database_url, tmp_path)
        async with lives.llm:
            assert await lives.live("old", crash_at=f"{point}:3:{path}") == -signal.SIGKILL
            await lives.live("new", crash_at=f"{point}:1:{path}")
            assert await lives.live("newer") == 0
            await assert_all_is_well(lives)


@pytest.mark.parametrize("nth", [1, 3])
async def test_turns_are_resumed_after_a_kill_in_a_stream(
    database_url: str, tmp_path: Path, forks: Forks, nth: int
) -> None:
    async with lab(database_url, [team(tmp_path, "old")], [rule("System1/clerk")]) as parts:
        await fill(parts)
        lives = Lives(forks, parts, database_url, tmp_path, hang_at=nth)
        async with lives.llm:
            assert await lives.live("old", hang=True) == -signal.SIGKILL
            assert await lives.live("new", hang=True) == -signal.SIGKILL
            assert await lives.live("newer") == 0
            await assert_all_is_well(lives)


@pytest.mark.parametrize("point", ["before_summary", "in a stream", "before_compaction", "after_compaction"])
async def test_histories_are_compacted_once_however_often_that_is_killed(
    database_url: str, tmp_path: Path, forks: Forks, point: str
) -> None:
    async with lab(database_url, [team(tmp_path, "old")], [rule("System1/clerk")]) as parts:
        await fill(parts)
        await talked(parts)
        lives = Lives(forks, parts, database_url, tmp_path, hang_at=COMPACTION)
        hang = point == "in a stream"
        async with lives.llm:
            for variant in MODELS:
                last = variant == "newer"
                code = await lives.live(variant, crash_at="" if hang or last else f"{point}:2", hang=hang and not last)
                assert code == (0 if last else -signal.SIGKILL)
                # What two minutes do: until then a compaction that was begun is another process's.
                await parts.database.run("update compaction set ready_at = clock_timestamp()")
            await assert_all_is_well(lives)
        await assert_each_is_compacted_once(parts)


async def assert_each_is_compacted_once(parts: Lab) -> None:
    """The first twenty entries have a summary and their fact; they are what they were, and so are all others."""
    summaries = await parts.database.rows("select first_position, position, text from summary order by text")
    assert [tuple(row) for row in summaries] == [(1, 20, f"Keeps the bees of {who}.") for who in PEOPLE]
    facts = await parts.database.rows("select text from fact order by text")
    assert [row["text"] for row in facts] == [f"I keep the bees of {who}" for who in PEOPLE]
    originals = await parts.database.rows(
        "select m.sender, e.position, e.text, e.compacted_at is not null as compacted from entry e "
        "join message_inbox m using (request_id) order by m.sender, e.position"
    )
    assert [tuple(row) for row in originals] == [
        (who, n, said, n <= 20)
        for who in PEOPLE
        for n, said in enumerate(
            (*(f"I keep the bees of {who}, hive {n}" for n in range(1, 39)), f"for {who}", f"done for {who}"), 1
        )
    ]
