"""Why a team's rules did or did not fire for a message.

Called by `app/explain.py` with a team's rules of the version in question. Rules and facts enter. Out: the rules in the
order of looking, each with the filters that failed (the last one fired, if any did); the nearest misses where none did;
and the later rules that match too, each with what put it behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import nsmallest
from typing import Literal

from switchboard.core.routing.index import rank
from switchboard.domain.routing import Rule

TieBreak = Literal["catch_all_last", "priority", "more_filters", "named_channel", "older", "id"]
"""What put a rule before another that matches the same message, in the order in which it is asked."""


@dataclass(frozen=True, slots=True)
class FailedFilter:
    """A filter that did not match; `key` is `channel` for the rule's channel. `actual` None: the message has none."""

    key: str
    expected: str
    actual: str | None


@dataclass(frozen=True, slots=True)
class Considered:
    """A rule that was looked at, and every filter of it that failed: first the channel, then by key."""

    rule: Rule
    failures: tuple[FailedFilter, ...] = ()

    @property
    def fired(self) -> bool:
        """Whether this is the one that decided."""
        return not self.failures

    @property
    def failed(self) -> int:
        """How many of its filters did not match."""
        return len(self.failures)

    @property
    def failed_filter(self) -> str | None:
        """The first key that did not match, None for the rule that fired."""
        return self.failures[0].key if self.failures else None

    @property
    def expected(self) -> str | None:
        """What the rule wants under that key."""
        return self.failures[0].expected if self.failures else None

    @property
    def actual(self) -> str | None:
        """The fact under that key; None when the message has none."""
        return self.failures[0].actual if self.failures else None


@dataclass(frozen=True, slots=True)
class Beaten:
    """A rule that matches too and came later, and what decided between it and the one that fired."""

    rule: Rule
    by: TieBreak


def considered(rules: Iterable[Rule], facts: Mapping[str, str]) -> list[Considered]:
    """The active rules of one team in the order of looking, up to and with the first that matches.

    Catch-all rules come last, as in `decide`.
    """
    looked_at: list[Considered] = []
    for rule in in_order(rules):
        looked_at.append(_look(rule, facts))
        if looked_at[-1].fired:
            break
    return looked_at


def nearest(rules: Iterable[Rule], facts: Mapping[str, str], limit: int = 3) -> list[Considered]:
    """The active rules of one team that missed by the fewest filters, of those the first in the order of looking."""
    looks = (_look(rule, facts) for rule in rules if rule.active)
    misses = (look for look in looks if not look.fired)
    return nsmallest(limit, misses, key=lambda look: (look.failed, _order(look.rule)))


def beaten(rules: Iterable[Rule], facts: Mapping[str, str]) -> list[Beaten]:
    """The active rules of one team that match but came after the one that fired, in the order of looking."""
    matching = in_order(rule for rule in rules if _look(rule, facts).fired)
    return [Beaten(rule, tie_break(matching[0], rule)) for rule in matching[1:]]


def tie_break(first: Rule, later: Rule) -> TieBreak:
    """What puts the one rule before the other, if both match; `first` is the one that is looked at first."""
    if later.catch_all and not first.catch_all:
        return "catch_all_last"
    if first.priority != later.priority:
        return "priority"
    if len(first.filters) != len(later.filters):
        return "more_filters"
    if (first.channel == "*") != (later.channel == "*"):
        return "named_channel"
    return "older" if first.created_at != later.created_at else "id"


def in_order(rules: Iterable[Rule]) -> list[Rule]:
    """The active rules of one team in the order of looking."""
    return sorted((rule for rule in rules if rule.active), key=_order)


def _order(rule: Rule) -> tuple[bool, bytes]:
    return rule.catch_all, rank(rule)


def _look(rule: Rule, facts: Mapping[str, str]) -> Considered:
    failures: list[FailedFilter] = []
    if rule.channel not in ("*", facts.get("channel")):
        failures.append(FailedFilter("channel", rule.channel, facts.get("channel")))
    for key, expected in sorted(rule.filters.items()):
        if facts.get(key) != expected:
            failures.append(FailedFilter(key, expected, facts.get(key)))
    return Considered(rule, tuple(failures))
