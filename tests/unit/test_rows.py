"""Rows of queries become values by the names of their columns, all of them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from switchboard.store.database import row_as, rows_as


@dataclass(frozen=True, slots=True)
class Reading:
    """What a query might tell."""

    name: str
    value: int = 0


def test_columns_are_matched_by_name() -> None:
    rows = [{"value": 1, "name": "a"}, {"name": "b", "value": 2}]
    assert rows_as(Reading, rows) == [Reading("a", 1), Reading("b", 2)]


def test_no_row_is_no_value() -> None:
    assert row_as(Reading, None) is None


@pytest.mark.parametrize(
    ("columns", "named"),
    [({"name": "a"}, "value"), ({"name": "a", "value": 1, "unit": "s"}, "unit"), ({"Name": "a", "value": 1}, "Name")],
    ids=["a default hides no missing column", "a column too many", "another name"],
)
def test_a_query_that_differs_from_its_type_is_refused(columns: dict[str, object], named: str) -> None:
    with pytest.raises(TypeError, match=f"Reading and its query differ in {named}"):
        row_as(Reading, columns)
