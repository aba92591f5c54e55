"""The shapes of answers about the memory of butlers, for the OpenAPI. Next: `app/memory/service.py`."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from pydantic import Field

from switchboard.domain.shown import FactSource, ShownEntity, ShownFact, ShownRun, ShownStanding, ShownSummary
from switchboard.server.contracts.base import Body, Line, ResponseBody, SystemRef, Word, Words


class FactPage(ResponseBody):
    """Newest first. `next_cursor` is null on the last page."""

    facts: list[ShownFact]
    next_cursor: str | None


class FactDetail(ResponseBody):
    """A fact with what became of it, and the messages that it was taken from."""

    fact: ShownFact
    standing: ShownStanding
    sources: list[FactSource]


class FactBody(Body):
    """What an operator adds. `author`: a person's id, or an author as lists name them; `subject`: `self` is the author.

    `predicate`: what it says of the subject, such as lives_at.
    """

    system_id: SystemRef
    author: Word
    text: Words
    subject: Annotated[Line, Field(max_length=200)] = "self"
    predicate: Word = "other"
    shared: bool = False


class AddedFact(ResponseBody):
    """The fact that was added, or was there with the same words."""

    fact: ShownFact


class SharedFact(ResponseBody):
    """A fact that is now visible to everyone who talks to its butler."""

    fact_id: UUID


class UndoneFact(ResponseBody):
    """A fact that counts as never said from now on."""

    fact_id: UUID


class RunPage(ResponseBody):
    """Newest first. `next_cursor` is null on the last page."""

    runs: list[ShownRun]
    next_cursor: str | None


class UndoneRun(ResponseBody):
    """`facts` counts those that count as never said from now on."""

    run: UUID
    facts: int


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
