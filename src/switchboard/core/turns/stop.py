"""The command with which a person ends a running turn. Pure.

`journey/accept.py` acts on it while it is stored, ahead of the lane; `core/routing/decide.py` gives it to no butler,
and `journey/stopping.py` answers it. Next: `agents/turns/talk.py`, which stops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from switchboard.core.turns.asking import is_answer
from switchboard.core.turns.command import command_text, has_command
from switchboard.domain.envelope import Envelope
from switchboard.ports.channel import Channel
from switchboard.ports.chat import is_own

COMMAND: Final = "/stop"
_LONGEST: Final = 80
"""Maximum characters of a text that may be the command, including the name of an account."""
STOPPED: Final = "I was stopped before I had an answer."
"""The reply of a turn that was stopped before anything was written."""


def is_stop(envelope: Envelope, channel: Channel) -> bool:
    """Whether a message is the command, written by a person, and certainly by its sender.

    Groups add the name of the account (`/stop@house_bot`): with another's name, the command is not for us.
    """
    text = command_text(envelope, channel.command_mark) if has_command(envelope, channel.command_mark) else ""
    if len(text) > _LONGEST:
        return False
    command, at, name = text.lower().partition("@")
    if command != COMMAND or (at and not is_own(envelope, name)):
        return False
    return is_answer(envelope, channel)


def answer(stopped: Sequence[bool]) -> str:
    """The answer to the command; `stopped`: for each running turn, whether its engine can stop in the middle."""
    if not stopped:
        return "Nothing is running."
    return "Stopped." if any(stopped) else "This cannot be stopped; there will be no further attempt."
