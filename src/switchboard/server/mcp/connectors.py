"""The MCP tools of connectors: ingest, ingest_batch, outbox_next, outbox_receipt, heartbeat.

`tools.py` offers them. Envelopes are typed loosely here and validated where HTTP's are. Next:
`app/messages/intake.py`, `app/connectors/work.py`.
"""

from __future__ import annotations

from switchboard.app.connectors.work import HEARTBEAT, INTERVAL_S
from switchboard.app.messages.blobs import OUTBOX
from switchboard.app.messages.intake import INGEST, encode_batch, encode_envelope
from switchboard.server.contracts.base import Id
from switchboard.server.contracts.connectors import HeartbeatBody, OutboxNext, ReceiptBody
from switchboard.server.http.outbox import CONNECTOR_SERVICE, beat, pull_request, receipt
from switchboard.server.mcp.tool_spec import ENVELOPE, McpCall, McpToolSpec, make_tool, object_of, only, tool_of
from switchboard.server.services import Services


class OutboxReceipt(ReceiptBody):
    """A receipt, and the reply that it is for."""

    outbox_id: Id


def connector_tools(services: Services) -> tuple[McpToolSpec, ...]:
    """The tools over the services."""

    async def ingest(call: McpCall) -> object:
        envelope = only(call.arguments, "envelope", dict)
        return await services.intake.message(call.caller, encode_envelope(envelope))

    async def ingest_batch(call: McpCall) -> object:
        envelopes = only(call.arguments, "envelopes", list)
        return {"results": await services.intake.batch(call.caller, encode_batch(envelopes))}

    async def outbox_next(call: McpCall, body: OutboxNext) -> object:
        return {"replies": await services.of(CONNECTOR_SERVICE).fetch(call.caller, pull_request(body), call.gone)}

    async def outbox_receipt(call: McpCall, body: OutboxReceipt) -> object:
        return {
            "state": await services.of(CONNECTOR_SERVICE).receive(
                call.caller, body.outbox_id, body.lease, receipt(body)
            )
        }

    async def heartbeat(call: McpCall, body: HeartbeatBody) -> object:
        await services.of(CONNECTOR_SERVICE).heartbeat(call.caller, beat(body))
        return {"status": "ok", "interval_s": INTERVAL_S}

    envelopes = {"type": "array", "minItems": 1, "maxItems": 200, "items": ENVELOPE}
    many = "Submit up to 200 messages: a result or an error per envelope, in order. Check every result."
    told = "Report the outcome of sending a reply."
    return (
        McpToolSpec(make_tool("ingest", "Submit one message.", object_of(envelope=ENVELOPE)), INGEST, ingest),
        McpToolSpec(make_tool("ingest_batch", many, object_of(envelopes=envelopes)), INGEST, ingest_batch),
        tool_of("outbox_next", "Fetch replies to send.", OutboxNext, OUTBOX, outbox_next),
        tool_of("outbox_receipt", told, OutboxReceipt, OUTBOX, outbox_receipt),
        tool_of("heartbeat", "Report that this connector is alive.", HeartbeatBody, HEARTBEAT, heartbeat),
    )
