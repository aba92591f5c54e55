"""`/v1/quarantine`: events that could not be made into messages. Next: `app/connectors/quarantine.py`."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import Depends, Response

from switchboard.app.access import Principal
from switchboard.app.connectors.quarantine import (
    QUARANTINE,
    BadEvent,
    Put,
    QuarantinedDetail,
    QuarantineFilter,
    decode_event,
)
from switchboard.server.contracts.base import Cursor, Limit, Word
from switchboard.server.contracts.connectors import Discarded, QuarantineBody, QuarantinePage, Replayed
from switchboard.server.http.hooks import HOOK_SERVICE, QUARANTINE_SERVICE
from switchboard.server.http.parameters import router_of
from switchboard.server.http.services import Parts, answer, needs, operation, page

router = router_of("connectors", prefix="/v1/quarantine")

Caller = Annotated[Principal, Depends(needs(QUARANTINE))]


@router.post("", **operation("quarantine_event", "Put an event into quarantine", Put))
async def put(caller: Caller, parts: Parts, body: QuarantineBody) -> Response:
    """Once per endpoint and event; again it takes the new `reason`, and a replay is over. `raw` is base64."""
    event = BadEvent(body.channel, body.endpoint, body.event_id, body.reason, decode_event(body.raw))
    return answer(await parts.of(QUARANTINE_SERVICE).put(caller, event))


@router.get("", **operation("list_quarantine", "List the quarantine", QuarantinePage))
async def list_quarantine(  # noqa: PLR0913, PLR0917 - one parameter per filter of the contract
    caller: Caller,
    parts: Parts,
    channel: Word | None = None,
    endpoint: Word | None = None,
    replay: bool | None = None,
    limit: Limit = 100,
    cursor: Cursor | None = None,
) -> Response:
    """Newest first, without the bytes; a connector sees its endpoint. `replay`: only what is to be submitted again."""
    wanted = QuarantineFilter(channel, endpoint, replay)
    return answer(page("events", await parts.of(QUARANTINE_SERVICE).list(caller, wanted, limit=limit, cursor=cursor)))


@router.get("/{quarantine_id}", **operation("get_quarantined", "Get an event in quarantine", QuarantinedDetail, 404))
async def get(caller: Caller, parts: Parts, quarantine_id: UUID) -> Response:
    """With its bytes in base64."""
    return answer(await parts.of(QUARANTINE_SERVICE).get(caller, quarantine_id))


@router.post("/{quarantine_id}/replay", **operation("replay_quarantined", "Replay an event", Replayed, 404))
async def replay(caller: Caller, parts: Parts, quarantine_id: UUID) -> Response:
    """Its connector submits it again, and discards it here when that has succeeded; a webhook is submitted at once."""
    await parts.of(QUARANTINE_SERVICE).replay(caller, quarantine_id)
    await parts.of(HOOK_SERVICE).replay(caller, quarantine_id)
    return answer({"quarantine_id": quarantine_id, "replay": True})


@router.delete("/{quarantine_id}", **operation("discard_quarantined", "Discard an event", Discarded, 404))
async def discard(caller: Caller, parts: Parts, quarantine_id: UUID) -> Response:
    """Permanently: after a replay, or because it is not needed."""
    await parts.of(QUARANTINE_SERVICE).discard(caller, quarantine_id)
    return answer({"quarantine_id": quarantine_id, "status": "discarded"})
