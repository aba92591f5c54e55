"""What one process shall do: `run.py` reads it from the options, `running.py` does it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Parts:
    """What this process shall do."""

    server: bool = False
    worker: bool = False
    extra_workers: int = 0
    concurrency: int | None = None
    name: str = ""
    while_stdin: bool = False
    as_json: bool = False
