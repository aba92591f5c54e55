"""The limits of a command, which the kernel keeps from its first instruction on.

`watchdog.py` sets them while bwrap waits to start the command. What a thread of ours looks after, it looks after as
well: it needs time of a processor, which thousands of processes would not leave it. Next: `cgroups.py`.
"""

from __future__ import annotations

import os
import resource
from contextlib import nullcontext, suppress
from typing import Final

from msgspec import Struct

from switchboard.sandbox.cgroups import CommandLimits, ControlGroup, Parents

_LESS_IMPORTANT: Final = 5
"""Added to the niceness of commands."""


class Allowed(Struct, frozen=True):
    """What all processes of a command may take together, and bytes of the workspace on disk."""

    totals: CommandLimits
    disk: int


def hold(pid: int, allowed: Allowed, parents: Parents | None) -> ControlGroup | None:
    """Limit a process and all that it will start: in a control group, if there are parents. Raises OSError.

    Of a plain user the kernel counts the processes in each namespace of users, of which a command has one; of root it
    counts them in control groups only.
    """
    limits = {resource.RLIMIT_NPROC: allowed.totals.processes, resource.RLIMIT_FSIZE: allowed.disk}
    if parents is None or not parents.memory:
        limits[resource.RLIMIT_DATA] = allowed.totals.memory
    # Root may lack the right to limit another user's process, as in containers. The group does not need these limits.
    with suppress(PermissionError) if parents and parents.memory else nullcontext():
        for which, most in {**limits, resource.RLIMIT_CORE: 0}.items():
            _limit(pid, which, most)
    os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, 0) + _LESS_IMPORTANT)
    return parents.group(allowed.totals, pid) if parents else None


def _limit(pid: int, which: int, most: int) -> None:
    """Or less, where we have no more ourselves."""
    _, ours = resource.prlimit(pid, which)
    value = most if ours == resource.RLIM_INFINITY else min(most, ours)
    resource.prlimit(pid, which, (value, value))
