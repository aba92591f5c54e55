"""`/v1/plans/try`: what a butler that plans would do with a message. Next: `app/plans/trying.py`."""

from __future__ import annotations

from fastapi import Response

from switchboard.app.plans.trying import PlanTrial
from switchboard.server.contracts.plans import TryPlanBody
from switchboard.server.http.parameters import router_of
from switchboard.server.http.services import Parts, answer, operation

router = router_of("plans", prefix="/v1/plans")


@router.post("/try", **operation("try_plan", "Try what would be planned", PlanTrial, 404, needing="models"))
async def try_plan(parts: Parts, body: TryPlanBody) -> Response:
    """The router of a butler is asked what it would do with a message, which costs tokens; nothing of it is done."""
    return answer(await parts.plan_trials.try_plan(body.text, body.butler))
