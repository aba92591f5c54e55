"""The chaos run of tools: MCP servers do to their workers what they can, commands and shells end in every way.

    python -m tests.chaos.tools_run [--turns 1000] [--seconds 200] [--every 3] [--seed N] [--shells]

Two workers work; one of them is killed again and again. `--shells`: one conversation, and nothing but its shell. The
last line counts; exit code 0 only if every turn was answered once, no call with an effect was made twice, no process
that tools have started is left, no shell has lost its state without saying so, and a worker that has done its turns has
as many descriptors open, and as much of the models set aside, as before them.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

from switchboard.embedded.supervisor import embedded_postgres
from switchboard.journey.accept import Submission
from switchboard.store.books import audit_books
from switchboard.testing.scripted_llm import ScriptedLlm
from switchboard.transport.stdio_mcp import KEY
from tests.chaos.asked import a_directory, asked_for, exit_code
from tests.chaos.books import read_traces
from tests.chaos.tools_node import CONVERSATIONS, WILD, mark_of, servers, team
from tests.chaos.turns_run import Crew, TurnsPlan, havoc
from tests.forked import end_forking, forked
from tests.hands import settled
from tests.lab import Lab, lab, rule, submission
from tests.mcp_servers import running
from tests.obeying import obedient
from tests.waiting import eventually

WORKERS: Final = 2
NODE: Final = "tests.chaos.tools_node"
NEW: Final = "a new session"
SINCE: Final = f"{NEW} since the last command that ended"
_STEP: Final = 'echo "was $PWD $n"; n=$((n + 1)); mkdir -p /workspace/d$n; cd /workspace/d$n; '
"""A shell tells what it knows of the command before, and goes on from there."""
_WAS: Final = re.compile(r"^exit code \d+, in \S+\nwas (\S+) (\d*)$", re.MULTILINE)
_ENDS: Final = (
    *("true", "true", "true", "false", "jobs -p | grep -q . || sleep {mark} &", "sleep {mark}", "yes"),
    *("exit 3", "kill -9 $$", "trap '' INT; sleep {mark}", "setsid sleep {mark} & true"),
)
"""How commands end in a shell, and without one."""


@dataclass(frozen=True, slots=True)
class ToolsPlan:
    """See `TurnsPlan`. `shells`: one conversation with a shell, and nothing else."""

    turns: int = 1000
    seconds: float = 200.0
    every: float = 3.0
    seed: int = 1
    shells: bool = False

    @property
    def havoc(self) -> TurnsPlan:
        """When it is killed."""
        return TurnsPlan(turns=self.turns, seconds=self.seconds, every=self.every, seed=self.seed)


@dataclass(frozen=True, slots=True)
class Shells:
    """What commands found: the state of the one before, the word that it is lost, or neither, which must not be."""

    kept: int = 0
    new: int = 0
    silent: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """Counts. `unknown`: turns with a call whose outcome is not known, because its worker was killed."""

    turns: int
    answered: int
    unknown: int
    calls: int
    repeated: int
    shells: Shells
    kills: int
    left: int
    """Processes that tools have started, at the end."""
    most: int
    """Of these, at any time."""
    descriptors: tuple[int, int]
    reserved: tuple[int, int]
    balanced: bool

    @property
    def clean(self) -> bool:
        lasting = [after > before for before, after in (self.descriptors, self.reserved)]
        wrong = self.repeated or self.left or self.shells.silent or any(lasting)
        return self.answered == self.turns and not wrong and self.balanced

    def __str__(self) -> str:
        (opened, still_open), (reserved, still_reserved) = self.descriptors, self.reserved
        return (
            f"{self.kills} kill -9 of one of {WORKERS} workers: turns {self.turns}, answered once {self.answered},"
            f" of these with an unknown outcome {self.unknown}, calls that reached servers {self.calls}, calls with"
            f" effects repeated {self.repeated}, commands in shells that found their state {self.shells.kept}, that"
            f" said it was lost {self.shells.new}, that did not {self.shells.silent}, processes of tools at most"
            f" {self.most} and at the end {self.left}, descriptors of a worker before its turns {opened} and after"
            f" {still_open}, reservations before {reserved} and after {still_reserved}"
        )


async def run(plan: ToolsPlan, directory: Path) -> Report:
    """The whole run in `directory`."""
    async with embedded_postgres(directory / "database") as server:
        return await run_on(server.url, plan, directory)


async def run_on(url: str, plan: ToolsPlan, directory: Path) -> Report:
    """The same on this database."""
    dice = random.Random(plan.seed)
    calm, wild = servers(directory)
    calm.offers("look", "pay")
    wild.offers(*WILD)
    async with (
        lab(url, [team(directory)], [rule("System1/clerk")]) as parts,
        ScriptedLlm(obedient) as llm,
    ):
        crew = Crew(url, llm.url, directory, NODE)
        most = 0
        for _ in range(WORKERS):
            crew.hire()

        async def watch() -> None:
            nonlocal most
            while True:
                most = max(most, len(left_of(directory)))
                await asyncio.sleep(0.5)

        watching = asyncio.create_task(watch())
        given = list(messages(plan, directory, dice))
        try:
            await eventually(crew.at_work, within=60)
            feeding = asyncio.create_task(feed(parts, plan, given[WORKERS:]))
            await havoc(parts, plan.havoc, dice, crew, feeding)
        finally:
            watching.cancel()
            crew.dismiss()
        await parts.accept.accept_all(given[:WORKERS])
        words = (url, llm.url, str(directory), "last")
        last = forked().start(NODE, *words, env=os.environ, errors=directory / "workers.log")
        try:
            assert await last.wait(300) == 0, last.errors.read_text()[-3000:]
        finally:
            last.kill()
        assert await settled(parts)
        await eventually(lambda: ended(directory))
        return await judge(parts, directory, crew.kills, most)


def left_of(directory: Path) -> list[int]:
    """The processes that tools have started; sandboxes name the workspace, and what is in there has a mark."""
    names = ("calm", "wild", "workspaces", "program")
    return running([*(f"{directory}/{name}" for name in names), mark_of(directory)])


async def ended(directory: Path) -> bool:
    return not left_of(directory)


async def feed(parts: Lab, plan: ToolsPlan, given: Sequence[Submission]) -> int:
    """Hand in all messages, one after the other."""
    for one in given:
        await parts.accept.accept(one)
        await asyncio.sleep(plan.seconds / plan.turns)
    return len(given)


def messages(plan: ToolsPlan, directory: Path, dice: random.Random) -> Iterable[Submission]:
    """Most tell the model what to call; some are for programs. Those that come first are done last."""
    for n in range(plan.turns):
        where = {"channel": "api", "sender": f"s{n % (1 if plan.shells else CONVERSATIONS)}", "event": f"e{n}"}
        program = None if plan.shells else {0: "System1/program", 1: "System1/shut-in"}.get(dice.randrange(10))
        yield submission(_orders(plan, f"e{n}", directory, dice), pinned=program, **where)


def _orders(plan: ToolsPlan, event: str, directory: Path, dice: random.Random) -> str:
    ends = [end.format(mark=mark_of(directory)) for end in _ENDS]
    shell = ("bash", {"command": _STEP + dice.choice(ends)})
    wild = (f"wild__{dice.choice(WILD)}", {"megabytes": dice.choice([1, 50])})
    command = ("execute_command", {"command": dice.choice(ends)})
    all_ = [("calm__look", {}), wild, shell, command, ("calm__pay", {"text": event})]
    wanted = [] if plan.shells else [one for one in all_ if dice.random() < 0.7]
    return " ".join(f"call {name} with {json.dumps(arguments)}" for name, arguments in wanted or [shell])


_TURNS: Final = """
select d.state, coalesce(o.replies, 0) as replies, coalesce(s.begun, 0) as begun
from delivery d
left join (select request_id, count(*) as replies from outbox group by 1) o using (request_id)
left join (select request_id, count(*) as begun from step where state = 'started' group by 1) s using (request_id)"""

_COMMANDS: Final = """
select d.lane, s.result ->> 'text' as told
from delivery d join step s using (request_id, lane, seq) join message_inbox m using (request_id)
where d.system_id = 'System1/clerk' and s.path like 'tool:%'
    and (s.state = 'started'
         or s.result ->> 'text' ~ '^(exit code [0-9]+, in |a new session|the session|it was|bash was)')
