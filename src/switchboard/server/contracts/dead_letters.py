"""The shapes of bodies about dead letters, for reading requests and for the OpenAPI.

`dead_letters.py` and the MCP tools read requests with them; answers are the frozen values of
`app/dead_letters/service.py`. Next: `app/dead_letters/service.py`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, AwareDatetime, Field, model_validator

from switchboard.app.dead_letters.requests import BulkOutcome, DeadLetterDetail, Handled, Rerouted
from switchboard.core.routing.draft import MAX_FILTERS
from switchboard.domain.routing import DeadLetterCategory
from switchboard.domain.shown import ShownDeadLetter
from switchboard.server.contracts.base import Body, Cursor, Id, Line, ResponseBody, Word
from switchboard.server.contracts.rules import Filters, Priority, TargetBody

__all__ = ["BulkOutcome", "DeadLetterDetail", "Handled", "Rerouted"]


def _in_utc(moment: datetime) -> datetime:
    """The database stores UTC times: near the limits, a zone can push a time beyond them."""
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("in UTC this is not within the years 1 to 9999") from None


Moment = Annotated[AwareDatetime, Field(strict=False), AfterValidator(_in_utc)]


class DeadLetterRule(Body):
    """A rule to create along with a reroute. Filters given as keys alone take the values of the message."""

    name: Line
    filters: Filters | Annotated[list[Word], Field(max_length=MAX_FILTERS)] = Field(default_factory=list)
    priority: Priority = 0


class RerouteBody(Body):
    """Where the dead letter goes. Without `to` the rules decide, starting at its own team."""

    reason: Line
    to: TargetBody | None = None
    rule: DeadLetterRule | None = None

    @model_validator(mode="after")
    def _to_whom(self) -> RerouteBody:
        if self.rule is not None and self.to is None:
            raise ValueError("a rule needs a target: name a butler or a team in `to`")
        return self


class HandleBody(Body):
    """How the dead letter was settled."""

    resolution: Line


class DeadLetterFilterBody(Body):
    """All given conditions must hold. `since` is inclusive, `until` exclusive."""

    team_id: Word | None = None
    status: Literal["pending", "handled"] | None = None
    category: DeadLetterCategory | None = None
    channel: Word | None = None
    system_id: Word | None = None
    since: Moment | None = None
    until: Moment | None = None
    ids: Annotated[list[Id], Field(min_length=1, max_length=500)] | None = None


class BulkBody(Body):
    """Reroute or handle all pending dead letters that match a filter, oldest first.

    A reroute takes `reason`, closing takes `resolution`.
    """

    filter: DeadLetterFilterBody
    action: Literal["reroute", "handle"]
    reason: Line | None = None
    resolution: Line | None = None
    to: TargetBody | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    cursor: Cursor | None = None
    dry_run: bool = False

    @model_validator(mode="after")
    def _said(self) -> BulkBody:
        if (self.reason is None) == (self.resolution is None):
            raise ValueError("give a reason to reroute, or a resolution to handle")
        if self.action == "handle" and self.to is not None:
            raise ValueError("only a reroute has a target")
        return self


class DeadLetterPage(ResponseBody):
    """Newest first. `next_cursor` is null on the last page."""

    dead_letters: list[ShownDeadLetter]
    next_cursor: str | None
