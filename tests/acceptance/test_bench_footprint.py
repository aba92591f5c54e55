"""An idle house asks its database three times a second at most, and turns after which it is measured are answered."""

from __future__ import annotations

import sys

import pytest

from switchboard.bench.footprint import FootprintWorkload, measure

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports what processes take"),
]
MOST_A_SECOND = 3.0


async def test_a_house_in_which_nobody_writes_is_quiet() -> None:
    result = await measure(FootprintWorkload(idle_s=3.0, counted_s=20.0, turns=2))
    often = sorted(result.statements.items(), key=lambda one: -one[1])[:10]
    assert 0.5 < result.statements_a_second <= MOST_A_SECOND, often
    for kinds in (result.idle, result.used):
        assert {"server and worker", "connector", "PostgreSQL itself"} <= kinds.keys()
        assert "other" not in kinds
    assert sum(one.processes for one in result.idle.values()) <= 12
    assert 0 < result.baseline_mb < sum(one.memory_mb for one in result.idle.values())
