"""`/schemas/gateway.v1.json`: the frames of the gateway at `/v1/ws`. Next: `server/ws/endpoint.py`."""

from __future__ import annotations

from switchboard.domain.json_values import JsonObject
from switchboard.server.contracts.gateway import gateway_schema
from switchboard.server.http.parameters import router_of

router = router_of("public")


@router.get("/schemas/gateway.v1.json", operation_id="get_gateway_schema", summary="Get the JSON Schema of gateway.v1")
async def schema() -> JsonObject:
    """Every frame that the WebSocket at `/v1/ws` reads and sends."""
    return gateway_schema()
