"""A worker is killed between what a router has decided and the hand-over, and right after it: one answer comes."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Final

import pytest

from tests.acceptance.handing_node import RULES, TREE
from tests.chaos.books import read_traces
from tests.forked import Forks
from tests.hands import assert_balanced
from tests.lab import lab, submission

pytestmark = pytest.mark.slow

NODE: Final = "tests.acceptance.handing_node"


@pytest.mark.parametrize(
    ("point", "asked", "decisions"),
    [("before_journal:1:plan:route", 2, 1), ("before_complete:1", 1, 1), ("after_complete:1", 1, 2)],
)
async def test_a_message_is_handed_on_once_and_answered_once(
    database_url: str, forks: Forks, tmp_path: Path, point: str, asked: int, decisions: int
) -> None:
    async with lab(database_url, TREE, RULES) as parts:
        accepted = await parts.accept.accept(submission("it hurts", channel="api"))

        async def live(crash_at: str) -> int:
            env = os.environ | {"SWITCHBOARD_CRASH_AT": crash_at}
            life = forks.start(NODE, database_url, str(tmp_path / "trace"), env=env, errors=tmp_path / "errors")
            try:
                return await life.wait(60)
            finally:
                life.kill()

        assert await live(point) == -signal.SIGKILL
        assert await parts.count("select count(*) from decision") == decisions
        assert await parts.replies_to(accepted.request_id) == []
        assert await live("") == 0, (tmp_path / "errors").read_text()[-3000:]
        assert await parts.replies_to(accepted.request_id) == ["it hurts"]
        assert await parts.count("select count(*) from decision") == 2
        assert await parts.count("select count(*) from delivery") == 2
        assert read_traces([tmp_path / "trace"]) == [["asked"]] * asked
        await assert_balanced(parts)
