"""The command with which a person ends a turn that is running. Pure.

`journey/accept.py` acts on it while it is stored, ahead of the lane; `core/routing/decide.py` gives it to no butler,
and `journey/stopping.py` answers it. Next: `agents/model/talk.py`, which stops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from switchboard.core.routing.facts import facts
from switchboard.domain.envelope import Envelope
from switchboard.ports.channel import Channel

COMMAND: Final = "/stop"
STOPPED: Final = "I was stopped before I had an answer."
"""The reply of a turn that was stopped before anything was written."""


def is_stop(envelope: Envelope, channel: Channel) -> bool:
    """Whether a message is the command and nothing else, written by a person, and surely by its sender."""
    text = envelope.payload.normalized_text
    if len(text) > 16 or text.strip().lower() != COMMAND:
        return False
    return channel.automatic(envelope) is None and channel.authentic(facts(envelope, channel))


def answer(stopped: Sequence[bool]) -> str:
    """What the sender of the command is told; for each turn that ran, whether its engine can stop in the middle."""
    if not stopped:
        return "Nothing is running."
    return "Stopped." if any(stopped) else "This cannot be stopped; there will be no further attempt."
