"""`/v1/plans`: what butlers plan, how far that is, and what one would plan. Next: `app/messages/planned.py`."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from fastapi import Response

from switchboard.app.messages.explain import EXPLAIN
from switchboard.app.messages.planned import PlanService
from switchboard.app.models.spending import MODELS
from switchboard.app.plans.trying import PlanTrial, PlanTrials
from switchboard.server.contracts.base import Cursor, Limit
from switchboard.server.contracts.plans import PlanPage, PlansOfMessage, TryPlanBody
from switchboard.server.http.parameters import router_of
from switchboard.server.http.services import Parts, answer, operation, page
from switchboard.server.services import ServiceFactory

router = router_of("plans", prefix="/v1/plans")
_TRIALS: Final = ServiceFactory(lambda services: PlanTrials(services.runtime))
PLAN_SERVICE: Final = ServiceFactory(lambda services: PlanService(services.runtime))


@router.post("/try", **operation("try_plan", "Try what would be planned", PlanTrial, 404, needing=MODELS))
async def try_plan(parts: Parts, body: TryPlanBody) -> Response:
    """The router of a butler is asked what it would do with a message, which costs tokens; nothing is done."""
    return answer(await parts.of(_TRIALS).try_plan(body.text, body.butler))


@router.get("", **operation("list_plans", "List plans", PlanPage, needing=EXPLAIN))
async def list_plans(
    parts: Parts, limit: Limit = 50, cursor: Cursor | None = None, *, running: bool = False
) -> Response:
    """What butlers have decided to do with messages, and how far they are; the newest messages first, without steps."""
    return answer(page("plans", await parts.of(PLAN_SERVICE).list(running=running, limit=limit, cursor=cursor)))


@router.get(
    "/{request_id}", **operation("get_plans", "Get the plans for a message", PlansOfMessage, 404, needing=EXPLAIN)
)
async def get_plans(parts: Parts, request_id: UUID) -> Response:
    """With all of their steps; arguments were written by models. A turn is stopped at `/v1/messages`."""
    return answer({"plans": await parts.of(PLAN_SERVICE).of_message(request_id)})
