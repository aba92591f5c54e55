"""Deliveries, lanes and the books. Next: `app/messages/views.py`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import Depends, Response

from switchboard.app.access import Principal
from switchboard.app.messages.explain import EXPLAIN
from switchboard.app.messages.views import BOOKS, DELIVERIES, LANES
from switchboard.domain.shown import ShownState
from switchboard.server.contracts.base import Cursor, Limit, Word
from switchboard.server.contracts.messages import FoundIds
from switchboard.server.contracts.operations import BooksView, DeliveryPage, LaneBody, LaneList, Resumed
from switchboard.server.http.parameters import router_of
from switchboard.server.http.services import Parts, answer, needs, operation, page

router = router_of("operations", prefix="/v1")

Reader = Annotated[Principal, Depends(needs(DELIVERIES))]


@router.get("/deliveries", **operation("list_deliveries", "List deliveries", DeliveryPage))
async def list_deliveries(
    caller: Reader,
    parts: Parts,
    state: ShownState | None = None,
    system_id: Word | None = None,
    limit: Limit = 50,
    cursor: Cursor | None = None,
) -> Response:
    """Newest message first; an agent sees its own."""
    found = await parts.views.deliveries(caller, limit=limit, cursor=cursor, system_id=system_id, state=state)
    return answer(page("deliveries", found))


@router.get("/ids", **operation("find_ids", "Find things by the beginning of an id", FoundIds, needing=EXPLAIN))
async def find_ids(parts: Parts, start: Word) -> Response:
    """Messages, dead letters, replies, rules, contacts, events in quarantine, and approvals, at most five of each.

    Of memory: facts, summaries and runs. Their ids begin with `start`.
    """
    return answer({"matches": await parts.views.find(start)})


@router.get("/lanes", **operation("list_lanes", "List busy lanes", LaneList, needing=LANES))
async def list_lanes(parts: Parts, limit: Limit = 100, cursor: Cursor | None = None) -> Response:
    """Those that are not idle or hold parked items, the longest waiting first."""
    return answer(page("lanes", await parts.views.lanes(limit=limit, cursor=cursor)))


@router.post("/lanes/resume", **operation("resume_lane", "Resume a paused lane", Resumed, 404, needing=LANES))
async def resume_lane(parts: Parts, body: LaneBody) -> Response:
    """It continues with its next item."""
    await parts.views.resume(body.lane)
    return answer({"lane": body.lane, "state": "resumed"})


@router.get("/books", **operation("get_books", "Get the balance of all messages", BooksView, needing=BOOKS))
async def get_books(parts: Parts, now: bool = False) -> Response:
    """Every message and every target accounted for; `problems` are contradictions in what is open, in sentences.

    A worker balances once a minute, at `balanced_at`; `now` balances at once and checks the last 24 hours as well.
    """
    kept = await parts.views.books(now=now)
    return answer(
        {
            **asdict(kept.books.messages),
            "balanced": kept.books.balanced,
            "targets": kept.books.targets,
            "problems": kept.books.problems,
            "balanced_at": kept.at,
            "stale": kept.stale,
        }
    )
