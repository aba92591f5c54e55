"""Requests about dead letters, and their results.

`service.py` and `reroute.py` take and give these values; `server/contracts/dead_letters.py` has them as bodies. Next:
`store/messages/dead_letters.py`, for the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from msgspec import Struct

from switchboard.app.rules.service import WrittenRule
from switchboard.domain.routing import SystemId, Target
from switchboard.domain.shown import MadeDelivery, Notice, ShownDeadLetter
from switchboard.store.messages.dead_letters import DeadLetterFilter

FilterInput = str | int | list[str | int]


@dataclass(frozen=True, slots=True)
class DeadLetterDetail(ShownDeadLetter):
    """A dead letter with its envelope and original bytes, its notices, and where it was rerouted.

    A team that received only a part of the message sees that part, without the bytes.
    """

    payload: Any
    raw_base64: str
    notices: Sequence[Notice]
    rerouted_to: Sequence[MadeDelivery]


class RuleWish(Struct, frozen=True):
    """A rule of the dead letter's team, by which the next such message goes there by itself.

    `filters` may be keys alone: their values are those of the dead letter's message. There is one at least.
    """

    name: str
    filters: Mapping[str, FilterInput] | Sequence[str] = ()
    priority: int = 0


class Reroute(Struct, frozen=True):
    """Where a dead letter goes, and why. Without `to` the rules decide, from its own team downward."""

    reason: str
    to: Target | None = None
    rule: RuleWish | None = None


@dataclass(frozen=True, slots=True)
class Rerouted:
    """`already` is true if it was rerouted before; `rule` is then absent."""

    dead_letter: ShownDeadLetter
    decision_n: int
    deliveries: Sequence[MadeDelivery]
    already: bool
    rule: WrittenRule | None = None


@dataclass(frozen=True, slots=True)
class Handled:
    """`already` is true if the dead letter was closed before."""

    dead_letter: ShownDeadLetter
    already: bool


BulkAction = Literal["reroute", "handle"]


class Bulk(Struct, frozen=True):
    """The same for every pending dead letter of a filter, oldest first, at most `limit`; `after` is where to continue.

    `dry_run` does nothing, and says of each what would come of it.
    """

    wanted: DeadLetterFilter
    action: BulkAction
    reason: str
    to: Target | None = None
    limit: int = 100
    after: str | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """A dead letter that was left unchanged, and why."""

    dead_letter_id: UUID
    code: str
    error: str


@dataclass(frozen=True, slots=True)
class Simulated:
    """A dead letter that would be rerouted, and to whom."""

    dead_letter_id: UUID
    to: Sequence[SystemId]


@dataclass(frozen=True, slots=True)
class BulkOutcome:
    """`matched` counts the dead letters from `cursor` on. `would` lists where a dry run would send them.

    `next_cursor` is null when all have been processed.
    """

    matched: int
    done: int
    failed: Sequence[Failure]
    next_cursor: str | None
    dry_run: bool
    would: Sequence[Simulated] = ()
