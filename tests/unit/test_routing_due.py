"""Who gets a task that is due: its butler or Switchboard itself, and nobody else, whatever the rules say."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from switchboard.core.routing.due import decide_task
from switchboard.core.routing.index import RoutingIndex
from switchboard.domain.envelope import DueTask
from switchboard.domain.routing import SWITCHBOARD, SystemId
from tests.routing import butler, member, rule, team_of

DUE = datetime(2026, 11, 29, 18, 0, tzinfo=UTC)
TASK = DueTask(task_id="t1", revision=2, due=DUE, made_at=DUE)
TEAM = team_of(butler("echo"), butler("other"), member("System1/asleep", active=False), "System4/root")


@pytest.mark.parametrize(
    ("pinned", "chosen", "reason"),
    [
        (SystemId("System1/echo"), ["System1/echo"], "pin"),
        (SWITCHBOARD, [SWITCHBOARD], "command"),
        (SystemId("System1/asleep"), [], "pin_unreachable"),
        (SystemId("System1/ghost"), [], "pin_unreachable"),
        (SystemId("System4/root"), [], "pin_unreachable"),
        (None, [], "pin_unreachable"),
    ],
)
def test_the_rules_decide_nothing_about_what_is_due(pinned: SystemId | None, chosen: list[str], reason: str) -> None:
    index = RoutingIndex(1, (TEAM,), (rule("System1/other"),))

    found = decide_task(index, {"channel": "telegram"}, pinned, TASK)

    assert [one.system_id for one in found.chosen] == chosen
    assert [one.category for one in found.unrouted] == ([] if chosen else ["target_unavailable"])
    assert [step.reason for step in found.trail] == [reason]
    assert found.trail[0].detail.startswith("task t1, revision 2, due 2026-11-29 18:00:00 UTC: ")
