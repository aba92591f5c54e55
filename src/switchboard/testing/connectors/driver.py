"""What a test of a channel supplies: the other side of its platform. Next: `checks.py`.

A class that has the methods of several of these protocols is asked to show the laws of all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from msgspec import Struct

from switchboard.connectors.kernel.accounts import Configured

Named = tuple[str, bytes]
"""A file: its name, and what is in it."""


class Shown(Struct, frozen=True):
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


class Received(Struct, frozen=True):
    """A message of the account as a person has it: its words, and its files by name."""

    text: str
    files: tuple[Named, ...]


class SentFileDriver(Driver, Protocol):
    """The other side of a platform that takes files, and that can say on a file that it may be a repeat."""

    async def received(self) -> Sequence[Received]:
        """What the account has sent, oldest first."""


class LeavingDriver(Driver, Protocol):
    """The other side of a platform that can be out of reach."""

    def away(self) -> AbstractAsyncContextManager[None]:
        """Nobody answers meanwhile; people cannot write either."""


class BusyDriver(Driver, Protocol):
    """The other side of a platform that can ask for patience."""

    def puts_off(self, times: int, seconds: float) -> None:
        """So many of the next parts are not taken, but may be sent after these seconds."""


class CountingDriver(Driver, Protocol):
    """The other side of a platform whose requests can be counted."""

    def asked(self) -> int:
        """How many requests the platform has had that did not wait for news."""


class RenewingDriver(Driver, Protocol):
    """The other side of a platform that can forget how it numbered what it gives."""

    async def starts_over(self) -> None:
        """Cursors mean something else, or nothing, from now on; what is given again is the same, in other bytes."""


class SharedDriver(Driver, Protocol):
    """The other side of a platform on which the account itself is seen to write, and programs do."""

    async def own_says(self, thread: str, text: str) -> None:
        """The account writes there by another device of its owner."""

    async def bot_says(self, thread: str, text: str) -> None:
        """A program writes to the account."""


class EditingDriver(Driver, Protocol):
    """The other side of a platform on which people edit what they wrote."""

    async def edits(self, thread: str, text: str) -> None:
        """The person of this thread changes the last message there."""


class DeletingDriver(Driver, Protocol):
    """The other side of a platform that tells what people delete."""

    async def deletes(self, thread: str) -> None:
        """The person of this thread deletes the last message there."""


class FileDriver(Driver, Protocol):
    """The other side of a platform on which people send files."""

    async def brings(self, thread: str, text: str, data: bytes) -> None:
        """A person sends a file with these words to the account, in a direct chat that is this thread."""


class LosingDriver(FileDriver, Protocol):
    """The other side of a platform from which files must be fetched."""

    def loses_files(self) -> None:
        """None of the files that were sent so far are available any more."""
