"""`/v1/memory`: what butlers have learned, and what stands for old conversations. Next: `app/memory/service.py`."""

from __future__ import annotations

from typing import Annotated, Final
from uuid import UUID

from fastapi import Depends, Response

from switchboard.app.access import Principal
from switchboard.app.memory.service import MEMORY, FactFilter, MemoryService, StatedByOperator
from switchboard.server.contracts.base import Cursor, Limit, SystemRef, Word, Words
from switchboard.server.contracts.memory import (
    AddedFact,
    EntityList,
    FactBody,
    FactDetail,
    FactPage,
    ForgottenFact,
    RestoredSummary,
    RunPage,
    SharedFact,
    SummaryPage,
    UndoneFact,
    UndoneRun,
)
from switchboard.server.contracts.messages import ReasonBody, reason_in
from switchboard.server.http.parameters import router_of
from switchboard.server.http.services import Parts, answer, needs, operation, page
from switchboard.server.services import ServiceFactory

router = router_of("memory", prefix="/v1/memory")
MEMORY_SERVICE: Final = ServiceFactory(lambda services: MemoryService(services.runtime))

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
    return answer(page("facts", await parts.of(MEMORY_SERVICE).facts(caller, wanted, limit=limit, cursor=cursor)))


@router.post("/facts", **operation("add_fact", "Add a fact", AddedFact, 404, 409))
async def add_fact(caller: Operator, parts: Parts, body: FactBody) -> Response:
    """As if its author had said it alone with the butler. The same words again are the same fact."""
    stated = StatedByOperator(body.system_id, body.author, body.text, body.subject, body.predicate, body.shared)
    return answer({"fact": await parts.of(MEMORY_SERVICE).add(caller, stated)})


@router.get("/search", **operation("search_facts", "Search facts", FactPage))
async def search_facts(
    caller: Operator,
    parts: Parts,
    words: Words,
    system_id: Word | None = None,
    limit: Limit = 100,
    cursor: Cursor | None = None,
) -> Response:
    """Newest first, those that have any of the words. Every read is recorded in the audit log."""
    found = await parts.of(MEMORY_SERVICE).search(caller, words, system_id, limit=limit, cursor=cursor)
    return answer(page("facts", found))


@router.get("/entities", **operation("find_entities", "Find whom and what facts are about", EntityList))
async def find_entities(caller: Operator, parts: Parts, system_id: SystemRef, words: Words = "") -> Response:
    """Of one butler; those whose names fit the words, the best first. Every read is recorded in the audit log."""
    return answer({"entities": await parts.of(MEMORY_SERVICE).entities(caller, system_id, words)})


@router.get("/facts/{fact_id}", **operation("get_fact", "Get a fact", FactDetail, 404))
async def get_fact(caller: Operator, parts: Parts, fact_id: UUID) -> Response:
    """With the messages that it was taken from, and what became of it by what else was said."""
    fact, standing, sources = await parts.of(MEMORY_SERVICE).fact(caller, fact_id)
    return answer({"fact": fact, "standing": standing, "sources": sources})


@router.post("/facts/{fact_id}/share", **operation("share_fact", "Share a fact", SharedFact, 404))
async def share(caller: Operator, parts: Parts, fact_id: UUID, body: ReasonBody | None = None) -> Response:
    """It becomes visible to everyone who talks to the butler."""
    await parts.of(MEMORY_SERVICE).share(caller, fact_id, reason_in(body))
    return answer({"fact_id": fact_id})


@router.post("/facts/{fact_id}/forget", **operation("forget_fact", "Forget a fact", ForgottenFact, 404))
async def forget(caller: Operator, parts: Parts, fact_id: UUID, body: ReasonBody | None = None) -> Response:
    """For good: with others that say it and the summaries that may repeat it. Nobody can restore it."""
    return answer(
        {"fact_id": fact_id, "forgotten": await parts.of(MEMORY_SERVICE).forget(caller, fact_id, reason_in(body))}
    )


@router.post("/facts/{fact_id}/undo", **operation("undo_fact", "Undo a fact", UndoneFact, 404, 409))
async def undo_fact(caller: Operator, parts: Parts, fact_id: UUID, body: ReasonBody | None = None) -> Response:
    """It counts as never said; what it had replaced holds again. Operators still see it. 409 if it was undone."""
    await parts.of(MEMORY_SERVICE).undo(caller, fact_id, reason_in(body))
    return answer({"fact_id": fact_id})


@router.get("/runs", **operation("list_runs", "List runs that looked for facts", RunPage))
async def list_runs(
    caller: Operator, parts: Parts, system_id: Word | None = None, limit: Limit = 100, cursor: Cursor | None = None
) -> Response:
    """Newest first; of all butlers, or of one. Every read is recorded in the audit log."""
    return answer(page("runs", await parts.of(MEMORY_SERVICE).runs(caller, system_id, limit=limit, cursor=cursor)))


@router.post("/runs/{run}/undo", **operation("undo_run", "Undo a run", UndoneRun, 404))
async def undo_run(caller: Operator, parts: Parts, run: UUID, body: ReasonBody | None = None) -> Response:
    """All that it has found counts as never said."""
    return answer({"run": run, "facts": await parts.of(MEMORY_SERVICE).undo_run(caller, run, reason_in(body))})


@router.get("/summaries", **operation("list_summaries", "List summaries", SummaryPage))
async def list_summaries(
    caller: Operator, parts: Parts, system_id: Word | None = None, limit: Limit = 100, cursor: Cursor | None = None
) -> Response:
    """Newest first; of all butlers, or of one. Every read is recorded in the audit log."""
    return answer(
        page("summaries", await parts.of(MEMORY_SERVICE).summaries(caller, system_id, limit=limit, cursor=cursor))
    )


@router.post(
    "/summaries/{summary_id}/restore",
    **operation("restore_summary", "Restore summarized entries", RestoredSummary, 404, 409),
)
async def restore(caller: Operator, parts: Parts, summary_id: UUID, body: ReasonBody | None = None) -> Response:
    """Within 30 days, with those of later summaries. What was learned stays; 409 if nothing can be restored."""
    return answer(
        {
            "summary_id": summary_id,
            "restored": await parts.of(MEMORY_SERVICE).restore(caller, summary_id, reason_in(body)),
        }
    )
