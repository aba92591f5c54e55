"""The benchmark of channels is run, with few messages; its times are nobody's promise."""

from __future__ import annotations

import pytest

from switchboard.bench.channels import ChannelsWorkload, measure
from switchboard.bench.platforms import TRIED

pytestmark = pytest.mark.slow


async def test_all_channels_are_measured_and_a_burst_is_answered_in_order() -> None:
    result = await measure(ChannelsWorkload(messages=2, burst=12, mails=1, starts=False))
    assert [len(times) for times in (result.bare_ms, result.mail_ms, *result.chat_ms.values())] == [
        2,
        1,
        *len(TRIED) * [2],
    ]
    assert (result.burst.answered, result.burst.out_of_order) == (12, 0)
    assert set(result.memory_mb) == {"email", *result.chat_ms} == {"email", *(one.channel for one in TRIED)}
    assert all(before and after for before, after in result.memory_mb.values())
