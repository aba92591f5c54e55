"""The chaos run of channels: `switchboard up` with Telegram and mail is killed, and every person has one answer.

    python -m tests.chaos.channels_run [--chats 10] [--threads 10] [--down 5] [--turn 8] [--kills 2] [--seed N]
    python -m tests.chaos.channels_run --at-random 300 [--every 5] [--seed N]
    python -m tests.chaos.channels_run --inside     with the accounts in the server's process

People write in so many chats and threads. While all turns run, everything of ours is killed with -9 (server, workers,
connectors, database, programs of butlers), and started again; so many times. While all is down after the last kill,
more people write. Every question must be answered once, within the time of a turn and 10 s from the last start.

With `--at-random`, people write for so many seconds, and everything or one part is killed again and again, the embedded
database alone, too; accounts in the server's process are killed with it. Prints what it does and a verdict; exit code 0
only if nothing was lost, doubled or out of order. Counted apart: repeats that say so, replies of which the operator is
told that they may have been sent, and questions that are dead letters because every worker that took them was killed.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from switchboard.domain.json_values import JsonObject
from switchboard.testing.bot_api import BotApi
from tests.chaos.asked import a_directory, asked_for, exit_code
from tests.chaos.correspondents import SAID, Got, Mail, Question, Telegram, mail_servers
from tests.chaos.house import ONE_PART, House, Victim

AFTER_S: Final = 10.0
"""How much longer than one turn the answers may take after the last start."""
LIMIT_S: Final = 180.0
"""What is not answered when no further answer has come for so long is lost."""
_LOOK_S: Final = 0.1
_A_PERSONS_MAILS: Final = 3
"""Somebody who gets more within minutes may be a program, and has to wait."""


@dataclass(frozen=True, slots=True)
class ChannelsPlan:
    """How many write, how long a turn takes (s), how often everything is killed; `at_random`: for so many seconds."""

    chats: int = 10
    threads: int = 10
    down: int = 5
    turn: float = 8.0
    kills: int = 2
    seed: int = 1
    at_random: float = 0.0
    every: float = 5.0
    inside: bool = False


@dataclass(frozen=True, slots=True)
class ChannelsReport:
    """What became of the questions; all but the first, and what was said of itself, must be 0."""

    asked: int
    answered: int
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
    problems: Sequence[str]
    """What the books find wrong with themselves."""
    took_s: float
    """From the last start to the last answer."""

    @property
    def clean(self) -> bool:
        """Whether nothing that was promised was broken, but for the time."""
        return not (self.lost or self.repeated or self.out_of_order or self.problems)

    def __str__(self) -> str:
        return (
            f"asked {self.asked}, answered {self.answered}, lost {len(self.lost)}, "
            f"repeated without a mark {len(self.repeated)}, out of order {len(self.out_of_order)}, "
            f"marked repeats {self.marked}, uncertain and told {self.uncertain}, dead letters {self.poison}, "
            f"problems of the books {len(self.problems)}, "
            f"last answer {self.took_s:.1f} s after the last start"
        )


@dataclass(slots=True)
class Run:
    """The people, the installation, and what has been asked."""

    plan: ChannelsPlan
    telegram: Telegram
    mail: Mail
    house: House
    asked: list[Question] = field(default_factory=list)
    started: float = 0.0

    async def ask(self, question: Question) -> None:
        """Somebody writes."""
        self.asked.append(question)
        if question.channel == "telegram":
            self.telegram.ask(question)
        else:
            await asyncio.to_thread(self.mail.ask, question)

    async def start(self) -> None:
        """Start everything; the time counts from before it."""
        self.started = time.monotonic()
        await self.house.start()

    async def got(self) -> list[Got]:
        """All answers, the oldest first within a channel."""
        return [*self.telegram.got(), *await asyncio.to_thread(self.mail.got)]

    async def until_answered(self) -> float:
        """Seconds from the last start until everybody has an answer, or is known not to get one."""
        known, since = 0, self.started
        while time.monotonic() - since < LIMIT_S:
            answers = {said(one) for one in await self.got()}
            if len(answers) > known:
                known, since = len(answers), time.monotonic()
            missing = [one for one in self.asked if one.text not in answers]
            if not missing or not {one.text for one in missing} - {*await self.uncertain(), *await self.poison()}:
                break
            await asyncio.sleep(_LOOK_S)
        return time.monotonic() - self.started

    async def uncertain(self) -> list[str]:
        """What replies say of which the operator is told that they may have been sent."""
        found = await self.house.asked("/v1/outbox", state="uncertain", limit="500")
        return [str(one["text"]).removeprefix(SAID) for one in found["replies"]]

    async def poison(self) -> list[str]:
        """The questions whose workers were killed as often as is taken for the message's own fault."""
        found = await self.house.asked("/v1/dead-letters", category="poison", limit="500")
        texts = [str(one["text"]) for one in found["dead_letters"]]
        return [one.text for one in self.asked if any(one.text in text for text in texts)]


