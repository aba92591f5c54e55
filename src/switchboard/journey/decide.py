"""Decide: what the rules in force say of a message.

`accept.py` is given `DecideLeg` and asks it while it stores a batch, so that decision and message are one write. What
no rule decides will go to a `route:` lane, for a leg that classifies by a model; until then it is a dead letter.
"""

from __future__ import annotations

from switchboard.core.routing.decide import decide
from switchboard.core.routing.facts import facts
from switchboard.domain.envelope import Envelope
from switchboard.domain.routing import Decision, SystemId
from switchboard.journey.rulebook import RuleBook


class DecideLeg:
    """Who gets a message, and why; never empty."""

    def __init__(self, rule_book: RuleBook) -> None:
        self._rule_book = rule_book

    def __call__(self, envelope: Envelope, author: SystemId | None = None) -> Decision:
        """`author` wrote what this one replies to, and gets it, unless the connector pins another."""
        named = envelope.control.pinned_target
        pinned = author if named is None else SystemId(named)
        return decide(self._rule_book.rules.index, facts(envelope), pinned)
