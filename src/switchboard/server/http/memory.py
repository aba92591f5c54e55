"""`/v1/memory`: what butlers have learned, and what stands for old conversations. Next: `app/memory/service.py`."""

from __future__ import annotations

from typing import Annotated, Final
from uuid import UUID

from fastapi import Depends, Response

from switchboard.app.access import Principal
from switchboard.app.memory.service import MEMORY, FactFilter, MemoryService
from switchboard.server.contracts.base import Cursor, Limit, Word
from switchboard.server.contracts.memory import (
    FactDetail,
    FactPage,
    ForgottenFact,
    RestoredSummary,
    SharedFact,
    SummaryPage,
)
from switchboard.server.http.parameters import router_of
from switchboard.server.http.services import Parts, answer, needs, operation, page
from switchboard.server.services import ServiceFactory

router = router_of("memory", prefix="/v1/memory")
_SERVICE: Final = ServiceFactory(lambda services: MemoryService(services.runtime.database))

Operator = Annotated[Principal, Depends(needs(MEMORY))]


@router.get("/facts", **operation("list_facts", "List facts", FactPage))
async def list_facts(
    caller: Operator,
    parts: Parts,
    system_id: Word | None = None,
    author: Word | None = None,
    limit: Limit = 100,
    cursor: Cursor | None = None,
) -> Response:
    """Newest first; of all butlers and authors, or of one. Every read is recorded in the audit log."""
    wanted = FactFilter(system_id, author)
    return answer(page("facts", await parts.of(_SERVICE).facts(caller, wanted, limit=limit, cursor=cursor)))


@router.get("/facts/{fact_id}", **operation("get_fact", "Get a fact", FactDetail, 404))
async def get_fact(caller: Operator, parts: Parts, fact_id: UUID) -> Response:
    """With the message that it was taken from."""
    fact, sources = await parts.of(_SERVICE).fact(caller, fact_id)
    return answer({"fact": fact, "sources": sources})


@router.post("/facts/{fact_id}/share", **operation("share_fact", "Share a fact", SharedFact, 404))
async def share(caller: Operator, parts: Parts, fact_id: UUID) -> Response:
    """It becomes visible to everyone who talks to the butler."""
    await parts.of(_SERVICE).share(caller, fact_id)
    return answer({"fact_id": fact_id})


@router.post("/facts/{fact_id}/forget", **operation("forget_fact", "Forget a fact", ForgottenFact, 404))
async def forget(caller: Operator, parts: Parts, fact_id: UUID) -> Response:
    """For good: with others that say it and the summaries that may repeat it. Nobody can restore it."""
    return answer({"fact_id": fact_id, "forgotten": await parts.of(_SERVICE).forget(caller, fact_id)})


@router.get("/summaries", **operation("list_summaries", "List summaries", SummaryPage))
async def list_summaries(
    caller: Operator, parts: Parts, system_id: Word | None = None, limit: Limit = 100, cursor: Cursor | None = None
) -> Response:
    """Newest first; of all butlers, or of one. Every read is recorded in the audit log."""
    return answer(page("summaries", await parts.of(_SERVICE).summaries(caller, system_id, limit=limit, cursor=cursor)))


@router.post(
    "/summaries/{summary_id}/restore",
    **operation("restore_summary", "Restore summarized entries", RestoredSummary, 404, 409),
)
async def restore(caller: Operator, parts: Parts, summary_id: UUID) -> Response:
    """Within 30 days, with those of later summaries. What was learned stays; 409 if nothing can be restored."""
    return answer({"summary_id": summary_id, "restored": await parts.of(_SERVICE).restore(caller, summary_id)})
