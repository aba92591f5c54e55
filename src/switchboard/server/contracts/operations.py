"""The shapes of bodies about the installation: lanes, deliveries, tokens, the books, and health.

`server/http` reads and answers with them. Next: `app/messages/views.py`, `app/access.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from switchboard.app.access import Role, Token
from switchboard.domain.ledger import Balance
from switchboard.domain.shown import ShownDelivery
from switchboard.server.contracts.base import Body, ResponseBody, Word


class LaneBody(Body):
    """The lane to resume."""

    lane: Annotated[str, StringConstraints(min_length=1, max_length=4000, pattern=r"^[^\x00]+$")]


class NewToken(Body):
    """A token to create: a connector's has `channel` and `endpoint`, an agent's has `system_id`, others neither.

    `person`: the id of whom an agent calls tools for; without one, such calls are told nothing that is personal.
    """

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,99}$")]
    role: Role
    channel: Word | None = None
    endpoint: Word | None = None
    system_id: Word | None = None
    person: Word | None = None
    expires_in_days: Annotated[int, Field(ge=1, le=36_500)] | None = None

    @model_validator(mode="after")
    def _bound(self) -> NewToken:
        bound = {"channel": self.channel, "endpoint": self.endpoint, "system_id": self.system_id}
        wanted = {"connector": {"channel", "endpoint"}, "agent": {"system_id"}}.get(self.role, set())
        given = {name for name, value in bound.items() if value is not None}
        if given != wanted:
            needs = " and ".join(sorted(wanted)) or "no channel, endpoint or system_id"
            raise ValueError(f"a token with the role {self.role} needs {needs}, and nothing else")
        if self.person is not None and self.role != "agent":
            raise ValueError(f"a token with the role {self.role} acts for no person; leave person out")
        return self


class DeliveryPage(ResponseBody):
    """Newest message first. `next_cursor` is null on the last page."""

    deliveries: list[ShownDelivery]
    next_cursor: str | None


class LaneView(ResponseBody):
    """A queue that is not idle. `parked` counts items that wait for an event or a time while the others continue."""

    lane: str
    kind: str
    pool: str
    state: str
    waiting: int
    attempts: int
    owner: int | None
    epoch: int
    ready_at: datetime
    lease_until: datetime | None
    parked: int
    """Items that wait for an event or a time while the others continue."""


class LaneList(ResponseBody):
    """The longest waiting first. `next_cursor` is null on the last page."""

    lanes: list[LaneView]
    next_cursor: str | None


class Resumed(ResponseBody):
    """The lane continues with its next item."""

    lane: str
    state: Literal["resumed"]


class Released(ResponseBody):
    """The account is free."""

    status: Literal["released"]


@dataclass(frozen=True, slots=True)
class TokenIssued(Token):
    """The only response that contains the secret (`token`)."""

    token: str = field(repr=False)


class TokenList(ResponseBody):
    """Oldest first. `next_cursor` is null on the last page."""

    tokens: list[Token]
    next_cursor: str | None


class Revoked(ResponseBody):
    """The token is no longer valid."""

    name: str
    status: Literal["revoked"]


@dataclass(frozen=True, slots=True)
class BooksView(Balance):
    """The balance per message and, in `targets`, per message and butler.

    `stale` is true if it is more than five minutes old.
    """

    balanced: bool
    targets: Balance
    problems: list[str]
    balanced_at: datetime | None
    stale: bool


class Health(ResponseBody):
    """Whether the database can be reached."""

    status: Literal["ok", "unavailable"]
    version: str
