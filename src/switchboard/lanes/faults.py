"""Named points where a test can kill this process, as a power cut would.

`SWITCHBOARD_CRASH_AT=after_claim:3` kills with SIGKILL when `after_claim` is passed for the third time. Unset, as
always in production, a point costs one comparison.
"""

from __future__ import annotations

import itertools
import os
import signal
from typing import Final, Literal

Point = Literal[
    "after_receive",
    "before_commit",
    "after_commit",
    "after_claim",
    "before_step",
    "before_journal",
    "between_steps",
    "before_complete",
    "after_complete",
    "during_send",
    "before_route",
    "after_route",
    "after_expect",
    "before_park",
    "after_park",
    "after_resume",
    "after_wake",
]

_name, _, _count = os.environ.get("SWITCHBOARD_CRASH_AT", "").partition(":")
_armed: Final = _name
_due: Final = int(_count or 1)
_passes: Final = itertools.count(1)


def point(name: Point) -> None:
    """Pass a named point; does not return if this is the one to die at."""
    if name == _armed and next(_passes) == _due:
        os.kill(os.getpid(), signal.SIGKILL)
