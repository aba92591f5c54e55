"""Memory: what butlers have learned about people, from which words; how it is shared, forgotten, undone and added.

Reading what people have told a butler is on the record, so the page itself shows only how much there is of each. What
it says is shown by forms, each with its row in the audit. Next: `app/memory/service.py`.
"""

from __future__ import annotations

from typing import Final, cast
from uuid import UUID

from starlette.responses import Response

from switchboard.app.memory.service import MEMORY, MOST_COUNTED, FactFilter, MemoryService, StatedByOperator
from switchboard.app.people.naming import call_people
from switchboard.domain.routing import SystemId
from switchboard.server.http.memory import MEMORY_SERVICE
from switchboard.server.web.forms import (
    NOTHING_ENTERED,
    Entered,
    Fields,
    line_from,
    reason_from,
    receivers_of,
)
from switchboard.server.web.page import WebForm, WebPage
from switchboard.server.web.reading import cut_list
from switchboard.server.web.visit import Visit

_ROWS: Final = 50
_OUTCOMES: Final = {
    "forgotten": "It is forgotten, with all that said the same, and is not learned again.",
    "undone": "What the run had found counts as never said.",
    "restored": "The butler reads these messages again, instead of the summary.",
}


async def show_memory(visit: Visit, entered: Entered = NOTHING_ENTERED) -> Response:
    """Whose facts which butler has, and how many."""
    counted = await _service_of(visit).count_by_author()
    page = cut_list(counted, visit.asked("cursor"))
    return visit.page(
        "memory.html",
        entered.status,
        counted=page.rows,
        following=page.following,
        most=MOST_COUNTED,
        full=sum(one.facts for one in counted) >= MOST_COUNTED,
        names=await call_people(visit.services.runtime.database, {one.author for one in page.rows}),
        butlers=receivers_of(visit.services.runtime.rule_book.rules).butlers,
        entered=entered,
        outcome=_OUTCOMES.get(visit.asked("done") or ""),
    )


async def show_facts(visit: Visit, fields: Fields) -> Response:
    """What one butler has learned from one person, or all with some words; newest first."""
    system_id, author = _choice_in(fields, "system_id"), _choice_in(fields, "author")
    words, cursor = _choice_in(fields, "words"), _choice_in(fields, "cursor")
    if words is None:
        wanted = FactFilter(system_id, author)
        found, following = await _service_of(visit).facts(visit.caller, wanted, limit=_ROWS, cursor=cursor)
    else:
        found, following = await _service_of(visit).search(visit.caller, words, system_id, limit=_ROWS, cursor=cursor)
    keys = {one.author for one in found} | ({author} if author else set())
    return visit.page(
        "memory_facts.html",
        facts=found,
        following=following,
        asked={"system_id": system_id, "author": author, "words": words},
        names=await call_people(visit.services.runtime.database, keys),
    )


async def show_fact(visit: Visit, _: Fields) -> Response:
    """One, with the messages that it was taken from, what it replaced, and what became of it."""
    return await _show_fact(visit, NOTHING_ENTERED)


async def _show_fact(visit: Visit, entered: Entered, outcome: str | None = None) -> Response:
    service = _service_of(visit)
    fact, standing, sources = await service.fact(visit.caller, visit.path_id("fact_id"))
    others = {*standing.contradicts, *standing.replaces, standing.superseded_by, standing.confirms} - {None}
    return visit.page(
        "memory_fact.html",
        entered.status,
        fact=fact,
        standing=standing,
        others=await service.find_facts(visit.caller, cast("set[UUID]", others)),
        sources=sources,
        names=await call_people(visit.services.runtime.database, {fact.author}),
        entered=entered,
        outcome=outcome,
    )


async def share_fact(visit: Visit, fields: Fields) -> Response:
    """Everyone who talks to the butler may hear it."""
    await _service_of(visit).share(visit.caller, visit.path_id("fact_id"), reason_from(fields))
    return await _show_fact(visit, NOTHING_ENTERED, "Everyone who talks to the butler may hear it now.")


