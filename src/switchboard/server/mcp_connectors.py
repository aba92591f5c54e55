"""The MCP tools of connectors: ingest, ingest_batch, outbox_next, outbox_receipt, heartbeat.

`mcp_tools.py` offers them. Envelopes are typed loosely here and validated where HTTP's are. Next: `app/intake.py`,
`app/desk.py`.
"""

from __future__ import annotations

from uuid import UUID

from switchboard.app.desk import INTERVAL_S, Desk
from switchboard.app.intake import Intake, encode_batch, encode_envelope
from switchboard.server.http.doors import Doors
from switchboard.server.http.outbox import beat, pull_request, receipt
from switchboard.server.http.schemas import HeartbeatBody, OutboxNext, ReceiptBody
from switchboard.server.mcp_offer import ENVELOPE, Call, Offer, make_tool, object_of, only, read, schema_of


class OutboxReceipt(ReceiptBody):
    """A receipt, and for which reply."""

    outbox_id: UUID


def connector_offers(doors: Doors) -> tuple[Offer, ...]:
    """The tools over the parts behind the doors."""
    tools = _ConnectorTools(doors.intake, doors.desk)
    envelopes = {"type": "array", "minItems": 1, "maxItems": 200, "items": ENVELOPE}
    many = "Submit up to 200 messages: per envelope an answer or an error, in order. Look at every result."
    told = "Say what the platform said of a reply."
    return (
        Offer(make_tool("ingest", "Submit one message.", object_of(envelope=ENVELOPE)), "ingest", tools.ingest),
        Offer(make_tool("ingest_batch", many, object_of(envelopes=envelopes)), "ingest", tools.ingest_batch),
        Offer(make_tool("outbox_next", "Fetch replies to send.", schema_of(OutboxNext)), "outbox", tools.outbox_next),
        Offer(make_tool("outbox_receipt", told, schema_of(OutboxReceipt)), "outbox", tools.outbox_receipt),
        Offer(
            make_tool("heartbeat", "Say that this connector lives.", schema_of(HeartbeatBody)),
            "heartbeat",
            tools.heartbeat,
        ),
    )


class _ConnectorTools:
    """What the tools do."""

    def __init__(self, intake: Intake, desk: Desk) -> None:
        self._intake = intake
        self._desk = desk

    async def ingest(self, call: Call) -> object:
        envelope = only(call.arguments, "envelope", dict)
        return await self._intake.message(call.caller, encode_envelope(envelope))

    async def ingest_batch(self, call: Call) -> object:
        envelopes = only(call.arguments, "envelopes", list)
        return {"results": await self._intake.batch(call.caller, encode_batch(envelopes))}

    async def outbox_next(self, call: Call) -> object:
        request = pull_request(read(OutboxNext, call.arguments))
        return {"replies": await self._desk.fetch(call.caller, request, call.gone)}

    async def outbox_receipt(self, call: Call) -> object:
        body = read(OutboxReceipt, call.arguments)
        return {"state": await self._desk.receive(call.caller, body.outbox_id, body.lease, receipt(body))}

    async def heartbeat(self, call: Call) -> object:
        await self._desk.heartbeat(call.caller, beat(read(HeartbeatBody, call.arguments)))
        return {"status": "ok", "interval_s": INTERVAL_S}
