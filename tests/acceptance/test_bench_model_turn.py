"""The benchmark of turns with a model is run, with few messages; its times are nobody's promise."""

from __future__ import annotations

import pytest

from switchboard.bench.model_turn import measure

pytestmark = pytest.mark.slow


async def test_each_kind_of_message_is_measured() -> None:
    result = await measure(2)
    assert [len(result.plain_ms), len(result.with_a_tool_ms), len(result.bare_ms)] == [2, 2, 2]
    assert min(*result.plain_ms, *result.with_a_tool_ms, *result.bare_ms) > 0
