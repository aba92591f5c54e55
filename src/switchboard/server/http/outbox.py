"""`/v1/outbox` and heartbeats: replies on their way, for connectors. Next: `app/messages/connectors.py`."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Request, Response

from switchboard.app.access import Principal
from switchboard.app.messages.connectors import INTERVAL_S, Heartbeat, PullRequest, Receipt
from switchboard.app.messages.views import ReplyDetail
from switchboard.domain.ledger import OutboxState
from switchboard.server.contracts.messages import (
    ConnectorList,
    Cursor,
    HeartbeatAnswer,
    HeartbeatBody,
    LeasedReplies,
    Limit,
    OutboxNext,
    OutboxRows,
    ReceiptBody,
    ReplyState,
)
from switchboard.server.http.services import Parts, answer, documented, needs

router = APIRouter(prefix="/v1", tags=["connectors"])

Connector = Annotated[Principal, Depends(needs("outbox"))]
Beating = Annotated[Principal, Depends(needs("heartbeat"))]


@router.post(
    "/outbox/next", operation_id="lease_replies", summary="Lease replies to send", responses=documented(LeasedReplies)
)
async def fetch(request: Request, caller: Connector, parts: Parts, body: OutboxNext) -> Response:
    """Leases the next reply of each conversation; waits up to `wait_s` seconds for the first."""
    async with parts.polls.watch(request.receive) as gone:
        replies = await parts.connectors.fetch(caller, pull_request(body), gone)
    return answer({"replies": replies})


@router.post(
    "/outbox/{outbox_id}/receipt",
    operation_id="report_receipt",
    summary="Report the outcome of sending",
    responses=documented(ReplyState, 404, 409),
)
async def receive(caller: Connector, parts: Parts, outbox_id: UUID, body: ReceiptBody) -> Response:
    """409 if the lease has expired or was never held."""
    return answer({"state": await parts.connectors.receive(caller, outbox_id, body.lease, receipt(body))})


@router.get(
    "/outbox",
    operation_id="list_replies",
    summary="List replies",
    responses=documented(OutboxRows),
    dependencies=[Depends(needs("replies"))],
)
async def list_outbox(
    parts: Parts, state: OutboxState | None = None, limit: Limit = 100, cursor: Cursor | None = None
) -> Response:
    """Newest first, of all endpoints."""
    page, following = await parts.views.outbox(state, limit=limit, cursor=cursor)
    return answer({"replies": page, "next_cursor": following})


@router.get(
    "/outbox/{outbox_id}",
    operation_id="get_reply",
    summary="Get a reply",
    responses=documented(ReplyDetail, 404),
    dependencies=[Depends(needs("replies"))],
)
async def get_reply(parts: Parts, outbox_id: UUID) -> Response:
    """With every attempt to send it."""
    return answer(await parts.views.reply(outbox_id))


@router.post(
    "/outbox/{outbox_id}/resend",
    operation_id="resend_reply",
    summary="Resend a reply",
    responses=documented(ReplyState, 404, 409),
    dependencies=[Depends(needs("replies"))],
)
async def resend(parts: Parts, outbox_id: UUID) -> Response:
    """An uncertain, failed or dead reply is queued again, behind the others of its conversation."""
    await parts.connectors.resend(outbox_id)
    return answer({"state": "pending"})


@router.post(
    "/connectors/heartbeat",
    operation_id="send_connector_heartbeat",
    summary="Send a connector's heartbeat",
    responses=documented(HeartbeatAnswer),
)
async def heartbeat(caller: Beating, parts: Parts, body: HeartbeatBody) -> Response:
    """Send the next one after `interval_s` seconds."""
    await parts.connectors.heartbeat(caller, beat(body))
    return answer({"status": "ok", "interval_s": INTERVAL_S})


@router.get(
    "/connectors",
    operation_id="list_connectors",
    summary="List connectors",
    responses=documented(ConnectorList),
    dependencies=[Depends(needs("connectors"))],
)
async def list_connectors(parts: Parts, limit: Limit = 100, cursor: Cursor | None = None) -> Response:
    """The last heartbeat of each endpoint: online within two intervals, stale within five, then offline."""
    page, following = await parts.views.connectors(limit=limit, cursor=cursor)
    return answer({"connectors": page, "next_cursor": following})


def pull_request(body: OutboxNext) -> PullRequest:
    """The request in the form of the service."""
    return PullRequest(**body.model_dump())


def receipt(body: ReceiptBody) -> Receipt:
    """The receipt in the form of the service."""
    return Receipt(body.outcome, body.platform_message_id, body.error, body.retry_after_s)


def beat(body: HeartbeatBody) -> Heartbeat:
    """The heartbeat in the form of the service."""
    return Heartbeat(**body.model_dump(exclude={"schema_version"}))
