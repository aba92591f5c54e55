"""`/schemas/pipeline.v1.json` and `/schemas/route_decision.v1.json`: what a plan is, and what a router decides.

Next: `core/planning/schemas.py`.
"""

from __future__ import annotations

from switchboard.core.planning.schemas import pipeline_schema, route_decision_schema
from switchboard.domain.json_values import JsonObject
from switchboard.server.http.parameters import router_of

router = router_of("public")


@router.get(
    "/schemas/pipeline.v1.json", operation_id="get_pipeline_schema", summary="Get the JSON Schema of pipeline.v1"
)
async def pipeline() -> JsonObject:
    """A plan: a turn of several steps."""
    return pipeline_schema()


@router.get(
    "/schemas/route_decision.v1.json",
    operation_id="get_route_decision_schema",
    summary="Get the JSON Schema of route_decision.v1",
)
async def route_decision() -> JsonObject:
    """What a router decides about a message: one action, or a plan."""
    return route_decision_schema()
