"""What a test of a channel supplies: the other side of its platform. Next: `checks.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from switchboard.connectors.kernel.accounts import Configured


@dataclass(frozen=True, slots=True)
class Shown:
    """What the platform shows of a part: in which thread, and its words."""

    thread: str
    text: str


class Driver(Protocol):
    """The other side of a platform. Each check gets a fresh one."""

    @property
    def configured(self) -> Configured:
        """The account under test; its handling has `start` "all"."""

    async def says(self, thread: str, text: str) -> None:
        """A person writes to the account, in a direct chat that is this thread."""

    async def shown(self) -> Sequence[Shown]:
        """What the account has sent, oldest first; the thread is that of `says`."""
