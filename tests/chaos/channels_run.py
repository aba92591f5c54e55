"""The chaos run of channels: `switchboard up` with an account on each is killed, and every person has one answer.

    python -m tests.chaos.channels_run [--each 10] [--down 2] [--turn 8] [--kills 2] [--seed N] [--channels NAMES]
    python -m tests.chaos.channels_run --at-random 300 [--every 5] [--seed N]
    python -m tests.chaos.channels_run --inside     with the accounts in the server's process, three at most

So many people write on each channel. While all turns run, everything of ours is killed with -9 (server, workers,
connectors, database, programs of butlers), and started again; so many times. The last of the people write while all is
down after the last kill. Every question must be answered once, within the time of a turn and 15 s from the last start.

With `--at-random`, people write for so many seconds, and everything or one part is killed again and again, the embedded
database alone, too; accounts in the server's process are killed with it. Prints what it does, a table and a verdict;
exit code 0 only if nothing was lost, doubled or out of order. Counted apart: repeats that say so, replies of which the
operator is told that they may have been sent, and questions that are dead letters because every worker that took them
was killed. Without `--at-random` there may be none of these: nothing was being sent when the kills came.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from switchboard.cli.output import out, table
from switchboard.domain.json_values import JsonObject
from tests.chaos.asked import a_directory, asked_for, exit_code
from tests.chaos.correspondents import PEOPLE, SAID, Correspondents, Got, Question
from tests.chaos.house import EVERYTHING, PARTS, SERVER, House

AFTER_S: Final = 15.0
"""How much longer than one turn the answers may take after the last start."""
LIMIT_S: Final = 180.0
"""What is not answered when no further answer has come for so long is lost."""
_LOOK_S: Final = 0.1
_LOOK_AT_ALL_S: Final = 0.5
"""Until everybody is asked again for what they got, which takes some work."""
_LATEST: Final = 0.8
"""The part of the first turn after which everything is killed at the latest: nothing is being sent yet."""
_HEALTHY: Final = "healthy"
_COLUMNS: Final = (
    *("channel", "asked", "answered once", "lost", "repeated", "out of order"),
    *("marked repeats", "uncertain and told", "dead letters"),
)
_SUCCESSOR: Final = 100
"""Who has asked as often as is answered at once is followed by the person whose number is so much higher."""


@dataclass(frozen=True, slots=True)
class ChannelsPlan:
    """How many write on each channel, how many of them while all is down, how long a turn takes (s), how often
    everything is killed; `at_random`: for so many seconds, `channels`: only these, with commas.
    """

    each: int = 10
    down: int = 2
    turn: float = 8.0
    kills: int = 2
    seed: int = 1
    at_random: float = 0.0
    every: float = 5.0
    inside: bool = False
    channels: str = ""


@dataclass(frozen=True, slots=True)
class ChannelReport:
    """What became of the questions of one channel; the sum of several has their names beside each other."""

    channel: str
    asked: int
    once: int
    """Questions that have exactly one answer."""
    lost: Sequence[str]
    repeated: Sequence[str]
    """Answers that came again and do not say that they may be repeats."""
    out_of_order: Sequence[str]
    marked: int
    """Repeats that say so."""
    uncertain: int
    """Replies that may have been sent, of which the operator is told."""
    poison: int
    """Questions that are dead letters, as every worker that took them was killed."""

    @property
    def clean(self) -> bool:
        """Whether nothing that was promised was broken, but for the time."""
        return not (self.lost or self.repeated or self.out_of_order)


@dataclass(frozen=True, slots=True)
class ChannelsReport:
    """What became of the questions, by channel."""

    channels: Sequence[ChannelReport]
    problems: Sequence[str]
    """What the books find wrong with themselves."""
    took_s: float
    """From the last start to the last answer."""

    def kept(self, plan: ChannelsPlan) -> bool:
        """Whether what was promised was kept; if nothing was killed while it was sent, each has its one answer."""
        clean = all(one.clean for one in self.channels) and not self.problems
        if plan.at_random:
            return clean
        return clean and all(one.once == one.asked for one in self.channels) and not self.late(plan)

    def late(self, plan: ChannelsPlan) -> bool:
        """Whether answers took longer than a turn and 15 s."""
        return not plan.at_random and self.took_s > plan.turn + AFTER_S

    def rows(self) -> list[tuple[object, ...]]:
        """Those of the table: one for each channel, and one for all."""
        return [
            (
                one.channel,
                *(one.asked, one.once, len(one.lost), len(one.repeated), len(one.out_of_order)),
                *(one.marked, one.uncertain, one.poison),
            )
            for one in (*self.channels, _sum(self.channels))
        ]


def _sum(channels: Sequence[ChannelReport]) -> ChannelReport:
    return ChannelReport(
        channel="all",
        asked=sum(one.asked for one in channels),
        once=sum(one.once for one in channels),
        lost=[text for one in channels for text in one.lost],
        repeated=[text for one in channels for text in one.repeated],
        out_of_order=[text for one in channels for text in one.out_of_order],
        marked=sum(one.marked for one in channels),
        uncertain=sum(one.uncertain for one in channels),
        poison=sum(one.poison for one in channels),
    )


@dataclass(slots=True)
class Run:
    """The people of each channel, the installation, and what has been asked."""

    plan: ChannelsPlan
    people: Sequence[Correspondents]
    house: House
    asked: list[tuple[Correspondents, Question]] = field(default_factory=list)
    started: float = 0.0

    async def ask(self, people: Correspondents, conversation: int, number: int = 0) -> None:
        """Somebody writes."""
        question = Question(people.account.channel, conversation, number)
        self.asked.append((people, question))
        await people.ask(question)

    async def start(self) -> None:
        """Start everything; the time counts from before it."""
        self.started = time.monotonic()
        await self.house.start()

    async def got(self) -> list[list[Got]]:
        """All answers by channel, the oldest first."""
        return list(await asyncio.gather(*(one.got() for one in self.people)))

    async def until_answered(self) -> float:
        """Seconds from the last start until everybody has an answer, or is known not to get one."""
        known, since = 0, self.started
        while time.monotonic() - since < LIMIT_S:
            answers = {one.question for some in await self.got() for one in some}
            if len(answers) > known:
                known, since = len(answers), time.monotonic()
            missing = {one.text for _, one in self.asked} - answers
            if not missing or not missing - {*await self.uncertain(), *await self.poison()}:
                break
            await asyncio.sleep(_LOOK_AT_ALL_S)
        return time.monotonic() - self.started

    async def uncertain(self) -> list[str]:
        """What replies say of which the operator is told that they may have been sent."""
        found = await self.house.asked("/v1/outbox", state="uncertain", limit="500")
        return [str(one["text"]).removeprefix(SAID) for one in found["replies"]]

    async def poison(self) -> list[str]:
        """The questions whose workers were killed as often as is taken for the message's own fault."""
        found = await self.house.asked("/v1/dead-letters", category="poison", limit="500")
        texts = [str(one["text"]) for one in found["dead_letters"]]
        return [one.text for _, one in self.asked if any(one.text in text for text in texts)]


