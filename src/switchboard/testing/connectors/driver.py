"""What a test of a channel supplies: the other side of its platform. Next: `checks.py`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
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
        """The account under test; its handling has `start` "all", and its limits leave time for no pauses."""

    @property
    def longest(self) -> int:
        """The number of characters that a person can write in one message."""

    async def says(self, thread: str, text: str) -> None:
        """A person writes to the account, in a direct chat that is this thread."""

    async def shown(self) -> Sequence[Shown]:
        """What the account has sent, oldest first; the thread is that of `says`."""


class NetworkDriver(Driver, Protocol):
    """The other side of a platform that can be out of reach, and that can ask for patience."""

    def away(self) -> AbstractAsyncContextManager[None]:
        """Nobody answers meanwhile; people cannot write either."""

    def puts_off(self, times: int, seconds: float) -> None:
        """So many of the next parts are not taken, but may be sent after these seconds."""

    def asked(self) -> int:
        """How many requests the platform has had that did not wait for news."""


class EditingDriver(Driver, Protocol):
    """The other side of a platform on which people edit what they wrote."""

    async def edits(self, thread: str, text: str) -> None:
        """The person of this thread changes the last message there."""
