"""Which facts hold when they are read: stories in any order of arrival, beside an oracle of a few lines."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import combinations
from typing import Final, NoReturn

import pytest
from msgspec import Struct

from switchboard.core.channels.registry import CHANNELS
from switchboard.core.people.handle import Handle, handle_at
from switchboard.core.people.readers import person_named
from switchboard.domain.message import Conversation
from switchboard.domain.routing import SystemId
from switchboard.ports.facts import Fact, Reader
from switchboard.store.database import Database, query, rows_as
from switchboard.store.memory import facts
from switchboard.store.memory.facts import NewFact
from switchboard.store.memory.readers import handle_columns, reader_columns
from switchboard.store.memory.standing import hold_at, settle
from switchboard.store.people import people
from tests.width import wide

NOTES: Final = SystemId("System1/notes")
START: Final = datetime(2026, 1, 1, tzinfo=UTC)
GROUP: Final = Conversation("telegram/bot/group")
ANN, MAIL, BEN = ("telegram", "bot", "ann"), ("email", "imap:bot", "ann@example.org"), ("telegram", "bot", "ben")


class Said(Struct, frozen=True):
    """That somebody said so on a day."""

    who: tuple[str, str, str]
    value: str
    day: int
    private: bool = True
    subject: str = "self"
    predicate: str = "lives_at"
    until: int | None = None


def handle(who: tuple[str, str, str]) -> Handle:
    return handle_at(CHANNELS[who[0]], *who[1:])


def reader(who: tuple[str, str, str], *, private: bool = True) -> Reader:
    person = person_named(*who)
    return Reader(NOTES, Conversation(f"{person}/own") if private else GROUP, person, private)


class Undone(Exception):
    """All was seen."""


def undo() -> NoReturn:
    raise Undone


@asynccontextmanager
async def undoing(database: Database) -> AsyncIterator[Database]:
    """A transaction of which nothing stays."""
    with suppress(Undone):
        async with database.transaction() as one:
            yield one
            undo()


async def tell(database: Database, story: Iterable[Said]) -> None:
    for one in story:
        by, at = reader(one.who, private=one.private), START + timedelta(days=one.day)
        text = f"{one.subject} {one.predicate} {one.value}"
        until = None if one.until is None else START + timedelta(days=one.until)
        more = {"predicate": one.predicate, "value": one.value, "said_at": at, "valid_to": until}
        fact = NewFact(by.person, one.subject, by.private, text, (one.day + 1,), **more)  # type: ignore[arg-type]
        await facts.learn(database, by, fact)


async def recall(database: Database, by: Reader, day: int = 0) -> list[Fact]:
    """What holds by now."""
    given = (*reader_columns(by), 1000, *handle_columns(by))
    found = rows_as(Fact, await database.rows(query("facts.visible"), *given))
    settled = await settle(database, by, [one.fact_id for one in found])
    return hold_at(found, settled, START + timedelta(days=day))


def shown(found: Sequence[Fact]) -> set[tuple[str, int, frozenset[str]]]:
    """What is held to be true, on which day it was last said, and what else cannot be true then."""
    text_of = {one.fact_id: folded(one.text) for one in found}
    return {
        (
            folded(one.text),
            (one.said_at - START).days if one.said_at else -1,
            frozenset(map(text_of.__getitem__, one.contradicts)),
        )
        for one in found
    }


def folded(text: str) -> str:
    return text.lower().rstrip(".")


# The oracle ----------------------------------------------------------------------------------------------------------


def expect(story: Sequence[Said], by: Reader, linked: bool) -> list[tuple[str, int, frozenset[str]]]:
    """The latest value of each person, where there is one at a time; else all. Nobody corrects anybody else."""

    def person(who: tuple[str, str, str]) -> object:
        return ANN if linked and who == MAIL else who

    mine = next(person(who) for who in (ANN, MAIL, BEN) if person_named(*who) == by.person)
    heard = [one for one in story if one.private == by.private and (not by.private or person(one.who) == mine)]
    last = dict[tuple[object, ...], int]()
    for one in heard:
        about = (person(one.who), one.subject, one.predicate)
        last[about] = max(one.day, last.get(about, -1))
    kept = dict[tuple[object, ...], int]()
    for one in heard:
        about = (person(one.who), one.subject, one.predicate)
        if one.predicate != "lives_at" or one.day == last[about]:
            key = (*about, folded(one.value))
            kept[key] = max(one.day, kept.get(key, -1))
    rivals = {key: set[str]() for key in kept}
    for one_key, other_key in combinations(kept, 2):
        same_subject = one_key[1] == other_key[1] and (one_key[1] != "self" or one_key[0] == other_key[0])
        if same_subject and one_key[2] == other_key[2] == "lives_at" and one_key[3] != other_key[3]:
            rivals[one_key].add(folded(" ".join(map(str, other_key[1:]))))
            rivals[other_key].add(folded(" ".join(map(str, one_key[1:]))))
    return [(folded(" ".join(map(str, key[1:]))), day, frozenset(rivals[key])) for key, day in kept.items()]


def story_of(dice: random.Random) -> list[Said]:
    return [
        Said(
            dice.choice((ANN, ANN, MAIL, BEN)),
            dice.choice(("Berlin", "berlin.", "Rome", "Oslo")),
            dice.randrange(6),
            dice.random() < 0.7,
            dice.choice(("self", "Noor")),
            dice.choice(("lives_at", "lives_at", "likes")),
        )
        for _ in range(dice.randrange(3, 12))
    ]


async def link(database: Database) -> None:
    await people.create(database, "ann", "Ann")
    for who in (ANN, MAIL):
        assert await people.link(database, "ann", handle(who), "operator")


@pytest.mark.parametrize("seed", range(wide(60, 3)))
async def test_any_order_of_arrival_gives_the_same_facts(database: Database, seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(3):
        story = story_of(dice)
        for replayed in (story, [*story, *story]):
            arriving = dice.sample(replayed, len(replayed))
            async with undoing(database) as one:
                await link(one)
                await tell(one, arriving)
                for linked in (True, False):
                    for who, private in ((ANN, True), (MAIL, True), (BEN, True), (BEN, False)):
                        by = reader(who, private=private)
                        found = await recall(one, by)
                        expected = expect(story, by, linked)
                        assert shown(found) == set(expected), (arriving, by, linked)
                        assert len(found) == len(expected), (arriving, by, linked)
                    await people.unlink(one, "ann", handle(MAIL))


AWAY, AGAIN = (
    Said(ANN, "Rome", 1, predicate="whereabouts", until=5),
    Said(ANN, "Rome", 9, predicate="whereabouts", until=15),
)
STORIES: Final[dict[str, tuple[list[Said], int, list[str]]]] = {
    "she moves and moves back": ([Said(ANN, "Berlin", 1), Said(ANN, "Rome", 2), Said(ANN, "Berlin", 3)], 9, ["berlin"]),
    "an old message is imported": ([Said(ANN, "Rome", 9), Said(ANN, "Berlin", 1)], 9, ["rome"]),
    "it is in another conversation": ([Said(ANN, "Rome", 9), Said(ANN, "Berlin", 1, private=False)], 9, ["rome"]),
    "it lasts": ([AWAY], 4, ["rome"]),
    "it is over": ([AWAY], 5, []),
    "it is so again": ([AWAY, AGAIN], 12, ["rome"]),
    "it was so before": ([AGAIN, AWAY], 12, ["rome"]),
}


@pytest.mark.parametrize("name", STORIES)
async def test_what_was_said_last_holds(database: Database, name: str) -> None:
    story, day, values = STORIES[name]
    await tell(database, story)
    assert [one.text.rpartition(" ")[2].lower() for one in await recall(database, reader(ANN), day)] == values
