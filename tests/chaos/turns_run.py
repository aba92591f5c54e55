"""The chaos run of turns: model and tools go wrong in every way, and every five seconds one of three workers dies.

    python -m tests.chaos.turns_run [--turns 300] [--seconds 60] [--every 5] [--rate 0.3] [--seed N]

The provider is strict: it refuses what real ones refuse. The last line counts; exit code 0 only if every turn was
answered or is a dead letter with a reason, no call with an effect was repeated, the books balance, and every way to
fail was met. Before that, ten turns are killed in the middle and resumed, and the time that this takes is measured
(without that of Python's imports).
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from switchboard.domain.errors import SwitchboardError
from switchboard.embedded.supervisor import embedded_postgres
from switchboard.journey.turn import DELAYED
from switchboard.lanes.faults import Point
from switchboard.store.books import audit_books
from switchboard.store.database import Database
from switchboard.testing.scripted_llm import Call, Reply, Request, ScriptedLlm
from tests.acceptance.lives import PEOPLE, REQUESTS, Lives, fill
from tests.acceptance.model_node import team
from tests.chaos import model
from tests.chaos.asked import a_directory, all_met, asked_for, exit_code
from tests.chaos.books import read_traces
from tests.chaos.turns_node import CONVERSATIONS, RULES, TEAM
from tests.forked import ForkedCommand, forked
from tests.hands import settled
from tests.lab import Lab, lab, submission
from tests.waiting import eventually

WORKERS: Final = 3
LIMIT_S: Final = 180.0
"""What is not done with so long after the last message came is lost."""
CALLS: Final = ("look", "pay", "look")
"""What a turn does where nothing goes wrong."""
OTHER: Final = {"ping": "pong", "pong": "ping"}
"""Once the model has called one of these it goes on calling them, one after the other."""

LATENCY_S: Final = 1.0
"""Of the provider, where it is measured how long killed turns take."""
POINTS: Final[tuple[tuple[Point, str], ...]] = (
    ("before_step", "request:1"),
    ("before_journal", "request:3"),
    ("before_journal", "tool:2"),
    ("before_complete", ""),
)

Calls = tuple[Call, ...]


def _instead(name: str, arguments: str = "{}") -> Callable[[Calls], Reply]:
    return lambda _: Reply(thinking="Hm.", calls=(Call(name, arguments),))


WAYS: Final[Mapping[str, Callable[[Calls], Reply]]] = {
    **model.WAYS,
    "no_json": _instead("look", "{no json"),
    "raises": _instead("raises"),
    "hangs": _instead("hangs"),
    "huge": _instead("huge"),
    "loops": _instead("ping"),
}
"""All of those of classification, and what only tools can do."""


class Model:
    """What the provider answers; how often it did so in which way."""

    def __init__(self, rate: float, seed: int) -> None:
        self._rate, self._dice = rate, random.Random(seed)
        self.ways: Counter[str] = Counter()

    def __call__(self, request: Request) -> Reply:
        way = self._dice.choice(list(WAYS)) if self._dice.random() < self._rate else "well"
        self.ways[way] += 1
        calls = _calls(request)
        if way != "well":
            return WAYS[way](calls or (Call("look"),))
        return Reply(thinking="Let me see.", calls=calls) if calls else Reply(text="That is all.")


def _calls(request: Request) -> Calls:
    """The next call of a turn; none at its end."""
    if request.conversation.tool_choice == "none":
        return ()
    since = [said for said in request.messages if said.role != "system"]
    opening = max(n for n, said in enumerate(since) if said.role == "user" and said.text)
    made = [call.name for said in since[opening:] for call in said.calls]
    if made and made[-1] in OTHER:
        return (Call(OTHER[made[-1]]),)
    return (Call(CALLS[len(made)], {"text": f"call {len(made)}"}),) if len(made) < len(CALLS) else ()


@dataclass(frozen=True, slots=True)
class TurnsPlan:
    """How much, and how rough. `rate`: the part of the answers that goes wrong.

    The messages come within so many `seconds`; `every` so many a worker is killed, until all is done.
    """

    turns: int = 300
    seconds: float = 60.0
    every: float = 5.0
    rate: float = 0.3
    seed: int = 1


@dataclass(frozen=True, slots=True)
class TurnsReport:
    """Counts. Those from `lost` to `rejected` must be 0, and `problems` empty. `answered`: by why the turn ended."""

    accepted: int
    answered: Mapping[str, int]
    dead: Mapping[str, int]
    lost: int
    doubled: int
    out_of_order: int
    repeated: int
    """Calls with an effect that were carried out twice."""
    bare: int
    """Dead letters without a reason."""
    rejected: Sequence[str]
    """Requests that the strict provider refused."""
    problems: Sequence[str]
    kills: int
    ways: Mapping[str, int]

    @property
    def clean(self) -> bool:
        """Whether nothing that was promised was broken."""
        wrong = self.lost or self.doubled or self.out_of_order or self.repeated or self.bare
        ended = sum(self.answered.values()) + sum(self.dead.values())
        return not wrong and not self.rejected and not self.problems and ended == self.accepted

    @property
    def failed(self) -> int:
        """Answers of the provider that went wrong."""
        return sum(n for way, n in self.ways.items() if way != "well")

    def __str__(self) -> str:
        told = (
            f"{self.kills} kill -9 of one of {WORKERS} workers: accepted {self.accepted},"
            f" answered {sum(self.answered.values())} ({_listed(self.answered)}),"
            f" dead-lettered {sum(self.dead.values())} (by reason: {_listed(self.dead)}), lost {self.lost},"
            f" doubled {self.doubled}, out of order {self.out_of_order}, calls with effects repeated {self.repeated},"
            f" requests refused by the strict provider {len(self.rejected)},"
            f" model calls {sum(self.ways.values())}, of these failed {self.failed}"
        )
        more = f"bare letters {self.bare}; refused: {self.rejected[:3]}; problems: {'; '.join(self.problems) or 'none'}"
        return told if self.clean else f"{told}; {more}"


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{what} {n}" for what, n in sorted(counts.items(), key=lambda one: -one[1])) or "none"


@dataclass(slots=True)
class Crew:
    """The worker processes."""

    url: str
    llm: str
    directory: Path
    node: str = "tests.chaos.turns_node"
    alive: list[subprocess.Popen[bytes]] = field(default_factory=list)
    kills: int = 0

    def hire(self) -> None:
        words = (sys.executable, "-m", self.node, self.url, self.llm, str(self.directory))
        env = {key: value for key, value in os.environ.items() if not key.startswith("SWITCHBOARD_")}
        with (self.directory / "workers.log").open("ab") as log:
            self.alive.append(ForkedCommand(words, env=env, stdout=log, stderr=log, start_new_session=True))

    async def at_work(self) -> bool:
        """Whether all of them have begun to work."""
        ready = {line[1] for line in read_traces([self.directory / "trace"]) if line[0] == "ready"}
        return all(str(one.pid) in ready for one in self.alive)

    def kill(self, victim: subprocess.Popen[bytes]) -> None:
        victim.kill()
        victim.wait()
        self.alive.remove(victim)
        self.kills += 1

    def dismiss(self) -> None:
        for one in self.alive:
            one.kill()
            one.wait()


@dataclass(frozen=True, slots=True)
class Resumed:
    """How long it took until killed turns were answered, and may have taken; `requests`: what one had left at most."""

    seconds: float
    requests: int

    @property
    def bound(self) -> float:
        """Seconds: what the model needs, and five for all else."""
        return self.requests * LATENCY_S + 5.0


async def resume(point: Point, path: str, directory: Path) -> Resumed:
    """Ten turns, killed in the middle at this point, and resumed by another process."""
    async with (
        embedded_postgres(directory / "database") as server,
        lab(server.url, [team(directory, "old")], RULES) as parts,
    ):
        await fill(parts)
        lives = Lives(forked(), parts, server.url, directory, latency=LATENCY_S)
        async with lives.llm:
            await lives.live("old", crash_at=f"{point}:5:{path}")
            left = max(sum((who, n) not in lives.known for n in REQUESTS) for who in PEOPLE)
            began = datetime.now(UTC)
            await lives.live("new")
            ended: datetime = await parts.database.value("select max(finished_at) from attempt")
            return Resumed((ended - began).total_seconds(), left)


async def run(plan: TurnsPlan, directory: Path) -> TurnsReport:
    """The whole run in `directory`."""
    brain, dice = Model(plan.rate, plan.seed), random.Random(plan.seed)
    async with (
        embedded_postgres(directory / "database") as server,
        lab(server.url, [TEAM], RULES) as parts,
        ScriptedLlm(brain, strict=True) as llm,
    ):
        crew = Crew(server.url, llm.url, directory)
        for _ in range(WORKERS):
            crew.hire()
        refusing = asyncio.create_task(_refuse(llm))
        try:
            await eventually(crew.at_work, within=60)
            feeding = asyncio.create_task(_feed(parts, plan, dice))
            await havoc(parts, plan, dice, crew, feeding)
        finally:
            refusing.cancel()
            crew.dismiss()
        trace = read_traces([directory / "trace"])
        rejected = [stray for stray in llm.strays if "disconnected" not in stray]  # those are of a killed worker
        return await judge(parts.database, await feeding, trace, rejected, crew.kills, brain.ways)


async def _feed(parts: Lab, plan: TurnsPlan, dice: random.Random) -> int:
    """Hand in all messages, ten at a time; how many were acknowledged."""
    acknowledged = 0
    for start in range(0, plan.turns, 10):
        numbers = range(start, min(start + 10, plan.turns))
        given = [
            submission(f"message {n}", channel="api", sender=f"s{dice.randrange(CONVERSATIONS)}", event=f"e{n}")
            for n in numbers
        ]
        outcomes = await parts.accept.accept_all(given)
        acknowledged += sum(not isinstance(outcome, SwitchboardError) for outcome in outcomes)
        await asyncio.sleep(plan.seconds * len(numbers) / plan.turns)
    return acknowledged


async def _refuse(llm: ScriptedLlm) -> None:
    """Now and then connections are refused for a moment."""
    while True:
        await asyncio.sleep(7)
        async with llm.closed():
            await asyncio.sleep(0.2)


async def havoc(parts: Lab, plan: TurnsPlan, dice: random.Random, crew: Crew, feeding: asyncio.Task[int]) -> None:
    """Kill one of the workers again and again, until all is done, or it has taken too long.

    Only while all are at work: where they start slower than they are killed, nobody would ever do anything.
    """
    next_kill, ends = time.monotonic() + plan.every, time.monotonic() + plan.seconds + LIMIT_S
    while not (feeding.done() and await settled(parts)) and time.monotonic() < ends:
        if time.monotonic() >= next_kill and await crew.at_work():
            next_kill = time.monotonic() + plan.every
            crew.kill(dice.choice(crew.alive))
            crew.hire()
        await asyncio.sleep(0.2)


_MESSAGES: Final = """
select m.request_id, coalesce(d.states, '{}') as states, t.stop_reason,
       coalesce(x.categories, '{}') as categories, coalesce(x.reasons, '{}') as reasons,
       coalesce(o.replies, 0) as replies