@asynccontextmanager
async def opened(plan: ChannelsPlan, directory: Path) -> AsyncIterator[Run]:
    """The platforms, and the installation, which receives for all accounts."""
    async with AsyncExitStack() as stack:
        names = plan.channels.split(",") if plan.channels else PEOPLE
        people = [await stack.enter_async_context(PEOPLE[name]()) for name in names]
        more = {"SWITCHBOARD_CONNECTORS": "inside" if plan.inside else "apart"}
        for one in people:
            more |= one.environment
        house = House.built(directory, plan.turn, [one.account for one in people], more)
        run = Run(plan, people, house)
        await run.start()
        await until(lambda: _receives(run))
        try:
            yield run
        finally:
            await house.stop()


async def run(plan: ChannelsPlan, directory: Path) -> ChannelsReport:
    """The whole run in `directory`."""
    async with opened(plan, directory) as opened_run:
        await (_at_random if plan.at_random else _in_the_middle)(opened_run)
        took = await opened_run.until_answered()
        return await judged(opened_run, took)


async def judged(run: Run, took: float) -> ChannelsReport:
    """Hold what was asked against what people have."""
    uncertain, poison = await run.uncertain(), await run.poison()
    channels = [
        _judged_channel(
            people.account.channel, [one for whom, one in run.asked if whom is people], got, uncertain, poison
        )
        for people, got in zip(run.people, await run.got(), strict=True)
    ]
    books = await run.house.asked("/v1/books", now="true")
    return ChannelsReport(channels, _problems(books, len(run.asked)), took)


def _judged_channel(
    channel: str, asked: Sequence[Question], got: Sequence[Got], uncertain: Sequence[str], poison: Sequence[str]
) -> ChannelReport:
    answers = [one.question for one in got]
    times, plain = Counter(answers), Counter(one.question for one in got if not one.marked)
    told = {*uncertain, *poison}
    return ChannelReport(
        channel=channel,
        asked=len(asked),
        once=sum(times[one.text] == 1 for one in asked),
        lost=[one.text for one in asked if not times[one.text] and one.text not in told],
        repeated=[one.text for one in asked if plain[one.text] > 1],
        out_of_order=list(_overtakings(asked, answers)),
        marked=sum(one.marked for one in got),
        uncertain=sum(one.text in uncertain for one in asked),
        poison=sum(one.text in poison for one in asked),
    )


