"""The limits of a command, which the kernel enforces from its first instruction on.

`watchdog.py` sets them while bwrap waits to start the command. They are needed even for what our watchdog thread
checks, because thousands of processes might leave it no processor time. Next: `cgroups.py`.
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
    """Limits for all processes of a command together, and for the workspace on disk in bytes."""

    totals: CommandLimits
    disk: int


def hold(pid: int, allowed: Allowed, parents: Parents | None) -> ControlGroup | None:
    """Limit a process and its future children: in a control group, if there are parents. Raises OSError.

    For a plain user the kernel counts the processes per user namespace, and each command has its own; for root it
    counts them only in control groups.
    """
    limits = {resource.RLIMIT_NPROC: allowed.totals.processes, resource.RLIMIT_FSIZE: allowed.disk}
    if parents is None or not parents.memory:
        limits[resource.RLIMIT_DATA] = allowed.totals.memory
    # Root may lack the right to limit another user's process, as in containers. With a group these are not needed.
    with suppress(PermissionError) if parents and parents.memory else nullcontext():
        for which, most in {**limits, resource.RLIMIT_CORE: 0}.items():
            _set_limit(pid, which, most)
    os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, 0) + _LESS_IMPORTANT)
    return parents.group(allowed.totals, pid) if parents else None


def _set_limit(pid: int, which: int, most: int) -> None:
    """Set a limit to `most`, or to our own limit if that is lower."""
    _, ours = resource.prlimit(pid, which)
    value = most if ours == resource.RLIM_INFINITY else min(most, ours)
    resource.prlimit(pid, which, (value, value))
