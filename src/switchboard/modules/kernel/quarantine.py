"""Modules that harm workers, and are left closed by all of them until an operator releases them.

The port is implemented over a table in `store`; `opened.py` asks and tells it. In: what happened in a worker; out: the
modules that no worker opens. Next: `holding.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Quarantine(Protocol):
    """Raises `Unavailable`."""

    async def quarantined(self) -> Mapping[str, str]:
        """Why each module in quarantine is there, by its name."""
        ...

    async def note_hold(self, module: str, seconds: float) -> bool:
        """A module has held the loop of a worker for so long. Whether it is in quarantine because of that."""
        ...


class NoQuarantine:
    """Where there is no database, such as in tests of modules: nothing is remembered."""

    async def quarantined(self) -> Mapping[str, str]:
        """As in the port."""
        return {}

    async def note_hold(self, module: str, seconds: float) -> bool:  # noqa: ARG002
        """As in the port."""
        return False