from message_inbox m
left join (select request_id, array_agg(state) as states from delivery group by 1) d using (request_id)
left join (
    select d.request_id, coalesce(max(a.stop_reason), 'end') as stop_reason
    from delivery d join attempt a on a.lane = d.lane and a.seq = d.seq where a.outcome = 'answered' group by 1
) t using (request_id)
left join (
    select request_id, array_agg(category) as categories, array_agg(reason) as reasons from dead_letter group by 1
) x using (request_id)
left join (select request_id, count(*) as replies from outbox where text <> $1 group by 1) o using (request_id)"""

_DISORDER: Final = """
select count(*) from (
    select d.seq, lag(d.seq) over (partition by o.lane order by o.seq) as before
    from outbox o join delivery d using (request_id) where o.text <> $1
) x where seq <= before"""


async def judge(
    database: Database,
    acknowledged: int,
    trace: list[list[str]],
    rejected: Sequence[str],
    kills: int,
    ways: Mapping[str, int],
) -> TurnsReport:
    """Hold what was acknowledged against what is stored, and what was done against what may be done once."""
    rows = await database.rows(_MESSAGES, DELAYED)
    answered = [row for row in rows if set(row["states"]) == {"answered"} and not row["reasons"]]
    dead = [row for row in rows if set(row["states"]) == {"dead"} and row["reasons"]]
    books = await audit_books(database)
    off = [] if books.balanced else [f"the books do not balance: {books.messages}, {books.targets}"]
    told_twice = "select count(*) from (select from outbox where text = $1 group by request_id having count(*) > 1) x"
    return TurnsReport(
        accepted=len(rows),
        answered=Counter(row["stop_reason"] for row in answered),
        dead=Counter(row["categories"][0] for row in dead),
        lost=max(0, acknowledged - len(answered) - len(dead)),
        doubled=sum(row["replies"] != 1 for row in answered)
        + sum(row["replies"] != 0 for row in dead)
        + int(await database.value(told_twice, DELAYED)),
        out_of_order=int(await database.value(_DISORDER, DELAYED)),
        repeated=sum(n - 1 for n in Counter(key for what, key in trace if what == "pay").values()),
        bare=sum(not all(row["reasons"]) for row in dead),
        rejected=rejected,
        problems=(*off, *books.problems),
        kills=kills,
        ways=ways,
    )


def _told(point: Point, path: str) -> bool:
    """Print how long turns that are killed at this point take; whether that is too long."""
    directory = a_directory()
    took = asyncio.run(resume(point, path, directory))
    shutil.rmtree(directory, ignore_errors=True)
    print(
        f"10 turns killed at {' '.join(filter(None, (point, path)))}: {took.requests} requests of {LATENCY_S:g} s left,"
        f" all done {took.seconds:.1f} s after the restart, at most {took.bound:g} s",
        flush=True,
    )
    return took.seconds > took.bound


def main() -> int:
    """Read the command line, run, print the report."""
    plan = asked_for(TurnsPlan, __doc__)
    late = [_told(*point) for point in POINTS]
    directory = a_directory()
    began = time.monotonic()
    report = asyncio.run(run(plan, directory))
    print(f"ways: {_listed(report.ways)}")
    print(f"{time.monotonic() - began:.0f} s")
    print(report)
    met = all_met(WAYS.keys() - report.ways.keys())
    return exit_code(directory, well=report.clean and met and not any(late))


if __name__ == "__main__":
    sys.exit(main())
