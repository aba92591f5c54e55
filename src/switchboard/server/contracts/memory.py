"""The shapes of answers about the memory of butlers, for the OpenAPI. Next: `app/memory/service.py`."""

from __future__ import annotations

from uuid import UUID

from switchboard.domain.shown import FactSource, ShownEntity, ShownFact, ShownStanding, ShownSummary
from switchboard.server.contracts.base import ResponseBody


class FactPage(ResponseBody):
    """Newest first. `next_cursor` is null on the last page."""

    facts: list[ShownFact]
    next_cursor: str | None


class FactDetail(ResponseBody):
    """A fact with what became of it, and the messages that it was taken from."""

    fact: ShownFact
    standing: ShownStanding
    sources: list[FactSource]


class SharedFact(ResponseBody):
    """A fact that is now visible to everyone who talks to its butler."""

    fact_id: UUID


class UndoneFact(ResponseBody):
    """A fact that counts as never said from now on."""

    fact_id: UUID


class EntityList(ResponseBody):
    """The best first, if words were given."""

    entities: list[ShownEntity]


class ForgottenFact(ResponseBody):
    """`forgotten` counts the fact and others that contain it."""

    fact_id: UUID
    forgotten: int


class SummaryPage(ResponseBody):
    """Newest first. `next_cursor` is null on the last page."""

    summaries: list[ShownSummary]
    next_cursor: str | None


class RestoredSummary(ResponseBody):
    """`restored` counts the restored entries."""

    summary_id: UUID
    restored: int
