"""The chaos run of plans: steps side by side, while one of three workers is killed again and again.

    python -m tests.chaos.plans_run [--plans 200] [--least 5] [--most 30] [--seconds 40] [--every 2] [--seed N]

The last line counts; exit code 0 only if every plan came to an end and was answered once, no step is done whose need
has no end on record (looked at after every kill, too), every step had one key, no step that was done was run again, no
effect was repeated, and no plan has spent more than its budget.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from switchboard.embedded.supervisor import embedded_postgres
from switchboard.store.books import audit_books
from switchboard.store.database import Database
from switchboard.testing.scripted_llm import ScriptedLlm
from tests.chaos.asked import a_directory, asked_for, exit_code
from tests.chaos.books import read_traces
from tests.chaos.plans_node import BUDGET, CONVERSATIONS, LOOP, RULES, TEAM, TOOLS, brain, message
from tests.chaos.turns_run import WORKERS, Crew, TurnsPlan, havoc
from tests.lab import Lab, lab, submission
from tests.waiting import eventually

NODE: Final = "tests.chaos.plans_node"

EARLY: Final = """
with needed as (
    select p.request_id, p.lane, p.seq, s ->> 'id' as id, json_array_elements_text(s -> 'needs') as need
    from step p cross join json_array_elements(p.result -> 'pipeline' -> 'steps') s
    where p.path = 'plan:route' and p.state = 'done'
)
select count(*) from needed n
join step d on d.request_id = n.request_id and d.lane = n.lane and d.seq = n.seq and d.path = n.id and d.state = 'done'
where not exists (
    select from step e
    where e.request_id = n.request_id and e.lane = n.lane and e.seq = n.seq and e.path = n.need and e.state <> 'started'
)"""
"""Steps that are done though one that they need has no end on record."""

OVER: Final = """
select count(*) from (
    select from step group by request_id, lane, seq having sum(tokens_out) > $1
) x"""
"""Plans that have spent more than their budget."""

_STEPS: Final = (
    "select idempotency_key::text as key, path, state, extract(epoch from ended_at)::float8 as ended from step"
)
_REPLIES: Final = """
select d.state, (select count(*) from outbox o where o.request_id = d.request_id) as replies,
       coalesce((select x.reason from dead_letter x where x.request_id = d.request_id), '') as reason
from delivery d"""


@dataclass(frozen=True, slots=True)
class PlansPlan:
    """How much, and how rough: a worker is killed every `every` seconds."""

    plans: int = 200
    least: int = 5
    most: int = 30
    seconds: float = 40.0
    every: float = 2.0
    seed: int = 1


@dataclass(frozen=True, slots=True)
class PlansReport:
    """Counts. Those from `unanswered` on must be 0."""

    plans: int
    steps: int
    states: dict[str, int]
    calls: int
    kills: int
    empty: int
    """Plans of which nothing was done, because effects that came first were interrupted: dead letters."""
    unanswered: int
    early: int
    """Steps that were done before the end of one that they need was on record."""
    keys: int
    """Steps that were called with more than one key."""
    again: int
    """Steps that were run though they were done."""
    repeated: int
    """Effects that took place twice."""
    over: int
    """Plans that have spent more than their budget."""
    unbalanced: int

    @property
    def clean(self) -> bool:
        wrong = (self.unanswered, self.early, self.keys, self.again, self.repeated, self.over, self.unbalanced)
        return not any(wrong)

    def __str__(self) -> str:
        states = ", ".join(f"{state} {n}" for state, n in sorted(self.states.items()))
        counts = {
            "not answered once": self.unanswered,
            "done before a need": self.early,
            "with another key": self.keys,
            "done and run again": self.again,
            "effects repeated": self.repeated,
            "over their budget": self.over,
            "out of balance": self.unbalanced,
        }
        told = ", ".join(f"{what} {n}" for what, n in counts.items())
        done = f"plans {self.plans}, of which nothing was done {self.empty}"
        return f"{self.kills} kill -9: {done}, steps {self.steps} ({states}), calls {self.calls}; {told}"


async def run(plan: PlansPlan, directory: Path) -> PlansReport:
    """The whole run in `directory`."""
    dice = random.Random(plan.seed)
    async with (
        embedded_postgres(directory / "database") as server,
        lab(server.url, [TEAM], RULES) as parts,
        ScriptedLlm(brain) as llm,
    ):
        crew = Watched(server.url, llm.url, directory, NODE)
        for _ in range(WORKERS):
            crew.hire()
        early = asyncio.create_task(crew.early_ones(parts.database))
        try:
            await eventually(crew.at_work, within=60)
            rough = TurnsPlan(turns=plan.plans, seconds=plan.seconds, every=plan.every, seed=plan.seed)
            await havoc(parts, rough, dice, crew, asyncio.create_task(_feed(parts, plan)))
        finally:
            crew.dismiss()
            early.cancel()
        await asyncio.gather(early, return_exceptions=True)
        return await judge(parts.database, read_traces([directory / "trace"]), crew.kills, crew.early)


class Watched(Crew):
    """Workers, beside which it is looked all the time whether a step is done before one that it needs."""

    early: int = 0

    async def early_ones(self, database: Database) -> None:
        while True:
            self.early += int(await database.value(EARLY))
            await asyncio.sleep(0.2)


async def _feed(parts: Lab, plan: PlansPlan) -> int:
    for n in range(plan.plans):
        text, sender = message(n, plan.least, plan.most), f"s{n % CONVERSATIONS}"
        await parts.accept.accept(submission(text, channel="api", sender=sender, event=f"e{n}"))
        await asyncio.sleep(plan.seconds / plan.plans)
    return plan.plans


async def judge(database: Database, trace: Sequence[Sequence[str]], kills: int, early: int = 0) -> PlansReport:
    """What is on record held against what tools have done."""
    calls = [(line[0], line[1], line[2], float(line[3])) for line in trace if line[0] in TOOLS]
    rows = await database.rows(_STEPS)
    ended = {row["key"]: row["ended"] for row in rows if row["state"] == "done"}
    keys: defaultdict[str, set[str]] = defaultdict(set)
    for _, key, label, _ in calls:
        # An answer that was not on record yet is asked for again, and its calls that may be repeated are other calls.
        if not label.endswith(LOOP):
            keys[label].add(key)
    effects = Counter(key for name, key, _, _ in calls if name == "pay")
    replies = await database.rows(_REPLIES)
    books = await audit_books(database)
    return PlansReport(
        plans=len(replies),
        steps=sum(":" not in row["path"] for row in rows),
        states=Counter(row["state"] for row in rows if ":" not in row["path"]),
        calls=len(calls),
        kills=kills,
        empty=sum(row["reason"].startswith("nothing of the plan was done") for row in replies),
        unanswered=sum(
            (row["state"], row["replies"], row["reason"][:7]) not in {("answered", 1, ""), ("dead", 0, "nothing")}
            for row in replies
        ),
        early=early + int(await database.value(EARLY)),
        keys=sum(len(found) > 1 for found in keys.values()),
        again=sum(key in ended and at > ended[key] for _, key, _, at in calls),
        repeated=sum(n - 1 for n in effects.values()),
        over=int(await database.value(OVER, BUDGET)),
        unbalanced=int(not books.balanced) + len(books.problems),
    )


def main() -> int:
    """Read the command line, run, print the report."""
    plan = asked_for(PlansPlan, __doc__)
    directory = a_directory()
    report = asyncio.run(run(plan, directory))
    print(report)
    return exit_code(directory, well=report.clean)


if __name__ == "__main__":
    sys.exit(main())
