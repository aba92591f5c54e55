"""Why a team's rules did or did not fire for a message.

Called by `app/messages/explain.py` with a team's rules of the version in question, as read from the database. In: rules
and facts. Out: the rules in evaluation order, each with the filters that failed (the last one fired, if any did); the
nearest misses; and the later rules that match too, each with the reason why it comes later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

from msgspec import Struct

from switchboard.core.channels.registry import CHANNELS
from switchboard.core.routing.facts import has
from switchboard.core.routing.index import rank, specificity
from switchboard.domain.routing import FilterValue, Rule
from switchboard.ports.channel import Implies

TieBreak = Literal["catch_all_last", "priority", "more_specific", "named_channel", "older", "id"]
"""What ranks a rule before another that matches the same message, in the order of comparison."""

_NEAREST: Final = 3
_BEATEN: Final = 50


class FailedFilter(Struct, frozen=True):
    """A filter that did not match; `key` is `channel` for the rule's channel. `actual` None: the message has none."""

    key: str
    expected: FilterValue
    actual: str | None


class Considered(Struct, frozen=True):
    """A rule that was evaluated, and all its filters that failed: first the channel, then by key."""

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
    def expected(self) -> FilterValue | None:
        """What the rule requires under that key: a value, or one of several."""
        return self.failures[0].expected if self.failures else None

    @property
    def actual(self) -> str | None:
        """The fact under that key; None when the message has none."""
        return self.failures[0].actual if self.failures else None


class Beaten(Struct, frozen=True):
    """A later rule that matches too, and what decided between it and the one that fired."""

    rule: Rule
    by: TieBreak


_Seen = tuple[bytes, Considered]
"""A rule that was evaluated, and its place in the evaluation order."""


class Survey:
    """Evaluates all rules of a team for one message, piece by piece; only those to be shown are kept."""

    def __init__(self, facts: Mapping[str, str], shown: int = 200, *, implies: Implies = CHANNELS.implies) -> None:
        self._facts = facts
        self._implies = implies
        self._shown = shown
        self._places: list[bytes] = []
        self._first: list[_Seen] = []
        self._misses: list[_Seen] = []
        self._matching: list[_Seen] = []

    def add(self, rules: Iterable[Rule]) -> None:
        """Evaluate some more of the team's rules; inactive ones are skipped, and copies, which decide nothing."""
        deciding = (rule for rule in rules if rule.active and not rule.copy)
        seen = [(_place(rule, self._implies), _look(rule, self._facts)) for rule in deciding]
        misses = (one for one in seen if not one[1].fired)
        matching = (one for one in seen if one[1].fired)
        self._places += [place for place, _ in seen]
        self._first = sorted([*self._first, *seen], key=_by_place)[: self._shown]
        self._misses = sorted([*self._misses, *misses], key=_by_nearness)[:_NEAREST]
        self._matching = sorted([*self._matching, *matching], key=_by_place)[: _BEATEN + 1]

    @property
    def considered(self) -> list[Considered]:
        """The first rules in evaluation order; the one that fired, if any did, is always the last.

        Catch-all rules come last, as in `decide`.
        """
        if not self._matching:
            return [look for _, look in self._first]
        fired_at, fired = self._matching[0]
        before = [look for place, look in self._first if place < fired_at]
        return [*before[: self._shown - 1], fired]

    @property
    def left_out(self) -> int:
        """How many more rules were evaluated, up to the one that fired, if any did."""
        looked_at = len(self._places)
        if self._matching:
            fired_at, _ = self._matching[0]
            looked_at = sum(place <= fired_at for place in self._places)
        return looked_at - len(self.considered)

    @property
    def nearest(self) -> list[Considered]:
        """The few that failed by the fewest filters, those of other channels last; then in evaluation order."""
        return [look for _, look in self._misses]

    @property
    def beaten(self) -> list[Beaten]:
        """The first rules that match but come after the one that fired, in evaluation order."""
        rules = [look.rule for _, look in self._matching]
        return [Beaten(rule, tie_break(rules[0], rule, self._implies)) for rule in rules[1:]]


def tie_break(first: Rule, later: Rule, implies: Implies = CHANNELS.implies) -> TieBreak:
    """What ranks one rule before the other, if both match; `first` is the one that is evaluated first."""
    if later.catch_all and not first.catch_all:
        return "catch_all_last"
    if first.priority != later.priority:
        return "priority"
    if specificity(first.filters, implies) != specificity(later.filters, implies):
        return "more_specific"
    if (first.channel == "*") != (later.channel == "*"):
        return "named_channel"
    return "older" if first.created_at != later.created_at else "id"


def why_first(first: Rule, later: Rule, implies: Implies) -> str:
    """The same as the end of a sentence: `first` comes first because …"""
    return {
        "catch_all_last": "catch-alls come last",
        "priority": f"its priority is {first.priority}, that of this rule {later.priority}",
        "more_specific": "it is more specific",
        "named_channel": "it is for a named channel",
        "older": "it is older",
        "id": "its id is lower",
    }[tie_break(first, later, implies)]


def in_order(rules: Iterable[Rule], implies: Implies = CHANNELS.implies) -> list[Rule]:
    """The active rules of one team in evaluation order."""
    return sorted((rule for rule in rules if rule.active), key=lambda rule: _place(rule, implies))


def _place(rule: Rule, implies: Implies) -> bytes:
    return bytes([rule.catch_all]) + rank(rule, implies)


def _by_place(seen: _Seen) -> bytes:
    return seen[0]


def _by_nearness(seen: _Seen) -> tuple[bool, int, bytes]:
    place, look = seen
    return look.failed_filter == "channel", look.failed, place


def _look(rule: Rule, facts: Mapping[str, str]) -> Considered:
    failures: list[FailedFilter] = []
    if rule.channel not in ("*", facts.get("channel")):
        failures.append(FailedFilter("channel", rule.channel, facts.get("channel")))
    for key, expected in sorted(rule.filters.items()):
        if not has(facts, key, expected):
            failures.append(FailedFilter(key, expected, facts.get(key)))
    return Considered(rule, tuple(failures))
