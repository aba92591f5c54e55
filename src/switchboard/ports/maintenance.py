"""What workers do from time to time, besides their lanes.

Tasks lie beside what they keep in order. `app/ops/periodic.py` lists them, `lanes/worker.py` runs those that are due.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec import Struct


class MaintenanceTask(Struct, frozen=True):
    """A task that one of all workers runs every `every` seconds."""

    name: str
    every: float
    run: Callable[[], Awaitable[object]]
    local: bool = False
    """Every worker runs it, as it is about what is on its own machine."""
