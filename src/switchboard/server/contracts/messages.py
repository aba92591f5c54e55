"""The shapes of bodies about messages, their replies, and who answers them.

Responses are the frozen values of `app/` and `domain/`, wrapped as described here. Next: `app/messages/`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field

from switchboard.app.messages.views import AgentView, MessageView, TeamView
from switchboard.domain.shown import Found
from switchboard.server.contracts.base import Body, ErrorBody, Line, ResponseBody, Word
from switchboard.server.contracts.rules import TargetBody


class ReasonBody(Body):
    """Why; it is recorded."""

    reason: Line | None = None


def reason_in(body: ReasonBody | None) -> str | None:
    """The reason, if one was given."""
    return None if body is None else body.reason


class RerouteMessageBody(Body):
    """Where a message goes, and why. Without `to` the rules decide, as they are now.

    `instead_of`: only in place of this butler; the others keep it. `again`: even if there is an answer already.
    """

    reason: Line
    to: TargetBody | None = None
    instead_of: Word | None = None
    again: bool = False


class FilesAnswer(ResponseBody):
    """Whether the files of a message are to be uploaded before it is submitted, and how large one may be.

    `reason`: why not. The message was accepted before (`known`), nobody will see it (`history`), or its sender must be
    let in first (`stranger`).
    """

    wanted: bool
    reason: Literal["known", "history", "stranger"] | None
    most_bytes: Annotated[int, Field(ge=0)]


class AcceptedBody(ResponseBody):
    """The message is stored. A duplicate has the id of the first message and no triage fields."""

    request_id: UUID
    status: Literal["accepted"]
    duplicate: bool
    triage_decision: Literal["routed", "dead_letter", "pending", "held", "history"] = Field(default="routed")
    triage_target: str = Field(default="")


class HookAnswer(ResponseBody):
    """The outcome of a webhook.

    `quarantined`: it could not be made into a message, and an operator can replay it; `ignored`: it is not for this
    server; `kept`: the connector of the account turns it into a message.
    """

    status: Literal["accepted", "duplicate", "quarantined", "ignored", "kept"]
    request_id: UUID | None
    quarantine_id: UUID | None


class BatchAnswer(ResponseBody):
    """A result or an error per envelope, in the order of the request."""

    results: list[AcceptedBody | ErrorBody]


class MessagePage(ResponseBody):
    """Newest first. `next_cursor` is null on the last page, `newer_cursor` on the first.

    `looked_until`: the time at which this page stopped looking, null if there was no need to stop.
    """

    messages: list[MessageView]
    next_cursor: str | None
    newer_cursor: str | None
    looked_until: datetime | None


class FoundIds(ResponseBody):
    """Messages, dead letters, replies, rules, contacts, and events in quarantine, whose ids begin as asked."""

    matches: list[Found]


class TeamList(ResponseBody):
    """By id, with the version of the rules. `next_cursor` is null on the last page."""

    version: int
    teams: list[TeamView]
    next_cursor: str | None


class AgentList(ResponseBody):
    """By id. `next_cursor` is null on the last page."""

    agents: list[AgentView]
    next_cursor: str | None
