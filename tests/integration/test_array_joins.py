"""What is done for many messages at once looks up each of them, instead of comparing each with each.

`auto_explain` shows it, which sees into functions. Debian's PostgreSQL has it, the embedded one does not.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from switchboard.embedded.supervisor import embedded_postgres
from tests.hands import a_hand, pass_through
from tests.lab import lab

MESSAGES: Final = 60
EXPLAINED: Final = {
    "fsync": "off",
    "session_preload_libraries": "auto_explain",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_timing": "off",
    "auto_explain.log_nested_statements": "on",
}
DEBIAN: Final = [
    version / "bin"
    for version in Path("/usr/lib/postgresql").glob("*")
    if (version / "lib" / "auto_explain.so").exists() and (version / "bin" / "initdb").exists()
]


@pytest.mark.slow
@pytest.mark.parametrize("binaries", DEBIAN or [None], ids=str)
async def test_no_message_of_a_batch_is_compared_with_each_other(place: Path, binaries: Path | None) -> None:
    if binaries is None:
        pytest.skip("no PostgreSQL with auto_explain below /usr/lib/postgresql")
    async with embedded_postgres(place / "data", settings=EXPLAINED, binaries=binaries) as server:
        async with lab(server.url) as parts, a_hand(parts.database) as hand:
            await pass_through(parts, hand, 0, MESSAGES)
            await pass_through(parts, hand, MESSAGES, MESSAGES)
        plans = re.split(r"duration: [\d.]+ ms  plan:", (place / "data" / "server.log").read_text())
    hot = [plan for plan in plans if f"rows={MESSAGES} loops=1" in plan]
    assert len(hot) > 10
    removed = {plan: int(n) for plan in hot for n in re.findall(r"Rows Removed by Join Filter: (\d+)", plan)}
    assert [plan for plan, n in removed.items() if n > MESSAGES] == []
