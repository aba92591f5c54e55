"""Why a team's rules did or did not fire for a message.

Called by `app/explain.py` with a team's rules of the version in question. Rules and facts
enter, the rules in the order of looking leave, each with the first filter that failed; the last one fired, if any did.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from switchboard.core.routing.index import rank
from switchboard.domain.routing import Rule


@dataclass(frozen=True, slots=True)
class Considered:
    """A rule that was looked at. `failed_filter` is the key that did not match, None for the rule that fired."""

    rule: Rule
    failed_filter: str | None = None
    expected: str | None = None
    actual: str | None = None
    """The fact under that key; None when the message has none."""

    @property
    def fired(self) -> bool:
        """Whether this is the one that decided."""
        return self.failed_filter is None


def considered(rules: Iterable[Rule], facts: Mapping[str, str]) -> list[Considered]:
    """The active rules of one team in the order of looking, up to and with the first that matches.

    Catch-all rules come last, as in `decide`. Of each rule the channel is looked at first, then the filters by key.
    """
    looked_at: list[Considered] = []
    active = (rule for rule in rules if rule.active)
    for rule in sorted(active, key=lambda rule: (rule.catch_all, rank(rule))):
        looked_at.append(_look(rule, facts))
        if looked_at[-1].fired:
            break
    return looked_at


def _look(rule: Rule, facts: Mapping[str, str]) -> Considered:
    if rule.channel not in ("*", facts.get("channel")):
        return Considered(rule, "channel", rule.channel, facts.get("channel"))
    for key, expected in sorted(rule.filters.items()):
        if facts.get(key) != expected:
            return Considered(rule, key, expected, facts.get(key))
    return Considered(rule)
