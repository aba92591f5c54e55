"""What the embedded PostgreSQL takes: little for a house, more where several workers share a large machine.

Called by `app/database.py`; its settings go to `supervisor.py`. They count when a server is started.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct

Size = Literal["small", "large"]

_LITTLE_MEMORY: Final = 4 * 2**30
_SMALL: Final[Mapping[str, str]] = {
    "shared_buffers": "16MB",
    # By default a 32nd of the above, and a batch of 200 messages would write its log itself: a third slower at 1 MB.
    "wal_buffers": "4MB",
    # Processes that a small house never needs. A base backup does: replica, and two who send.
    "max_logical_replication_workers": "0",
    "max_parallel_workers_per_gather": "0",
    "max_parallel_maintenance_workers": "0",
    "max_parallel_workers": "0",
    "max_worker_processes": "0",
    "autovacuum_max_workers": "1",
    "wal_level": "replica",
    "max_wal_senders": "2",
}


class DatabaseSettings(Struct, frozen=True):
    """`[database]`: how much it takes; None: `small` for one worker process, or below 4 GB of memory."""

    size: Size | None = None


def size_for(workers: int) -> Size:
    """`small` for one worker process, and below 4 GB of memory."""
    return "small" if workers == 1 or _memory_of_machine() < _LITTLE_MEMORY else "large"


def settings_of(size: Size) -> Mapping[str, str]:
    """As PostgreSQL's settings, where they differ from those that all sizes have."""
    return _SMALL if size == "small" else {}


def _memory_of_machine() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
