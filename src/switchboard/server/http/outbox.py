"""`/v1/outbox` and heartbeats: replies on their way, for connectors. Next: `app/connectors/work.py`."""

from __future__ import annotations

from typing import Annotated, Final
from uuid import UUID

from fastapi import Depends, Request, Response

from switchboard.app.access import Principal
from switchboard.app.connectors.work import (
    CONNECTORS,
    HEARTBEAT,
    INTERVAL_S,
    LEASE_S,
    ConnectorService,
    Heartbeat,
    LateFailure,
    OutboxPart,
    PullRequest,
    Receipt,
)
from switchboard.app.messages.blobs import OUTBOX
from switchboard.app.messages.views import REPLIES, ReplyDetail
from switchboard.domain.ledger import OutboxState
from switchboard.server.contracts.base import Cursor, Limit
from switchboard.server.contracts.connectors import (
    ConnectorList,
    HeartbeatAnswer,
    HeartbeatBody,
    LeasedReplies,
    OutboxNext,
    OutboxRows,
    PartBody,
    PartRecorded,
    ReceiptBody,
    ReplyState,
)
from switchboard.server.contracts.messages import ReasonBody
from switchboard.server.contracts.pushed import LateFailureBody, LateFailureKept
from switchboard.server.http.parameters import router_of
from switchboard.server.http.services import Parts, answer, needs, operation, page
from switchboard.server.services import ServiceFactory

CONNECTOR_SERVICE: Final = ServiceFactory(
    lambda s: ConnectorService(s.runtime.database, s.switchboard.replies, s.access)
)
router = router_of("connectors", prefix="/v1")

Connector = Annotated[Principal, Depends(needs(OUTBOX))]
Resender = Annotated[Principal, Depends(needs(REPLIES))]
Beating = Annotated[Principal, Depends(needs(HEARTBEAT))]


@router.post("/outbox/next", **operation("lease_replies", "Lease replies to send", LeasedReplies, 409))
async def fetch(request: Request, caller: Connector, parts: Parts, body: OutboxNext) -> Response:
    """Leases the next reply of each conversation; waits up to `wait_s` seconds for the first."""
    async with parts.polls.watch(request.receive) as gone:
        replies = await parts.of(CONNECTOR_SERVICE).fetch(caller, pull_request(body), gone)
    return answer({"replies": replies})


@router.post(
    "/outbox/late", **operation("report_late_failure", "Report that a sent message was not delivered", LateFailureKept)
)
async def report_late(caller: Connector, parts: Parts, body: LateFailureBody) -> Response:
    """Its reply is `failed` then, and somebody is notified once; resending it sends that part again."""
    late = LateFailure(
        platform_message_id=body.platform_message_id, reason=body.reason, at=body.at, because=body.because
    )
    state = await parts.of(CONNECTOR_SERVICE).report_late_failure(caller, body.channel, body.endpoint, late)
    return answer({"state": state})


@router.post(
    "/outbox/{outbox_id}/receipt", **operation("report_receipt", "Report the outcome of sending", ReplyState, 404, 409)
)
async def receive(caller: Connector, parts: Parts, outbox_id: UUID, body: ReceiptBody) -> Response:
    """409 if the lease has expired or was never held."""
    return answer({"state": await parts.of(CONNECTOR_SERVICE).receive(caller, outbox_id, body.lease, receipt(body))})


@router.post(
    "/outbox/{outbox_id}/parts", **operation("record_part", "Record a part of a reply", PartRecorded, 404, 409)
)
async def record_part(caller: Connector, parts: Parts, outbox_id: UUID, body: PartBody) -> Response:
    """Before it is sent, and after; renews the lease. A part that is `sent` stays so: do not send it again."""
    part = OutboxPart(body.part, body.of, body.state, body.key, body.platform_message_id, body.error)
    state = await parts.of(CONNECTOR_SERVICE).record_part(caller, outbox_id, body.lease, part, body.account_lease)
    return answer({"state": state, "lease_s": LEASE_S})


@router.get("/outbox", **operation("list_replies", "List replies", OutboxRows, needing=REPLIES))
async def list_outbox(
    parts: Parts, state: OutboxState | None = None, limit: Limit = 100, cursor: Cursor | None = None
) -> Response:
    """Newest first, of all endpoints."""
    return answer(page("replies", await parts.views.outbox(state, limit=limit, cursor=cursor)))


@router.get("/outbox/{outbox_id}", **operation("get_reply", "Get a reply", ReplyDetail, 404, needing=REPLIES))
async def get_reply(parts: Parts, outbox_id: UUID) -> Response:
    """With every attempt to send it."""
    return answer(await parts.views.reply(outbox_id))


@router.post("/outbox/{outbox_id}/resend", **operation("resend_reply", "Resend a reply", ReplyState, 404, 409))
async def resend(caller: Resender, parts: Parts, outbox_id: UUID, body: ReasonBody | None = None) -> Response:
    """An uncertain, failed or dead reply is queued again, behind the others of its conversation."""
    await parts.of(CONNECTOR_SERVICE).resend(caller, outbox_id, None if body is None else body.reason)
    return answer({"state": "pending"})


@router.post(
    "/connectors/heartbeat",
    **operation("send_connector_heartbeat", "Send a connector's heartbeat", HeartbeatAnswer, 429),
)
async def heartbeat(caller: Beating, parts: Parts, body: HeartbeatBody) -> Response:
    """Send the next one after `interval_s` seconds. 429 `too_many_instances` if 16 other processes report already."""
    await parts.of(CONNECTOR_SERVICE).heartbeat(caller, beat(body))
    return answer({"status": "ok", "interval_s": INTERVAL_S})


@router.get("/connectors", **operation("list_connectors", "List connectors", ConnectorList, needing=CONNECTORS))
async def list_connectors(parts: Parts, limit: Limit = 100, cursor: Cursor | None = None) -> Response:
    """The last heartbeat of each process: online within two intervals, stale within five, then offline.

    A process that has ended, or is offline, is forgotten as soon as another one of its account reports.
    """
    return answer(page("connectors", await parts.views.connectors(limit=limit, cursor=cursor)))


def pull_request(body: OutboxNext) -> PullRequest:
    """The request in the form of the service."""
    asked = body.model_dump(exclude={"parts", "idempotent"})
    return PullRequest(**asked, idempotent=body.idempotent or body.parts)


def receipt(body: ReceiptBody) -> Receipt:
    """The receipt in the form of the service."""
    return Receipt(body.outcome, body.platform_message_id, body.error, body.retry_after_s, body.because)


def beat(body: HeartbeatBody) -> Heartbeat:
    """The heartbeat in the form of the service."""
    given = body.model_dump(exclude={"schema_version"})
    return Heartbeat(**given | {"state": "failed" if body.state == "error" else body.state})
