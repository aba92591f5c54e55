"""The benchmark of plans is run, with small ones; its times are nobody's promise."""

from __future__ import annotations

import pytest

from switchboard.bench.plan import LIMITS, SIZES, free, measure, uneven
from switchboard.core.planning.graph import graph_faults


@pytest.mark.slow
async def test_plans_are_measured_with_both_journals() -> None:
    result = await measure(rounds=1, plans=3, sizes=(5, 9))
    assert (list(result.ratio), result.plans) == ([5, 9], 3)
    for one in (*result.ratio.values(), result.crowd):
        assert min(one.journaled, one.in_memory) > 1, "nothing is faster than its longest chain"
    assert min(result.free_us.journaled, result.free_us.in_memory) > 0


@pytest.mark.parametrize("size", SIZES)
def test_measured_plans_are_as_large_as_is_said_and_never_too_wide(size: int) -> None:
    given = uneven(size, size)
    assert [len(one.pipeline.steps) for one in (given, free(size))] == [size, size]
    assert not list(graph_faults(given.pipeline.steps, LIMITS.steps))
    ends: dict[str, float] = {}
    spans = []
    for step in given.pipeline.steps:
        began = max((ends[need] for need in step.needs), default=0.0)
        ends[step.id] = began + float(step.args["seconds"])
        spans.append((began, ends[step.id]))
    assert max(ends.values()) == given.chain_s
    assert max(sum(since <= at < until for since, until in spans) for at, _ in spans) <= LIMITS.at_once
