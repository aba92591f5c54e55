"""Operators' access to butlers' memory; every read of people's words, and every change, is audited.

HTTP calls `MemoryService` with the caller's `Principal`. In: ids; out: facts and summaries. Next:
`store/memory/facts.py`.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from msgspec import Struct

from switchboard.app.access import OPERATOR, Action, Principal
from switchboard.app.cursors import uuid_cursor
from switchboard.domain.errors import Conflict, NotFound
from switchboard.domain.shown import FactSource, ShownFact, ShownSummary
from switchboard.store.database import Database
from switchboard.store.memory import compaction, facts
from switchboard.store.people import audit

MEMORY: Final = Action("memory", OPERATOR)


class FactFilter(Struct, frozen=True):
    """Selects one butler and one author; None: all."""

    system_id: str | None = None
    author: str | None = None


class MemoryService:
    """For operators only: turns read by `StoredFacts` and `StoredHistory`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def facts(
        self, caller: Principal, wanted: FactFilter, *, limit: int, cursor: str | None
    ) -> tuple[list[ShownFact], str | None]:
        """A page, newest first, and the cursor of the next. Raises InvalidInput."""
        below = uuid_cursor(cursor)
        page = await facts.list_facts(self._database, wanted.system_id, wanted.author, below, limit)
        await self._record_in_audit(
            caller, "read", {"system_id": wanted.system_id, "author": wanted.author, "facts": len(page)}
        )
        return page, str(page[-1].fact_id) if len(page) == limit else None

    async def fact(self, caller: Principal, fact_id: UUID) -> tuple[ShownFact, list[FactSource]]:
        """A fact with its sources. Raises NotFound."""
        found = await facts.get_fact(self._database, fact_id)
        if found is None:
            raise _no_fact(fact_id)
        await self._record_in_audit(caller, "read", {"fact_id": str(fact_id)})
        return found

    async def share(self, caller: Principal, fact_id: UUID) -> None:
        """Make a fact visible to everyone who talks to the butler. Raises NotFound."""
        if not await facts.share_as_operator(self._database, fact_id):
            raise _no_fact(fact_id)
        await self._record_in_audit(caller, "shared", {"fact_id": str(fact_id)})

    async def forget(self, caller: Principal, fact_id: UUID) -> int:
        """Forget a fact and others that contain it; returns how many facts were removed. Raises NotFound."""
        gone = await facts.forget(self._database, fact_id)
        if not gone:
            raise _no_fact(fact_id)
        await self._record_in_audit(caller, "forgotten", {"fact_id": str(fact_id), "facts": gone})
        return gone

    async def summaries(
        self, caller: Principal, system_id: str | None, *, limit: int, cursor: str | None
    ) -> tuple[list[ShownSummary], str | None]:
        """A page, newest first, and the cursor of the next. Raises InvalidInput."""
        below = uuid_cursor(cursor)
        page = list(await compaction.list_summaries(self._database, system_id, below, limit))
        await self._record_in_audit(caller, "read", {"system_id": system_id, "summaries": len(page)})
        return page, str(page[-1].summary_id) if len(page) == limit else None

    async def restore(self, caller: Principal, summary_id: UUID) -> int:
        """Restore the entries of a summary, and of those after it; returns how many. Raises NotFound, Conflict."""
        restored = await compaction.restore(self._database, summary_id)
        if restored is None:
            raise NotFound(f"there is no summary {summary_id}")
        if not restored:
            raise Conflict(f"nothing of summary {summary_id} can be restored: that was done, or is over after 30 days")
        await self._record_in_audit(caller, "restored", {"summary_id": str(summary_id), "entries": restored})
        return restored

    async def _record_in_audit(self, caller: Principal, done: str, detail: dict[str, object]) -> None:
        await audit.append(self._database, caller.name, f"memory:{done}", detail)


def _no_fact(fact_id: UUID) -> NotFound:
    return NotFound(f"there is no fact {fact_id}: it was forgotten, or never existed")