@asynccontextmanager
async def opened(plan: ChannelsPlan, directory: Path) -> AsyncIterator[Run]:
    """The platforms, and the installation, which both accounts receive for."""
    async with BotApi(limits=True) as api:
        with mail_servers() as mail:
            more = {**mail.environment, "SWITCHBOARD_CONNECTORS": "inside" if plan.inside else "apart"}
            house = House.built(directory, plan.turn, api.url, mail.settings, more)
            run = Run(plan, Telegram(api), mail, house)
            print(f"Telegram's Bot API, and {mail.servers}", flush=True)
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
    got = await run.got()
    plain = [said(one) for one in got if not one.marked]
    everything = [said(one) for one in got]
    uncertain, poison = await run.uncertain(), await run.poison()
    told = {*uncertain, *(poison if run.plan.at_random else ())}
    books = await run.house.asked("/v1/books", now="true")
    return ChannelsReport(
        asked=len(run.asked),
        answered=sum(one.text in everything for one in run.asked),
        lost=[one.text for one in run.asked if one.text not in everything and one.text not in told],
        repeated=[one.text for one in run.asked if plain.count(one.text) > 1],
        out_of_order=list(_overtakings(run.asked, everything)),
        marked=sum(one.marked for one in got),
        uncertain=len(uncertain),
        poison=len(poison),
        problems=_problems(books, len(run.asked)),
        took_s=took,
    )


def _problems(books: JsonObject, asked: int) -> list[str]:
    found = [f"{books['accepted']} messages were accepted"] if books["accepted"] != asked else []
    return found + list(map(str, books["problems"])) + ([] if books["balanced"] else ["they do not balance"])


def said(got: Got) -> str:
    """The question that is answered."""
    text = got.text[got.text.find(SAID) + len(SAID) :]
    return text[: text.find(".") + 1]


def _overtakings(asked: Iterable[Question], answers: Sequence[str]) -> Iterable[str]:
    """Questions whose first answer came before that of an earlier one of their conversation."""
    latest: dict[tuple[str, int], int] = {}
    for question in sorted(asked, key=lambda one: one.number):
        if question.text not in answers:
            continue
        place, key = answers.index(question.text), (question.channel, question.conversation)
        if place < latest.get(key, -1):
            yield question.text
        latest[key] = max(place, latest.get(key, -1))


async def _in_the_middle(run: Run) -> None:
    """Everybody writes; everything is killed while all turns run; some more write while it is down."""
    plan, dice = run.plan, random.Random(run.plan.seed)
    for question in _first_of(plan, 0):
        await run.ask(question)
    for number in range(plan.kills):
        await until(lambda: len(run.house.begun) >= (number + 1) * len(run.asked))  # noqa: B023  called at once
        await asyncio.sleep(dice.uniform(0.2, 0.7) * plan.turn)
        await run.house.kill("everything")
        print(f"kill -9 of everything, number {number + 1}, in the middle of {len(run.asked)} turns", flush=True)
        if number == plan.kills - 1:
            for question in list(_first_of(plan, 1))[: plan.down]:
                await run.ask(question)
        await run.start()
        print(f"started again in {time.monotonic() - run.started:.1f} s", flush=True)


def _first_of(plan: ChannelsPlan, round_: int) -> Iterable[Question]:
    """One question of each conversation, of both channels in turn; those of round 1 are of other people."""
    most = max(plan.chats, plan.threads)
    for n in range(most):
        counts = (("telegram", plan.chats), ("email", plan.threads))
        yield from (Question(channel, n + round_ * most, 0) for channel, count in counts if n < count)


async def _at_random(run: Run) -> None:
    """People write all the time, and something is killed all the time; in the end everything runs."""
    dice, ends = random.Random(run.plan.seed), time.monotonic() + run.plan.at_random
    writing = asyncio.create_task(_write(run, random.Random(run.plan.seed + 1), ends))
    while time.monotonic() < ends:
        await asyncio.sleep(dice.uniform(0.5, 1.5) * run.plan.every)
        victim: Victim = dice.choice(("everything", *(ONE_PART[:-2] if run.plan.inside else ONE_PART)))
        await run.house.kill(victim)
        print(f"kill -9 of {victim}, {len(run.asked)} questions so far", flush=True)
        if victim in ("everything", "server"):
            await asyncio.sleep(dice.choice((0.0, 1.0)))
            await run.start()
    await writing
    run.started = time.monotonic()


async def _write(run: Run, dice: random.Random, ends: float) -> None:
    numbers: dict[tuple[str, int], int] = {}
    people = 0
    while time.monotonic() < ends:
        chat = ("telegram", dice.randrange(run.plan.chats))
        thread = ("email", people % run.plan.threads + people // (run.plan.threads * _A_PERSONS_MAILS) * 100)
        people += 1
        for channel, conversation in (chat, thread):
            number = numbers.get((channel, conversation), 0)
            numbers[channel, conversation] = number + 1
            await run.ask(Question(channel, conversation, number))
        await asyncio.sleep(dice.uniform(0.2, 0.8))


async def _receives(run: Run) -> bool:
    found = (await run.house.asked("/v1/connectors"))["connectors"]
    return [one["state"] for one in found] == ["healthy", "healthy"]


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
    within = plan.turn + AFTER_S
    print(report)
    late = not plan.at_random and report.took_s > within
    wrong = {"lost": report.lost, "repeated": report.repeated, "out of order": report.out_of_order}
    for what, texts in {**wrong, "books": report.problems}.items():
        for text in texts:
            print(f"{what}: {text}")
    if late:
        print(f"FAILED: more than {within:g} s", file=sys.stderr)
    return exit_code(directory, well=report.clean and not late)


if __name__ == "__main__":
    sys.exit(main())
