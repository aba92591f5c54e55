"""The MCP tools of connectors: ingest, ingest_batch, outbox_next, outbox_receipt, heartbeat.

`tools.py` offers them. Envelopes are typed loosely here and validated where HTTP's are. Next:
`app/messages/intake.py`, `app/messages/connectors.py`.
"""

from __future__ import annotations

from switchboard.app.messages.connectors import INTERVAL_S, ConnectorService
from switchboard.app.messages.intake import Intake, encode_batch, encode_envelope
from switchboard.server.contracts.messages import HeartbeatBody, Id, OutboxNext, ReceiptBody
from switchboard.server.http.outbox import beat, pull_request, receipt
from switchboard.server.http.services import Services
from switchboard.server.mcp.tool_spec import ENVELOPE, McpCall, McpToolSpec, make_tool, object_of, only, tool_of


class OutboxReceipt(ReceiptBody):
    """A receipt, and for which reply."""

    outbox_id: Id


def connector_tools(services: Services) -> tuple[McpToolSpec, ...]:
    """The tools over the services."""
    tools = _ConnectorTools(services.intake, services.connectors)
    envelopes = {"type": "array", "minItems": 1, "maxItems": 200, "items": ENVELOPE}
    many = "Submit up to 200 messages: a result or an error per envelope, in order. Check every result."
    told = "Report the outcome of sending a reply."
    return (
        McpToolSpec(make_tool("ingest", "Submit one message.", object_of(envelope=ENVELOPE)), "ingest", tools.ingest),
        McpToolSpec(make_tool("ingest_batch", many, object_of(envelopes=envelopes)), "ingest", tools.ingest_batch),
        tool_of("outbox_next", "Fetch replies to send.", OutboxNext, "outbox", tools.outbox_next),
        tool_of("outbox_receipt", told, OutboxReceipt, "outbox", tools.outbox_receipt),
        tool_of("heartbeat", "Report that this connector is alive.", HeartbeatBody, "heartbeat", tools.heartbeat),
    )


class _ConnectorTools:
    """What the tools do."""

    def __init__(self, intake: Intake, connectors: ConnectorService) -> None:
        self._intake = intake
        self._connectors = connectors

    async def ingest(self, call: McpCall) -> object:
        envelope = only(call.arguments, "envelope", dict)
        return await self._intake.message(call.caller, encode_envelope(envelope))

    async def ingest_batch(self, call: McpCall) -> object:
        envelopes = only(call.arguments, "envelopes", list)
        return {"results": await self._intake.batch(call.caller, encode_batch(envelopes))}

    async def outbox_next(self, call: McpCall, body: OutboxNext) -> object:
        return {"replies": await self._connectors.fetch(call.caller, pull_request(body), call.gone)}

    async def outbox_receipt(self, call: McpCall, body: OutboxReceipt) -> object:
        return {"state": await self._connectors.receive(call.caller, body.outbox_id, body.lease, receipt(body))}

    async def heartbeat(self, call: McpCall, body: HeartbeatBody) -> object:
        await self._connectors.heartbeat(call.caller, beat(body))
        return {"status": "ok", "interval_s": INTERVAL_S}
