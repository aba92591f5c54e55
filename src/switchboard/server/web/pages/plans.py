"""Plans: what butlers plan for messages, and how far they have come. Next: `app/messages/planned.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.responses import Response

from switchboard.app.messages.explain import EXPLAIN
from switchboard.domain.shown import ShownPlan, ShownPlanStep
from switchboard.server.http.plans import PLAN_SERVICE
from switchboard.server.web.page import WebPage
from switchboard.server.web.visit import Visit

_ROWS: Final = 50


async def show_plans(visit: Visit) -> Response:
    """Newest message first."""
    running = visit.asked("running") is not None
    plans, following = await visit.services.of(PLAN_SERVICE).list(
        running=running, limit=_ROWS, cursor=visit.asked("cursor")
    )
    return visit.page("plans.html", plans=plans, following=following, running=running)


async def show_plan(visit: Visit) -> Response:
    """The plans for one message: steps that need nothing first, each beside those that can run with it."""
    request_id = visit.path_id("request_id")
    plans = await visit.services.of(PLAN_SERVICE).of_message(request_id)
    return visit.page("plan.html", request_id=request_id, plans=[(plan, columns_of(plan)) for plan in plans])


def columns_of(plan: ShownPlan) -> list[Sequence[ShownPlanStep]]:
    """The steps by depth: each column needs only what stands in columns before it."""
    depth: dict[str, int] = {}
    for _ in plan.steps:  # a step comes after what it needs, in whatever order they are listed
        for step in plan.steps:
            depth[step.id] = max((depth.get(need, 0) + 1 for need in step.needs), default=0)
    columns = sorted(set(depth.values()))
    return [[step for step in plan.steps if depth[step.id] == column] for column in columns]


PAGES: Final = (
    WebPage("/plans", show_plans, EXPLAIN, "Plans"),
    WebPage("/plans/{request_id:uuid}", show_plan, EXPLAIN),
)
