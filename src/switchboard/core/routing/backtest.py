"""The effect of a rule change: the same messages decided before and after.

Called by `app/rules/replays.py` for the blast radius of an edit and for a backtest, chunk by chunk as
`store/rules/replay.py` reads them. In: two indexes and the facts of stored messages; out: the messages that would be
routed differently.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from msgspec import Struct

from switchboard.core.routing.decide import simulate
from switchboard.core.routing.facts import has
from switchboard.core.routing.index import RoutingIndex
from switchboard.domain.routing import DeadLetterCategory, Decision, Filters, RuleChange, SystemId, TeamId

NEWEST: Final = 20_000
"""Messages that are examined by default."""
EXAMPLES: Final = 10
"""How many messages that would be routed differently are shown; all are counted."""
_FEW: Final = 16
"""Up to this many changes, checking each is faster than deciding twice."""


class Case(Struct, frozen=True):
    """A stored message as rules see it. `pinned` is the butler that it replied to, if any."""

    request_id: UUID
    facts: Mapping[str, str]
    pinned: SystemId | None = None


@dataclass(frozen=True, slots=True, order=True)
class DeadEnd:
    """A team in which no butler gets the message, and why."""

    team: TeamId
    category: DeadLetterCategory


@dataclass(frozen=True, slots=True)
class Receivers:
    """The butlers that get a message.

    Also the teams in which it becomes a dead letter, and those in which a model would be asked.
    """

    # Each once and sorted, so that equal values mean the same receivers; made by `of` or `receivers`.
    butlers: tuple[SystemId, ...] = ()
    dead_letters: tuple[DeadEnd, ...] = ()
    models: tuple[TeamId, ...] = ()

    @classmethod
    def of(
        cls, butlers: Iterable[SystemId], dead_letters: Iterable[DeadEnd] = (), models: Iterable[TeamId] = ()
    ) -> Receivers:
        """From lists in any order."""
        return cls(tuple(sorted(set(butlers))), tuple(sorted(set(dead_letters))), tuple(sorted(set(models))))


@dataclass(frozen=True, slots=True)
class Difference:
    """A stored message that the proposed rules would route differently."""

    request_id: UUID
    before: Receivers
    after: Receivers


@dataclass(frozen=True, slots=True)
class Blast:
    """The effect of a change on stored messages. `complete` is false if not all messages could be examined."""

    looked_at: int
    changed: int
    examples: tuple[Difference, ...]
    complete: bool


def receivers(decision: Decision) -> Receivers:
    """Who gets the message by this decision, and where it dies."""
    return Receivers.of(
        (one.system_id for one in decision.chosen),
        (DeadEnd(one.team_id, one.category) for one in decision.unrouted),
        (step.team_id for step in decision.trail if step.reason == "undecided"),
    )


def compare(
    before: RoutingIndex, after: RoutingIndex, cases: Iterable[Case], changes: Sequence[RuleChange] = ()
) -> list[Difference]:
    """The messages that would be routed differently, in the order of `cases`.

    `changes`, if given, are all differences between the two indexes: a message that matches none of these rules is not
    decided at all, because it goes where it went before. With few changes that is many times faster.
    """
    differences: list[Difference] = []
    asking = before.classifying or after.classifying
    for case in _affected_cases(cases, changes) if 0 < len(changes) <= _FEW else cases:
        then = simulate(before, case.facts, case.pinned)
        now = simulate(after, case.facts, case.pinned)
        # Nearly always both are identical; only decisions that may differ are worth sorting.
        if then.chosen != now.chosen or then.unrouted != now.unrouted or asking:
            difference = Difference(case.request_id, receivers(then), receivers(now))
            if difference.before != difference.after:
                differences.append(difference)
    return differences


def _affected_cases(cases: Iterable[Case], changes: Iterable[RuleChange]) -> Iterator[Case]:
    """The messages matched by an active rule that exists only before or only after the change."""
    sides = (side for change in changes for side in (change.before, change.after))
    asked = [(side.channel, side.filters) for side in sides if side is not None and side.active]
    for case in cases:
        channels = "*", case.facts.get("channel")
        if any(channel in channels and _meets(case.facts, filters) for channel, filters in asked):
            yield case


def _meets(facts: Mapping[str, str], filters: Filters) -> bool:
    return all(has(facts, key, wanted) for key, wanted in filters.items())


class BacktestTally:
    """A comparison in chunks, so that a day of messages need not be in memory at once."""

    def __init__(self, before: RoutingIndex, after: RoutingIndex, changes: Sequence[RuleChange] = ()) -> None:
        self._before = before
        self._after = after
        self._changes = changes
        self._examples: list[Difference] = []
        self.looked_at = 0
        self.changed = 0

    def add(self, cases: Collection[Case]) -> None:
        """Compare one more chunk; the examples are the first that differ."""
        differences = compare(self._before, self._after, cases, self._changes)
        self.looked_at += len(cases)
        self.changed += len(differences)
        self._examples += differences[: EXAMPLES - len(self._examples)]

    def blast(self, *, complete: bool = True) -> Blast:
        """The result so far; `complete`: there are no more messages."""
        return Blast(self.looked_at, self.changed, tuple(self._examples), complete)
