"""The benchmark of turns with a model is run, with few messages; its times are nobody's promise."""

from __future__ import annotations

import pytest

from switchboard.bench.model_turn import measure

pytestmark = pytest.mark.slow


async def test_each_kind_of_message_is_measured() -> None:
    result = await measure(2)
    kinds = (result.plain_ms, result.with_a_tool_ms, result.bare_ms, result.delta_ms, result.bare_delta_ms)
    assert [len(times) for times in kinds] == [2] * 5
    assert min(time for times in kinds for time in times) > 0
