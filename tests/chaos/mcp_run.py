"""The chaos run of MCP servers: they do to their workers what they can, and one of two workers dies again and again.

    python -m tests.chaos.mcp_run [--turns 200] [--seconds 40] [--every 0.5] [--seed N]

The last line counts; exit code 0 only if every turn was answered once, no call with an effect was made twice, no
process of a server is left, and a worker that has done its turns has as many descriptors open as before them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from switchboard.embedded.supervisor import embedded_postgres
from switchboard.journey.accept import Submission
from switchboard.store.books import audit_books
from switchboard.testing.scripted_llm import ScriptedLlm
from switchboard.transport.stdio_mcp import KEY
from tests.chaos.books import read_traces
from tests.chaos.mcp_node import CONVERSATIONS, TEAM, WILD, servers
from tests.chaos.turns_run import Crew, TurnsPlan, a_directory, havoc
from tests.guard import stand_guard
from tests.hands import settled
from tests.lab import ROOT, Lab, lab, rule, submission, to
from tests.mcp_servers import running
from tests.obeying import obedient
from tests.waiting import eventually

WORKERS: Final = 2
NODE: Final = "tests.chaos.mcp_node"


@dataclass(frozen=True, slots=True)
class Report:
    """Counts. `unknown`: turns with a call whose outcome is not known, because its worker was killed."""

    turns: int
    answered: int
    unknown: int
    calls: int
    repeated: int
    kills: int
    left: int
    """Processes of servers at the end."""
    most: int
    """Of these, at any time."""
    descriptors: tuple[int, int]
    balanced: bool

    @property
    def clean(self) -> bool:
        before, after = self.descriptors
        return self.answered == self.turns and not (self.repeated or self.left) and after <= before and self.balanced

    def __str__(self) -> str:
        before, after = self.descriptors
        return (
            f"{self.kills} kill -9 of one of {WORKERS} workers: turns {self.turns}, answered once {self.answered},"
            f" of these with an unknown outcome {self.unknown}, calls that reached servers {self.calls}, calls with"
            f" effects repeated {self.repeated}, processes of servers at most {self.most} and at the end {self.left},"
            f" descriptors of a worker before its turns {before} and after {after}"
        )


async def run(plan: TurnsPlan, directory: Path) -> Report:
    """The whole run in `directory`."""
    dice = random.Random(plan.seed)
    calm, wild = servers(directory)
    calm.offers("look", "pay")
    wild.offers(*WILD)
    async with (
        embedded_postgres(directory / "database") as server,
        lab(server.url, [TEAM], [rule(ROOT, [to("System1/clerk")])]) as parts,
        ScriptedLlm(obedient) as llm,
    ):
        crew = Crew(server.url, llm.url, directory, NODE)
        most = 0
        for _ in range(WORKERS):
            crew.hire()

        async def watch() -> None:
            nonlocal most
            while True:
                most = max(most, len(running([f"{directory}/calm", f"{directory}/wild"])))
                await asyncio.sleep(0.5)

        watching = asyncio.create_task(watch())
        try:
            await eventually(crew.at_work, within=60)
            feeding = asyncio.create_task(feed(parts, plan, dice))
            await havoc(parts, plan, dice, crew, feeding)
        finally:
            watching.cancel()
            crew.dismiss()
        await parts.accept.accept_all([message(f"last {n}", n, dice) for n in range(CONVERSATIONS)])
        words = (sys.executable, "-m", NODE, server.url, llm.url, str(directory), "last")
        await asyncio.to_thread(subprocess.run, words, check=True)
        assert await settled(parts)
        await eventually(lambda: ended(directory))
        return await judge(parts, directory, crew.kills, most)


async def ended(directory: Path) -> bool:
    return not running([f"{directory}/calm", f"{directory}/wild"])


async def feed(parts: Lab, plan: TurnsPlan, dice: random.Random) -> int:
    """Hand in all messages, one after the other."""
    for n in range(plan.turns):
        await parts.accept.accept(message(f"e{n}", n, dice))
        await asyncio.sleep(plan.seconds / plan.turns)
    return plan.turns


def message(event: str, n: int, dice: random.Random) -> Submission:
    """It tells the model to look, to let the wild server do something, and to pay."""
    wanted = f"wild__{dice.choice(WILD)}"
    size = json.dumps({"megabytes": dice.choice([1, 50])})
    text = f"call calm__look with {{}} call {wanted} with {size} call calm__pay with {json.dumps({'text': event})}"
    return submission(text, channel="api", sender=f"s{n % CONVERSATIONS}", event=event)


_TURNS: Final = """
select d.state, coalesce(o.replies, 0) as replies, coalesce(s.begun, 0) as begun
from delivery d
left join (select request_id, count(*) as replies from outbox group by 1) o using (request_id)
left join (select request_id, count(*) as begun from step where state = 'started' group by 1) s using (request_id)"""


async def judge(parts: Lab, directory: Path, kills: int, most: int) -> Report:
    rows = await parts.database.rows(_TURNS)
    calls = [(one["name"], one["_meta"][KEY]) for rogue in servers(directory) for one in rogue.calls]
    twice = sum(n - 1 for (name, _), n in Counter(calls).items() if name != "look")
    told = [line for line in read_traces([directory / "trace"]) if line[0] == "descriptors"]
    return Report(
        turns=len(rows),
        answered=sum(row["state"] == "answered" and row["replies"] == 1 for row in rows),
        unknown=sum(row["begun"] > 0 for row in rows),
        calls=len(calls),
        repeated=twice,
        kills=kills,
        left=len(running([f"{directory}/calm", f"{directory}/wild"])),
        most=most,
        descriptors=(int(told[-1][1]), int(told[-1][2])),
        balanced=(await audit_books(parts.database)).balanced,
    )


def main() -> int:
    """Read the command line, run, print the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, kind, default in (("turns", int, 200), ("seconds", float, 40.0), ("every", float, 0.5), ("seed", int, 1)):
        parser.add_argument(f"--{name}", type=kind, default=default)
    plan = TurnsPlan(**vars(parser.parse_args()))
    stand_guard()
    directory = a_directory()
    report = asyncio.run(run(plan, directory))
    print(report)
    if report.clean:
        shutil.rmtree(directory, ignore_errors=True)
        return 0
    print(f"the evidence is in {directory}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
