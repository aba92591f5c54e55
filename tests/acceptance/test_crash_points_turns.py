"""Ten turns of three calls, killed in the middle, twice: each is answered once, and nothing is done again.

The scripted model tells what it was asked, the tools write down what they did, and the journal says what was on record
when a process died. Between its lives, prompt, time zone, models and schemas change: no turn notices.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from switchboard.lanes.faults import Point
from switchboard.store.inbox import Acceptance
from switchboard.testing.scripted_llm import Call, Hang, Reply, Request, ScriptedLlm
from tests.acceptance.model_node import CONVERSATIONS, team
from tests.forked import Forks
from tests.hands import assert_balanced
from tests.lab import ROOT, Lab, lab, rule, submission, to
from tests.waiting import eventually

pytestmark = pytest.mark.slow

CALLS: Final = ("look", "pay", "look")
Asked = tuple[str, int]
"""Who a request was for, and which of the turn it was."""


def asked(request: Request) -> Asked:
    who = request.prompt.splitlines()[-1]
    return who, 1 + sum(said.role == "tool" for said in request.messages)


def brain(request: Request) -> Reply:
    who, n = asked(request)
    return Reply(calls=(Call(CALLS[n - 1], {"who": who}),)) if n <= len(CALLS) else Reply(text=f"done for {who}")


class Life:
    """One process that works; what the model was asked in it, and what was on record when it died."""

    def __init__(self, forks: Forks, parts: Lab, llm: ScriptedLlm, url: str, place: Path) -> None:
        self.forks, self.parts, self.llm, self.url, self.place = forks, parts, llm, url, place
        self.known: set[Asked] = set()
        """Requests that were on record when a process died."""
        self.asked_after: list[Counter[Asked]] = []

    async def live(self, variant: str, *, crash_at: str = "", hang_at: int = 0) -> int:
        """Until it has ended; with `hang_at`, it is killed in the middle of the answer to that request."""
        before = len(self.llm.requests)
        words = (self.url, self.llm.url, str(self.place / "trace"), variant)
        env, errors = os.environ | {"SWITCHBOARD_CRASH_AT": crash_at}, self.place / "errors"
        process = self.forks.start("tests.acceptance.model_node", *words, env=env, errors=errors)
        try:
            if hang_at:
                await eventually(lambda: _true(len(self.llm.requests) >= before + hang_at), within=60)
                process.kill()
            code = await process.wait()
        finally:
            process.kill()
        assert code in (0, -signal.SIGKILL), errors.read_text()[-3000:]
        new = Counter(map(asked, self.llm.requests[before:]))
        assert not set(new) & self.known, "what is on record is asked again"
        self.known |= await self._on_record()
        self.asked_after.append(new)
        return code

    async def _on_record(self) -> set[Asked]:
        rows = await self.parts.database.rows(
            "select m.sender, s.path from step s join message_inbox m using (request_id) "
            "where s.path like 'request:%' and s.state = 'done'"
        )
        return {(f"for {row['sender']}", int(row["path"].split(":")[1])) for row in rows}


async def _true(value: bool) -> bool:
    return value


async def fill(parts: Lab) -> None:
    given = [submission(f"for c{n}", channel="api", sender=f"c{n}", event=str(n)) for n in range(CONVERSATIONS)]
    assert all(isinstance(one, Acceptance) for one in await parts.accept.accept_all(given))


async def assert_all_is_well(parts: Lab, llm: ScriptedLlm, place: Path, *, kills: int) -> None:
    rows = await parts.database.rows("select recipient, text from outbox order by recipient")
    assert [(row["recipient"], row["text"]) for row in rows] == [
        (f"c{n}", f"done for for c{n}") for n in range(CONVERSATIONS)
    ]
    assert await parts.count("select count(*) from dead_letter") == 0
    await assert_balanced(parts)
    paid = [line.split() for line in (place / "trace").read_text().splitlines() if line.startswith("pay ")]
    assert max(Counter(tuple(one) for one in paid).values()) == 1, "a call with effects was repeated"
    times = Counter(map(asked, llm.requests))
    assert set(times) == {(f"for c{n}", i) for n in range(CONVERSATIONS) for i in range(1, 5)}
    for who, again in _repeats(times).items():
        assert again <= kills, f"{who}: {again} requests were asked again in {kills} kills"
    assert_nothing_is_noticed(llm)


def _repeats(times: Mapping[Asked, int]) -> Counter[str]:
    found: Counter[str] = Counter()
    for (who, _), n in times.items():
        found[who] += n - 1
    return found


def assert_nothing_is_noticed(llm: ScriptedLlm) -> None:
    """All requests of a turn begin with the same words and tools, and go to the same model."""
    heads: dict[str, set[tuple[object, ...]]] = {}
    for request in llm.requests:
        who, _ = asked(request)
        head = request.model, request.system, request.prompt, str(request.body["tools"])
        heads.setdefault(who, set()).add(head)
    assert {len(found) for found in heads.values()} == {1}


@pytest.mark.parametrize(
    ("point", "nth"),
    [
        ("before_step", 14),
        ("before_journal", 25),
        ("before_journal", 40),
        ("between_steps", 15),
        ("before_complete", 1),
        ("after_complete", 1),
    ],
)
async def test_turns_are_resumed_where_they_were(
    forks: Forks, database_url: str, tmp_path: Path, point: Point, nth: int
) -> None:
    async with lab(database_url, [team(tmp_path, "old")], [rule(ROOT, [to("System1/clerk")])]) as parts:
        await fill(parts)
        async with ScriptedLlm(brain) as llm:
            life = Life(forks, parts, llm, database_url, tmp_path)
            assert await life.live("old", crash_at=f"{point}:{nth}") == -signal.SIGKILL
            await life.live("new", crash_at=f"{point}:{nth}")
            assert await life.live("newer") == 0
            await assert_all_is_well(parts, llm, tmp_path, kills=2)


@pytest.mark.parametrize("nth", [1, 18])
async def test_turns_are_resumed_after_a_kill_in_an_answer(
    forks: Forks, database_url: str, tmp_path: Path, nth: int
) -> None:
    hanging = {nth, nth + 12}

    def stuck(request: Request) -> Reply:
        reply = brain(request)
        if request.number in hanging:
            hanging.discard(request.number)
            return Reply(reply.text, reply.calls, fault=Hang(at="middle"))
        return reply

    async with lab(database_url, [team(tmp_path, "old")], [rule(ROOT, [to("System1/clerk")])]) as parts:
        await fill(parts)
        async with ScriptedLlm(stuck) as llm:
            life = Life(forks, parts, llm, database_url, tmp_path)
            assert await life.live("old", hang_at=nth) == -signal.SIGKILL
            await life.live("new", hang_at=12)
            assert await life.live("newer") == 0
            await assert_all_is_well(parts, llm, tmp_path, kills=2)