def _problems(books: JsonObject, asked: int) -> list[str]:
    found = [f"{books['accepted']} messages were accepted"] if books["accepted"] != asked else []
    return found + list(map(str, books["problems"])) + ([] if books["balanced"] else ["they do not balance"])


def _overtakings(asked: Iterable[Question], answers: Sequence[str]) -> Iterable[str]:
    """Questions whose first answer came before that of an earlier one of their conversation."""
    latest: dict[int, int] = {}
    for question in sorted(asked, key=lambda one: one.number):
        if question.text not in answers:
            continue
        place, before = answers.index(question.text), latest.get(question.conversation, -1)
        if place < before:
            yield question.text
        latest[question.conversation] = max(place, before)


async def _in_the_middle(run: Run) -> None:
    """Most write; everything is killed while all turns run; the others write while it is down."""
    plan, dice = run.plan, random.Random(run.plan.seed)
    await _write_once(run, range(plan.each - plan.down))
    for number in range(plan.kills):
        await until(lambda: len(run.house.begun) > number * len(run.asked))  # noqa: B023  called at once
        latest = time.monotonic() + _LATEST * plan.turn
        await until(lambda: len(run.house.begun) >= (number + 1) * len(run.asked))  # noqa: B023  called at once
        await asyncio.sleep(min(dice.uniform(0.2, 0.7) * plan.turn, max(0.0, latest - time.monotonic())))
        await run.house.kill(EVERYTHING)
        print(f"kill -9 of everything, number {number + 1}, in the middle of {len(run.asked)} turns", flush=True)
        if number == plan.kills - 1:
            await _write_once(run, range(plan.each - plan.down, plan.each))
        await run.start()
        print(f"started again in {time.monotonic() - run.started:.1f} s", flush=True)


async def _write_once(run: Run, conversations: Iterable[int]) -> None:
    for n in conversations:
        for people in run.people:
            await run.ask(people, n)


async def _at_random(run: Run) -> None:
    """People write all the time, and something is killed all the time; in the end everything runs."""
    dice, ends = random.Random(run.plan.seed), time.monotonic() + run.plan.at_random
    writing = asyncio.create_task(_write(run, random.Random(run.plan.seed + 1), ends))
    connectors = () if run.plan.inside else [one.account.channel for one in run.people]
    while time.monotonic() < ends:
        await asyncio.sleep(dice.uniform(0.5, 1.5) * run.plan.every)
        victim = dice.choice((EVERYTHING, *PARTS, *connectors))
        await run.house.kill(victim)
        print(f"kill -9 of {victim}, {len(run.asked)} questions so far", flush=True)
        if victim in (EVERYTHING, SERVER):
            await asyncio.sleep(dice.choice((0.0, 1.0)))
            await run.start()
    await writing
    run.started = time.monotonic()


async def _write(run: Run, dice: random.Random, ends: float) -> None:
    asked: Counter[tuple[str, int]] = Counter()
    while time.monotonic() < ends:
        for people in run.people:
            whose = people.account.channel, dice.randrange(run.plan.each)
            before, number = divmod(asked[whose], people.patience)
            asked[whose] += 1
            await run.ask(people, whose[1] + before * _SUCCESSOR, number)
        await asyncio.sleep(dice.uniform(0.2, 0.8))


async def _receives(run: Run) -> bool:
    found = (await run.house.asked("/v1/connectors"))["connectors"]
    return [one["state"] for one in found] == [_HEALTHY] * len(run.people)


async def until(holds: Callable[[], object]) -> None:
    """Look again and again until it is true. Raises TimeoutError."""
    async with asyncio.timeout(LIMIT_S):
        while not (await found if asyncio.iscoroutine(found := holds()) else found):
            await asyncio.sleep(_LOOK_S)


def main() -> int:
    """Read the command line, run, print the report."""
    plan = asked_for(ChannelsPlan, __doc__)
    directory = a_directory()
    report = asyncio.run(run(plan, directory))
    out().print(table(*_COLUMNS, rows=report.rows(), keep=_COLUMNS))
    print(f"last answer {report.took_s:.1f} s after the last start")
    for problem in report.problems:
        print(f"books: {problem}")
    for one in report.channels:
        wrong = {"lost": one.lost, "repeated": one.repeated, "out of order": one.out_of_order}
        for text in (f"{what}: {text}" for what, texts in wrong.items() for text in texts):
            print(text)
    if report.late(plan):
        print(f"FAILED: more than {plan.turn + AFTER_S:g} s", file=sys.stderr)
    return exit_code(directory, well=report.kept(plan))


if __name__ == "__main__":
    sys.exit(main())
