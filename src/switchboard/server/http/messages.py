"""`/v1/messages`: messages, their explanations, and their replies.

Next: `app/messages/views.py`, `app/messages/explain.py`.
"""

from __future__ import annotations

from typing import Annotated, Final
from uuid import UUID

from fastapi import Depends, Query, Request, Response
from pydantic import Field

from switchboard.app.access import Principal
from switchboard.app.messages.blobs import RAW
from switchboard.app.messages.explain import EXPLAIN, Explanation, explain
from switchboard.app.messages.reroutes import REROUTE, MessageRerouter, ReroutedMessage, RerouteOrder
from switchboard.app.messages.searching import MessageFilter, MessageSearch, Period
from switchboard.app.messages.views import MESSAGES, MessageDetail, MessageReplies
from switchboard.app.messages.waiting import TRY_NOW, Stopping, TriedNow, stop_turns, try_now
from switchboard.domain.routing import Target
from switchboard.domain.shown import MessageState
from switchboard.server.contracts.base import Cursor, Limit, Word
from switchboard.server.contracts.dead_letters import Moment
from switchboard.server.contracts.messages import MessagePage, ReasonBody, RerouteMessageBody
from switchboard.server.http.parameters import router_of
from switchboard.server.http.services import Parts, Responses, answer, needs, operation
from switchboard.server.services import ServiceFactory

REROUTER: Final = ServiceFactory(lambda s: MessageRerouter(s.runtime))
SEARCH: Final = ServiceFactory(lambda s: MessageSearch(s.runtime, s.access))
router = router_of("messages", prefix="/v1/messages")

Caller = Annotated[Principal, Depends(needs(MESSAGES))]
RawReader = Annotated[Principal, Depends(needs(RAW))]
Operator = Annotated[Principal, Depends(needs(EXPLAIN))]
TryCaller = Annotated[Principal, Depends(needs(TRY_NOW))]
RerouteCaller = Annotated[Principal, Depends(needs(REROUTE))]
Wait = Annotated[float, Query(ge=0, le=60, allow_inf_nan=False)]
Seen = Annotated[int, Field(ge=0, le=2**31)]


@router.get("", **operation("list_messages", "List messages", MessagePage))
async def list_messages(  # noqa: PLR0913, PLR0917 - one parameter per filter of the contract
    caller: Caller,
    parts: Parts,
    limit: Limit = 50,
    cursor: Cursor | None = None,
    channel: Word | None = None,
    endpoint: Word | None = None,
    sender: Word | None = None,
    system_id: Word | None = None,
    team_id: Word | None = None,
    state: MessageState | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
) -> Response:
    """Newest first; a connector sees those of its endpoint. They came in in [since, until).

    `system_id`: the butler that got them; `team_id`: its team, or the one in which they died. A page looks through
    10,000 messages at most, unless only channel, endpoint and time are asked for: it may have fewer than `limit`, or
    none, and a `next_cursor`.
    """
    wanted = MessageFilter(channel, endpoint, sender, system_id, team_id, state)
    found = await parts.of(SEARCH).find(caller, wanted, Period(since, until), cursor=cursor, limit=limit, whole=True)
    cursors = {"next_cursor": found.older, "newer_cursor": found.newer, "looked_until": found.looked_until}
    return answer({"messages": found.messages, **cursors})


@router.get("/{request_id}", **operation("get_message", "Get a message", MessageDetail, 404))
async def get_message(caller: Caller, parts: Parts, request_id: UUID) -> Response:
    """With its envelope (without `payload.raw`), deliveries, replies and dead letters."""
    return answer(await parts.views.message(caller, request_id))


_RAW: Responses = {
    200: {
        "description": "The bytes, with their media type.",
        "content": {
            "application/json": {"schema": {}},
            "message/rfc822": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}


@router.get(
    "/{request_id}/raw",
    **operation("get_message_raw", "Get the original bytes of a message", None, 404, more=_RAW),
)
async def get_raw(caller: RawReader, parts: Parts, request_id: UUID) -> Response:
    """Exactly what was submitted; a butler reads what was delivered to it."""
    raw, media_type = await parts.views.raw(caller, request_id)
    # Strangers wrote it: browsers must not guess that it is executable.
    headers = {"content-type": media_type, "x-content-type-options": "nosniff", "content-security-policy": "sandbox"}
    return Response(raw, headers=headers)


@router.get("/{request_id}/explain", **operation("explain_message", "Explain a message", Explanation, 404))
async def explain_message(caller: Operator, parts: Parts, request_id: UUID) -> Response:
    """Decisions with the rules that were looked at, deliveries with their attempts, replies, dead letters."""
    del caller  # checked above; an operator may see all
    return answer(await explain(parts.switchboard.runtime, request_id))


@router.get(
    "/{request_id}/replies", **operation("get_message_replies", "Get the replies to a message", MessageReplies, 404)
)
async def get_replies(
    request: Request, caller: Caller, parts: Parts, request_id: UUID, wait_s: Wait = 0, seen: Seen = 0
) -> Response:
    """Waits up to `wait_s` seconds until all is settled, or there are more than `seen` replies."""
    async with parts.polls.watch(request.receive) as gone:
        return answer(await parts.views.replies(caller, request_id, wait_s=wait_s, seen=seen, gone=gone))


@router.post("/{request_id}/stop", **operation("stop_message", "Stop the turns of a message", Stopping, 404))
async def stop_message(caller: Caller, parts: Parts, request_id: UUID, body: ReasonBody | None = None) -> Response:
    """They end within a second, with what they have written. Messages behind it are kept. Senders write `/stop`."""
    reason = None if body is None else body.reason
    return answer(await stop_turns(parts.views, parts.runtime, caller, request_id, reason))


@router.post("/{request_id}/reroute", **operation("reroute_message", "Reroute a message", ReroutedMessage, 404, 409))
async def reroute_message(caller: RerouteCaller, parts: Parts, request_id: UUID, body: RerouteMessageBody) -> Response:
    """To others than those who have it, who do not answer it any more; what they did is not taken back."""
    to = None if body.to is None else Target(body.to.system_id, body.to.team_id)
    order = RerouteOrder(body.reason, to, body.instead_of, body.again)
    return answer(await parts.of(REROUTER).reroute(caller, request_id, order))


@router.post("/{request_id}/try", **operation("try_message", "Try a message now", TriedNow, 404))
async def try_message(caller: TryCaller, parts: Parts, request_id: UUID, body: ReasonBody | None = None) -> Response:
    """What waits for its next attempt, or is paused, goes on at once: turns, notices and replies of the message."""
    return answer(await try_now(parts.runtime, caller, request_id, None if body is None else body.reason))
