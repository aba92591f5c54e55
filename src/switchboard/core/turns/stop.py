"""The command with which a person ends a turn that is running. Pure.

`journey/accept.py` acts on it as soon as it is stored, ahead of the lane. Next: `agents/model/talk.py`, which stops.
"""

from __future__ import annotations

from typing import Final

COMMAND: Final = "/stop"
STOPPED: Final = "Stopped."
"""The reply of a turn that was stopped before anything was written."""


def is_stop(text: str) -> bool:
    """Whether a message is the command, and nothing else."""
    return len(text) < 16 and text.strip().lower() == COMMAND