async def undo_fact(visit: Visit, fields: Fields) -> Response:
    """It counts as never said."""
    await _service_of(visit).undo(visit.caller, visit.path_id("fact_id"), reason_from(fields))
    return await _show_fact(visit, NOTHING_ENTERED, "It counts as never said; what it replaced holds again.")


async def forget_fact(visit: Visit, fields: Fields) -> Response:
    """For good."""
    await _service_of(visit).forget(visit.caller, visit.path_id("fact_id"), reason_from(fields))
    return visit.go("/memory?done=forgotten")


async def show_entities(visit: Visit, fields: Fields) -> Response:
    """The people and things that facts of a butler are about, with other names."""
    system_id = fields.get("system_id", "")
    found = await _service_of(visit).entities(visit.caller, SystemId(system_id), fields.get("words", "").strip())
    return visit.page("memory_entities.html", entities=found[:_ROWS], more=len(found) - _ROWS, system_id=system_id)


async def show_runs(visit: Visit, fields: Fields) -> Response:
    """When a model looked for facts, and what it found."""
    cursor = _choice_in(fields, "cursor")
    runs, following = await _service_of(visit).runs(visit.caller, None, limit=_ROWS, cursor=cursor)
    names = await call_people(visit.services.runtime.database, {one.person for one in runs if one.person})
    return visit.page("memory_runs.html", runs=runs, following=following, names=names, entered=NOTHING_ENTERED)


async def undo_run(visit: Visit, fields: Fields) -> Response:
    """All that it has found counts as never said."""
    await _service_of(visit).undo_run(visit.caller, visit.path_id("run"), reason_from(fields))
    return visit.go("/memory?done=undone")


async def show_summaries(visit: Visit, fields: Fields) -> Response:
    """What stands for the oldest parts of long conversations."""
    cursor = _choice_in(fields, "cursor")
    found, following = await _service_of(visit).summaries(visit.caller, None, limit=_ROWS, cursor=cursor)
    return visit.page("memory_summaries.html", summaries=found, following=following, entered=NOTHING_ENTERED)


async def restore_summary(visit: Visit, fields: Fields) -> Response:
    """The butler reads the messages themselves again."""
    await _service_of(visit).restore(visit.caller, visit.path_id("summary_id"), reason_from(fields))
    return visit.go("/memory?done=restored")


async def add_fact(visit: Visit, fields: Fields) -> Response:
    """As if its author had said it alone with the butler."""
    text, author = line_from(fields, "text", "the fact"), line_from(fields, "author", "whose it is")
    stated = StatedByOperator(SystemId(fields.get("system_id", "")), author, text, shared=fields.get("shared") == "on")
    added = await _service_of(visit).add(visit.caller, stated)
    return await show_facts(visit, {"system_id": added.system_id, "author": added.author})


def _service_of(visit: Visit) -> MemoryService:
    return visit.services.of(MEMORY_SERVICE)


def _choice_in(fields: Fields, name: str) -> str | None:
    return fields.get(name, "").strip() or None


_FACT: Final = "/memory/facts/{fact_id:uuid}"
PAGES: Final = (
    WebPage("/memory", show_memory, MEMORY, "Memory"),
    WebForm("/memory/facts", show_facts, MEMORY),
    WebForm("/memory/add", add_fact, MEMORY, if_refused=show_memory),
    WebForm(_FACT, show_fact, MEMORY),
    WebForm(f"{_FACT}/share", share_fact, MEMORY, if_refused=_show_fact),
    WebForm(f"{_FACT}/undo", undo_fact, MEMORY, if_refused=_show_fact),
    WebForm(f"{_FACT}/forget", forget_fact, MEMORY, if_refused=_show_fact),
    WebForm("/memory/entities", show_entities, MEMORY),
    WebForm("/memory/runs", show_runs, MEMORY),
    WebForm("/memory/runs/{run:uuid}/undo", undo_run, MEMORY),
    WebForm("/memory/summaries", show_summaries, MEMORY),
    WebForm("/memory/summaries/{summary_id:uuid}/restore", restore_summary, MEMORY),
)
