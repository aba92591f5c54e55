"""What can be asked of dead letters, and what is answered.

`service.py` and `reroute.py` take and give these values; `server/contracts/dead_letters.py` has them as bodies. Next:
`store/dead_letters.py`, for the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from switchboard.app.rules.service import WrittenRule
from switchboard.domain.routing import SystemId, Target
from switchboard.domain.shown import MadeDelivery, Notice, ShownDeadLetter
from switchboard.store.dead_letters import DeadLetterFilter

FilterInput = str | int | list[str | int]


@dataclass(frozen=True, slots=True)
class DeadLetterDetail(ShownDeadLetter):
    """A dead letter with its message, who was told, and where it was sent on to.

    Whose team got a part of the message sees that part for its text, and no bytes.
    """

    payload: Any
    raw_base64: str
    notices: Sequence[Notice]
    rerouted_to: Sequence[MadeDelivery]


@dataclass(frozen=True, slots=True)
class RuleWish:
    """A rule of the dead letter's team, by which the next such message goes there by itself.

    `filters` may be keys alone: their values are those of the dead letter's message. There is one at least.
    """

    name: str
    filters: Mapping[str, FilterInput] | Sequence[str] = ()
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Reroute:
    """Where a dead letter goes, and why. Without `to` the rules decide, from its own team downward."""

    reason: str
    to: Target | None = None
    rule: RuleWish | None = None


@dataclass(frozen=True, slots=True)
class Rerouted:
    """`already`: it was rerouted before, and nothing was done now; then there is no `rule` either."""

    dead_letter: ShownDeadLetter
    decision_n: int
    deliveries: Sequence[MadeDelivery]
    already: bool
    rule: WrittenRule | None = None


@dataclass(frozen=True, slots=True)
class Handled:
    """`already`: it was already closed, and nothing was done now."""

    dead_letter: ShownDeadLetter
    already: bool


@dataclass(frozen=True, slots=True)
class Bulk:
    """The same for every pending dead letter of a filter, oldest first, at most `limit`; `after` is where to go on.

    `dry_run` does nothing, and says of each what would come of it.
    """

    wanted: DeadLetterFilter
    action: Literal["reroute", "handle"]
    reason: str
    to: Target | None = None
    limit: int = 100
    after: str | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """A dead letter that stays as it was, and why."""

    dead_letter_id: UUID
    code: str
    error: str


@dataclass(frozen=True, slots=True)
class Simulated:
    """A dead letter that would be sent on, and its receiver."""

    dead_letter_id: UUID
    to: Sequence[SystemId]


@dataclass(frozen=True, slots=True)
class BulkOutcome:
    """`matched` letters were there from this point on; `next_cursor` is None when all of them were looked at.

    `would` is what a dry run of a reroute says of each that does not fail.
    """

    matched: int
    done: int
    failed: Sequence[Failure]
    next_cursor: str | None
    dry_run: bool
    would: Sequence[Simulated] = ()
