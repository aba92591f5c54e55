"""`/schemas/NAME.json`: the documents whose JSON Schemas are published. Next: the functions that build them.

Every route of this router is served without a token (`gate.py`).
"""

from __future__ import annotations

from switchboard.core.envelope.read import json_schema
from switchboard.core.planning.schemas import pipeline_schema, route_decision_schema
from switchboard.core.remote_agents import response_schema, route_schema
from switchboard.domain.json_values import JsonObject
from switchboard.server.contracts.gateway import gateway_schema
from switchboard.server.http.parameters import router_of
from switchboard.server.paths import SCHEMAS

router = router_of("public", prefix=SCHEMAS.rstrip("/"))


@router.get("/ingest.v1.json", operation_id="get_ingest_schema", summary="Get the JSON Schema of ingest.v1")
async def ingest() -> JsonObject:
    """The envelope that `POST /v1/ingest` accepts."""
    return json_schema()


@router.get("/route.v1.json", operation_id="get_route_schema", summary="Get the JSON Schema of route.v1")
async def route() -> JsonObject:
    """What a remote butler receives."""
    return route_schema()


@router.get(
    "/route_response.v1.json",
    operation_id="get_route_response_schema",
    summary="Get the JSON Schema of route_response.v1",
)
async def route_response() -> JsonObject:
    """What a remote butler responds."""
    return response_schema()


@router.get("/pipeline.v1.json", operation_id="get_pipeline_schema", summary="Get the JSON Schema of pipeline.v1")
async def pipeline() -> JsonObject:
    """A plan: a turn of several steps."""
    return pipeline_schema()


@router.get(
    "/route_decision.v1.json",
    operation_id="get_route_decision_schema",
    summary="Get the JSON Schema of route_decision.v1",
)
async def route_decision() -> JsonObject:
    """What a router decides about a message: one action, or a plan."""
    return route_decision_schema()


@router.get("/gateway.v1.json", operation_id="get_gateway_schema", summary="Get the JSON Schema of gateway.v1")
async def gateway() -> JsonObject:
    """Every frame that the WebSocket at `/v1/ws` reads and sends."""
    return gateway_schema()
