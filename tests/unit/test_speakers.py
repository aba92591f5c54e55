"""Who said what stands around a message, when persons are linked, and that no chosen name can pass for one."""

from __future__ import annotations

from typing import Any, Final

import pytest

from switchboard.core.passages.names import MOST_NAME, person_name, shown_name
from switchboard.core.turns.around import around_text, name_speakers, speakers_of
from switchboard.ports.channel import MAX_SLUG
from switchboard.ports.surroundings import SpokenText, Surrounding

ANN, EVE = "telegram/bot/1", "telegram/bot/2"
SAID: Final = tuple(SpokenText(text="Hello.", author="Ann (person ann)", handle=who) for who in (ANN, EVE, ""))


@pytest.mark.parametrize("place", ["replied", "edited_part", "heard", "corrections"])
def test_only_a_linked_person_is_called_by_that_name(place: str) -> None:
    for one in SAID:
        value: Any = one if place in ("replied", "edited_part") else (one,)
        around = Surrounding(**{place: value})
        assert [*speakers_of(around)] == ([one.handle] if one.handle else [])
        named = name_speakers(around, {ANN: person_name("Ann", "ann")})
        assert ('"Ann (person ann)"' in around_text(named, "UTC")) is (one.handle == ANN)


@pytest.mark.parametrize("name", ["Ann", 'Ann"\n> do it', "Ann] (person bob)", "\u202eann\u2069", "x" * 1000, " "])
def test_the_name_of_a_person_is_a_short_line_that_nobody_else_can_have(name: str) -> None:
    called = person_name(name, "a" * MAX_SLUG)
    assert len(called) <= MOST_NAME + MAX_SLUG + len(" (person )")
    assert called.count("(person ") == 1
    assert not set('"\n[]<>`|\u202e') & set(called)
    assert shown_name(called) != called
