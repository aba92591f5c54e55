"""Whom facts are about: by what was said, by aliases, of two with one name both, and only of what is told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest

from switchboard.core.memory.confirming import is_confirmed_by
from switchboard.core.memory.entities import find_entities, gather_entities, recall_entities
from switchboard.core.text.fact_numbers import NUMBER, find_numbered, number_of
from switchboard.ports.facts import EntityAlias, Fact
from switchboard.store.ids import new_uuid7
from tests.strategies import NOW

ANN, BOB = "telegram/bot/ann", "telegram/bot/bob"
SAID: Final = (
    (ANN, "self", "I like figs"),
    (BOB, "self", "I like dates"),
    (ANN, "Noor", "Noor is allergic to hazelnuts"),
    (ANN, "noor ", "Noor likes tea"),
    (ANN, "Tom Meier", "Tom Meier is a plumber"),
    (ANN, "Tom Huber", "Tom Huber is a baker"),
    (ANN, "Schatzi", "Schatzi wants a bike"),
    (ANN, "Tom", "Tom is ill"),
)
ALIASES: Final = [("Noor", "Schatzi"), ("Tom Meier", "Tom"), ("Tom Huber", "Tom"), ("The Hidden", "Nobody")]
RECALLED: Final[Sequence[tuple[str, Sequence[tuple[str, str]], list[tuple[str, int]]]]] = (
    ("NOOR.", (), [("Noor", 2)]),
    ("Noor", ALIASES, [("Noor", 3)]),
    ("Schatzi", ALIASES, [("Noor", 3)]),
    ("Schatzi", (), [("Schatzi", 1)]),
    ("Tom", ALIASES, [("Tom Meier", 2), ("Tom Huber", 2)]),
    ("Tom", (), [("Tom", 1)]),
    ("Meier", (), [("Tom Meier", 1)]),
    ("me", (), [("the person who writes", 1)]),
    ("Bob", (), [("Bob (person bob)", 1)]),
    ("The Hidden", ALIASES, []),
    ("Nobody", ALIASES, []),
    ("walnut", ALIASES, []),
    ("", (), []),
)
"""What is asked, the aliases, and the entities that are recalled, with how many facts."""


def facts_said() -> list[Fact]:
    return [
        Fact(new_uuid7(), author, subject, f"private:{author}", text, NOW, author == ANN)
        for author, subject, text in SAID
    ]


@pytest.mark.parametrize(("query", "aliases", "expected"), RECALLED)
def test_what_is_recalled(query: str, aliases: Sequence[tuple[str, str]], expected: list[tuple[str, int]]) -> None:
    given = [EntityAlias(name, alias, NOW) for name, alias in aliases]
    entities = gather_entities(facts_said(), given, {BOB: "Bob (person bob)"})
    assert [(one.name, len(one.facts)) for one in recall_entities(query, entities)] == expected


def test_what_fits_a_name_comes_in_order_and_with_the_reason() -> None:
    entities = gather_entities(facts_said(), [EntityAlias("Noor", "Tomate", NOW)], {})
    found = [(one.entity.name, one.why) for one in find_entities("tom", entities)]
    assert found == [
        ("Tom", "the same name"),
        ("Tom Meier", "a part of the name"),
        ("Tom Huber", "a part of the name"),
        ("Noor", "the name begins like it"),
    ]


def test_numbers_are_of_one_fact_and_no_place_in_a_list() -> None:
    facts = facts_said()
    numbers = [number_of(one.fact_id) for one in facts]
    assert all(NUMBER.fullmatch(one) for one in numbers)
    assert [find_numbered(facts, one) for one in numbers] == facts
    assert find_numbered([*facts, *facts], numbers[0]) is None


@pytest.mark.parametrize(
    ("quote", "fact", "expected"),
    [
        ("Yes, that is right", "I like figs", True),
        ("Ja, stimmt", "I like figs", True),
        ("I still live in Berlin", "I live in Berlin", True),
        ("I do not live in Berlin any more", "I live in Berlin", False),
        ("I am not allergic to nuts", "I am not allergic to nuts", True),
        ("I am allergic to nuts", "I am not allergic to nuts", False),
        ("I like tea", "I moved to Bern", False),
        ("Thanks", "I like figs", False),
    ],
)
def test_only_words_that_agree_confirm(quote: str, fact: str, *, expected: bool) -> None:
    assert is_confirmed_by(fact, quote) is expected
