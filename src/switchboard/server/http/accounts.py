"""`/v1/connectors/lease`, `…/cursor`, `…/moves`, `…/written`, `…/posted`: one instance serves an account.

Next: `app/connectors/accounts.py`, `app/connectors/drafts.py`.
"""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Depends, Request, Response

from switchboard.app.access import Principal
from switchboard.app.connectors.accounts import AccountId, AccountLease
from switchboard.app.connectors.drafts import DraftService
from switchboard.app.connectors.quarantine import decode_event
from switchboard.app.messages.blobs import OUTBOX
from switchboard.server.contracts.base import Number, Word
from switchboard.server.contracts.connectors import (
    AccountBody,
    AccountLeaseBody,
    ConversationMoveBody,
    ConversationMoveKept,
    CursorBody,
    CursorKept,
    PostedNext,
    PostedRows,
    PostedSettled,
    WrittenTexts,
)
from switchboard.server.contracts.operations import Released
from switchboard.server.contracts.pushed import PushedBody, PushedKept
from switchboard.server.fastpath import first
from switchboard.server.fastpath.first import ACCOUNT_SERVICE, POSTED_SERVICE
from switchboard.server.http.parameters import router_of
from switchboard.server.http.services import Parts, answer, needs, operation
from switchboard.server.services import ServiceFactory

router = router_of("connectors", prefix="/v1/connectors")
_DRAFTS: Final = ServiceFactory(lambda services: DraftService(services.runtime.database, services.access))

Connector = Annotated[Principal, Depends(needs(OUTBOX))]


@router.post("/lease", **operation("lease_account", "Lease an account, or renew its lease", AccountLease, 409))
async def lease(caller: Connector, parts: Parts, body: AccountLeaseBody) -> Response:
    """Renew it every third of `ttl_s`. 409 `account_held` with Retry-After as long as another instance has it."""
    return await first.lease(parts, caller, body)


@router.delete("/lease", **operation("release_account", "Release an account", Released, 409))
async def release(caller: Connector, parts: Parts, channel: Word, endpoint: Word, lease: Number) -> Response:
    """A standby can lease it at once. 409 `lease_lost` if the lease has ended already."""
    await parts.of(ACCOUNT_SERVICE).release(caller, AccountId(channel, endpoint), lease)
    return answer({"status": "released"})


@router.put("/cursor", **operation("save_cursor", "Save the cursor of an account", CursorKept, 409))
async def save_cursor(caller: Connector, parts: Parts, body: CursorBody) -> Response:
    """What the next lease returns. 409 `lease_lost` if the lease has ended, and the old cursor is kept."""
    await parts.of(ACCOUNT_SERVICE).save_cursor(caller, AccountId(body.channel, body.endpoint), body.lease, body.cursor)
    return answer({"status": "saved"})


@router.post("/moves", **operation("move_conversation", "Say that a conversation has moved", ConversationMoveKept, 409))
async def move(caller: Connector, parts: Parts, body: ConversationMoveBody) -> Response:
    """Approvals follow, and each lease reports it as `moved`. 409 `lease_lost` if the lease has ended."""
    await parts.of(ACCOUNT_SERVICE).move(caller, AccountId(body.channel, body.endpoint), body.lease, body.old, body.new)
    return answer({"status": "saved"})


@router.post("/written", **operation("read_written", "Read what butlers are writing", WrittenTexts))
async def read_written(caller: Connector, parts: Parts, body: AccountBody) -> Response:
    """For drafts: what is written so far of answers to people who are alone with the account. Ask once a second."""
    return answer({"texts": await parts.of(_DRAFTS).texts(caller, AccountId(body.channel, body.endpoint))})


@router.post("/posted/next", **operation("next_posted_events", "Get events that a platform posted", PostedRows))
async def next_posted_events(request: Request, caller: Connector, parts: Parts, body: PostedNext) -> Response:
    """Those after the number `after` that are not settled, oldest first; waits up to `wait_s` seconds for the first."""
    return await first.posted(parts, caller, body, request.receive)


@router.post("/posted", **operation("keep_pushed_event", "Keep an event that a platform pushed", PushedKept, 429))
async def keep_pushed(caller: Connector, parts: Parts, body: PushedBody) -> Response:
    """For platforms that push over a socket and must be answered soon: answer the platform after this response.

    The event is returned by `next_posted_events` like one that was posted. 429 `overloaded` if 10,000 events wait.
    """
    account = AccountId(body.channel, body.endpoint)
    await parts.of(POSTED_SERVICE).keep(caller, account, decode_event(body.raw), body.mark)
    return answer({"status": "kept"})


@router.delete(
    "/posted", **operation("settle_posted_events", "Settle events that a platform posted", PostedSettled, 409)
)
async def settle_posted(
    caller: Connector, parts: Parts, channel: Word, endpoint: Word, lease: Number, upto: Number
) -> Response:
    """All up to the number `upto`. 409 `lease_lost` if the lease has ended, and all of them stay."""
    await parts.of(POSTED_SERVICE).settle(caller, AccountId(channel, endpoint), lease, upto)
    return answer({"status": "settled"})
