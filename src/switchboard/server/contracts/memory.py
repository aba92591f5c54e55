"""The shapes of answers about the memory of butlers, for the OpenAPI. Next: `app/memory/service.py`."""

from __future__ import annotations

from uuid import UUID

from switchboard.domain.shown import FactSource, ShownFact, ShownSummary
from switchboard.server.contracts.messages import ResponseBody


class FactPage(ResponseBody):
    """Newest first. `next_cursor` is null on the last page."""

    facts: list[ShownFact]
    next_cursor: str | None


class FactDetail(ResponseBody):
    """A fact with the words that it was taken from."""

    fact: ShownFact
    sources: list[FactSource]


class SharedFact(ResponseBody):
    """A fact that everybody who talks to its butler may hear now."""

    fact_id: UUID


class ForgottenFact(ResponseBody):
    """`forgotten` counts the fact and others that say it."""

    fact_id: UUID
    forgotten: int


class SummaryPage(ResponseBody):
    """Newest first. `next_cursor` is null on the last page."""

    summaries: list[ShownSummary]
    next_cursor: str | None


class RestoredSummary(ResponseBody):
    """`restored` counts the entries that were given back."""

    summary_id: UUID
    restored: int
