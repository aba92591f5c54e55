"""Ugly objects are read, or named with the reason; nothing raises, and nothing takes long."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from switchboard.modules.calendar.events import read_object
from switchboard.modules.calendar.expansion import ExpansionWindow, Occurrence, expand_object
from switchboard.modules.calendar.occurrences import problem_of, rows_of_object
from switchboard.modules.calendar.zones import UTC_ZONE
from tests.calendar_corpus import CORPUS, UglyObject

WINDOW = ExpansionWindow(datetime(2027, 1, 1, tzinfo=UTC), datetime(2027, 7, 1, tzinfo=UTC))


def shown(one: Occurrence) -> str:
    if one.starts_at is not None:
        return f"{one.starts_at:%Y-%m-%d %H:%MZ}"
    return f"{one.start.wall:%Y-%m-%d}" if one.start.all_day else f"{one.start.wall:%Y-%m-%d %H:%M}"


@pytest.mark.parametrize("ugly", CORPUS, ids=lambda one: one.name)
def test_an_ugly_object_is_read_or_named(ugly: UglyObject) -> None:
    expansion = expand_object(read_object(ugly.data), WINDOW)
    assert ugly.problem in problem_of(expansion) or ugly.problem in str(expansion.problems)
    assert bool(ugly.problem) == bool(expansion.problems), expansion.problems
    assert tuple(sorted(map(shown, expansion.occurrences))) == ugly.starts
    assert rows_of_object(ugly.data, UTC_ZONE, WINDOW, ()).problem == problem_of(expansion)


def test_there_are_many() -> None:
    assert len({one.name for one in CORPUS}) == len(CORPUS) >= 80
