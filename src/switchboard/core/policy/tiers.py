"""How urgent a message is: the tier in which its lanes wait.

`store/messages/inbox.py` asks when a message is stored, `journey/classify.py` when it is decided later. Next:
`shares.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from switchboard.domain.envelope import Envelope, PolicyTier

LIVE_FOR: Final = timedelta(minutes=5)
"""A message that took longer to reach us was delayed somewhere, and gives way to those being written now."""

TIERS: Final[Mapping[PolicyTier, int]] = {"high_priority": 0, "interactive": 1, "default": 2, "passive": 3}
LATE: Final = 4
"""Of each endpoint only a few lanes of this tier run at once; see `claim_late`."""


def tier_of(envelope: Envelope, received_at: datetime) -> int:
    """0, the most urgent, to 4; `received_at`: when we got the message, with its zone."""
    asked, sent_at = envelope.control.policy_tier, envelope.event.sent_at
    if sent_at is None or asked == "high_priority" or received_at - sent_at <= LIVE_FOR:
        return TIERS[asked]
    return LATE
