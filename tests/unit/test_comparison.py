"""The page of the comparison is what is committed, and what is worse than that is found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest
from msgspec.structs import replace

from tests.chaos.comparison import (
    BEGIN,
    BUSIER,
    END,
    PAGE,
    ROWS,
    Measured,
    read_comparison,
    worse,
    written,
)

BEFORE: Final = Measured(
    "1", "2026-01-01", "2 cores", (0.0, 1.0), {"lost": (0.0, 0.0), "once": (10.0, 10.0), "last_s": (9.0, 10.0)}
)
WELL: Final[Mapping[str, tuple[float, ...]]] = dict.fromkeys(ROWS, (0.0,)) | {"once": (10.0,)}


def test_the_page_is_what_is_committed() -> None:
    comparison = read_comparison()
    page = PAGE.read_text(encoding="utf-8")
    assert page.partition(BEGIN)[2].partition(END)[0] == written(comparison)
    assert comparison.ours.rows.keys() == ROWS.keys()
    assert comparison.others.rows.keys() <= ROWS.keys()


@pytest.mark.parametrize(
    ("rows", "load", "found"),
    [
        ({}, 0.0, []),
        ({"lost": (0.0, 1.0)}, 0.0, ["lost"]),
        ({"once": (10.0, 9.0)}, 0.0, ["once"]),
        ({"last_s": (20.0, 99.0)}, 0.0, []),
        ({"last_s": (21.0, 99.0)}, 0.0, ["last_s"]),
        ({"last_s": (99.0,), "lost": (1.0,)}, BUSIER + 1.1, ["lost"]),
        ({"idle_mb": (999.0,)}, 0.0, []),
    ],
)
def test_a_row_is_worse_by_more_than_its_noise(
    rows: Mapping[str, tuple[float, ...]], load: float, found: list[str]
) -> None:
    now = replace(BEFORE, load=(0.0, load), rows={**WELL, **rows})
    assert [problem.partition(":")[0] for problem in worse(now, BEFORE)] == [ROWS[name].what for name in found]