order by d.lane, d.seq, s.path"""


State = tuple[str, int]
"""The directory of a shell, and how many commands it has run."""
_BEGUN: Final[State] = ("/workspace", 0)


def _after(possible: Set[State]) -> set[State]:
    return {(f"/workspace/d{n + 1}", n + 1) for _, n in possible}


def shells_of(told: Iterable[str | None]) -> Shells:
    """What the commands of one conversation have found; None: nobody knows what came of one.

    Of one that did not end, or of which nothing is known, the next may find the state before it or after it.
    """
    found = Counter[str]()
    possible = since = {_BEGUN}
    for one in told:
        said = one or ""
        new, was = said.startswith(NEW), _WAS.search(said)
        if new:
            possible = since if said.startswith(SINCE) else {_BEGUN}
        if new or was:
            good = not was or (was[1], int(was[2] or 0)) in possible
            found["silent" if not good else "new" if new else "kept"] += 1
        # Where a new session began with a command that was not told of, those up to here may have been run in it.
        since = {_BEGUN} if new or was else _after(since) | {_BEGUN}
        possible = set() if "the session has ended" in said else _after(possible) | (set() if was else possible)
    return Shells(**found)


async def judge(parts: Lab, directory: Path, kills: int, most: int) -> Report:
    rows = await parts.database.rows(_TURNS)
    calls = [(one["name"], one["_meta"][KEY]) for rogue in servers(directory) for one in rogue.calls]
    twice = sum(n - 1 for (name, _), n in Counter(calls).items() if name != "look")
    said = await parts.database.rows(_COMMANDS)
    shells = [shells_of(row["told"] for row in of_one) for _, of_one in groupby(said, lambda row: row["lane"])]
    told = {line[0]: line[1:] for line in read_traces([directory / "trace"]) if line[0] in {"descriptors", "reserved"}}
    return Report(
        turns=len(rows),
        answered=sum(row["state"] == "answered" and row["replies"] == 1 for row in rows),
        unknown=sum(row["begun"] > 0 for row in rows),
        calls=len(calls),
        repeated=twice,
        shells=Shells(*(sum(getattr(one, name) for one in shells) for name in ("kept", "new", "silent"))),
        kills=kills,
        left=len(left_of(directory)),
        most=most,
        descriptors=(int(told["descriptors"][0]), int(told["descriptors"][1])),
        reserved=(int(told["reserved"][0]), int(told["reserved"][1])),
        balanced=(await audit_books(parts.database)).balanced,
    )


def main() -> int:
    """Read the command line, run, print the report."""
    plan = asked_for(ToolsPlan, __doc__)
    directory = a_directory()
    try:
        report = asyncio.run(run(plan, directory))
    finally:
        end_forking()
    print(report)
    return exit_code(directory, well=report.clean)


if __name__ == "__main__":
    sys.exit(main())
