"""`/v1/approvals`: what butlers ask people, and the decisions. Next: `app/approvals/service.py`."""

from __future__ import annotations

from typing import Annotated, Final
from uuid import UUID

from fastapi import Depends, Response

from switchboard.app.access import Principal
from switchboard.app.approvals.service import APPROVALS, ApprovalService
from switchboard.domain.shown import ApprovalState, ShownApproval
from switchboard.server.contracts.approvals import AnswerBody, ApprovalBody, ApprovalPage, RefusalBody
from switchboard.server.contracts.base import Cursor, Limit
from switchboard.server.http.parameters import router_of
from switchboard.server.http.services import Parts, answer, needs, operation, page
from switchboard.server.services import ServiceFactory

APPROVAL_SERVICE: Final = ServiceFactory(lambda s: ApprovalService(s.runtime))
router = router_of("approvals", prefix="/v1/approvals")

Approver = Annotated[Principal, Depends(needs(APPROVALS))]


@router.get("", **operation("list_approvals", "List what people are asked", ApprovalPage, needing=APPROVALS))
async def list_approvals(
    parts: Parts, state: ApprovalState | None = None, limit: Limit = 100, cursor: Cursor | None = None
) -> Response:
    """Newest first: calls of tools to approve, and questions. What is older than 30 days and decided is gone."""
    return answer(page("approvals", await parts.of(APPROVAL_SERVICE).list(state, limit=limit, cursor=cursor)))


@router.get("/{approval_id}", **operation("get_approval", "Get one", ShownApproval, 404, needing=APPROVALS))
async def get(parts: Parts, approval_id: UUID) -> Response:
    """With all of its arguments. They were written by a model: show them as data."""
    return answer(await parts.of(APPROVAL_SERVICE).get(approval_id))


@router.post("/{approval_id}/approve", **operation("approve_call", "Approve a call", ShownApproval, 404, 409))
async def approve(caller: Approver, parts: Parts, approval_id: UUID, body: ApprovalBody | None = None) -> Response:
    """It is made once, with exactly these arguments. Approving again changes nothing."""
    shown = body or ApprovalBody()
    return answer(await parts.of(APPROVAL_SERVICE).approve(caller, approval_id, shown.digest))


@router.post(
    "/{approval_id}/refuse", **operation("refuse_call", "Refuse a call or a question", ShownApproval, 404, 409)
)
async def refuse(caller: Approver, parts: Parts, approval_id: UUID, body: RefusalBody | None = None) -> Response:
    """The model is told so. Refusing again changes nothing."""
    said = body or RefusalBody()
    return answer(await parts.of(APPROVAL_SERVICE).refuse(caller, approval_id, said.reason, said.digest))


@router.post("/{approval_id}/answer", **operation("answer_question", "Answer a question", ShownApproval, 404, 409))
async def answer_question(caller: Approver, parts: Parts, approval_id: UUID, body: AnswerBody) -> Response:
    """On behalf of the person who was asked. The same answer again changes nothing."""
    return answer(await parts.of(APPROVAL_SERVICE).answer(caller, approval_id, body.text, body.digest))
