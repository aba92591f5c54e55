"""A turn is stopped while its worker is dead: the next worker ends it with what is on record, and begins nothing."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from switchboard.core.turns.stop import STOPPED
from switchboard.lanes.faults import Point
from tests.acceptance.lives import Lives
from tests.acceptance.model_node import team
from tests.forked import Forks
from tests.hands import assert_balanced
from tests.lab import lab, rule, submission

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("point", "path", "paid"),
    [
        ("before_journal", "start", False),
        ("before_step", "request:1", False),
        ("before_journal", "request:2", False),
        ("before_journal", "tool:1", False),
        ("before_step", "tool:2", True),  # begun: nobody knows that it was not done
        ("before_journal", "tool:2", True),
        ("between_steps", "tool:2", True),
        ("before_complete", "", True),
    ],
)
async def test_nothing_more_is_begun(
    database_url: str, tmp_path: Path, forks: Forks, point: Point, path: str, *, paid: bool
) -> None:
    """`paid`: whether history says that the call with effects was made."""
    async with lab(database_url, [team(tmp_path, "old")], [rule("System1/clerk")]) as parts:
        said = await parts.accept.accept(submission("for c0", channel="api", sender="c0", event="said"))
        lives = Lives(forks, parts, database_url, tmp_path)
        async with lives.llm:
            assert await lives.live("old", crash_at=f"{point}:1:{path}") == -signal.SIGKILL
            asked, done = len(lives.llm.requests), calls_in(tmp_path)
            stop = await parts.accept.accept(submission("/stop", channel="api", sender="c0", event="stop"))
            assert await lives.live("new") == 0
            assert (len(lives.llm.requests), calls_in(tmp_path)) == (asked, done)
        had_ended = point == "before_complete"
        assert await parts.replies_to(said.request_id) == ["done for c0" if had_ended else STOPPED]
        assert await parts.replies_to(stop.request_id) == ["Stopped."]
        reason = "select stop_reason from attempt where request_id = $1 and outcome = 'answered'"
        assert await parts.database.value(reason, said.request_id) == (None if had_ended else "aborted")
        kept = "select calls::text from entry where request_id = $1 and calls is not null"
        assert ('"pay"' in (await parts.database.value(kept, said.request_id) or "")) == paid
        await assert_balanced(parts)


def calls_in(place: Path) -> list[str]:
    """What the tools have done."""
    trace = place / "trace"
    return trace.read_text().splitlines() if trace.exists() else []
