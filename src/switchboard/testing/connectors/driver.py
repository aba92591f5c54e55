"""The part that a channel's test supplies: the other side of its platform. Next: `checks.py`.

A class with the methods of several of these protocols is checked against the laws of all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from msgspec import Struct

from switchboard.connectors.kernel.accounts import Configured

Named = tuple[str, bytes]
"""A file: its name and its content."""


class Shown(Struct, frozen=True):
    """A part as the platform shows it: its thread and its text."""

    thread: str
    text: str


class Driver(Protocol):
    """The other side of a platform. Each check gets a fresh one."""

    @property
    def configured(self) -> Configured:
        """The account under test; its handling has `start` "all", and its limits require no pauses."""

    @property
    def longest(self) -> int:
        """The maximum number of characters in a person's message."""

    async def says(self, thread: str, text: str) -> None:
        """A person writes to the account, in the direct chat with this thread."""

    async def shown(self) -> Sequence[Shown]:
        """The parts sent by the account, oldest first; the thread is that of `says`."""


class Received(Struct, frozen=True):
    """A message of the account as a person received it: its text, and its files by name."""

    text: str
    files: tuple[Named, ...]


class SentFileDriver(Driver, Protocol):
    """The other side of a platform that accepts files, and can mark a file as a possible repeat."""

    async def received(self) -> Sequence[Received]:
        """The messages sent by the account, oldest first."""


class LateDriver(Driver, Protocol):
    """The other side of a platform that takes a message, and may report later that it was not delivered."""

    async def fails_later(self, *, again: bool = False) -> None:
        """Report this of the last part that the account has sent; `again`: the same report, as it was."""


class CaptionDriver(SentFileDriver, Protocol):
    """The other side of a platform on which no text can go with files of some kinds."""

    @property
    def captionless(self) -> str:
        """The name of such a file, whose extension tells its kind."""


class KeyDriver(Driver, Protocol):
    """The other side of a platform that is given a key with each part."""

    def puts_off(self, times: int, seconds: float) -> None:
        """Refuse this many of the next parts, which must be sent after these seconds."""

    def given_keys(self) -> Sequence[str]:
        """The keys of all parts that arrived, also of those that were refused, oldest first."""


class LeavingDriver(Driver, Protocol):
    """The other side of a platform that can be unreachable."""

    def away(self) -> AbstractAsyncContextManager[None]:
        """Within this block nobody answers; people cannot write either."""


class PushDriver(Driver, Protocol):
    """The other side of a platform that pushes events over a socket, and repeats those that are not answered."""

    def acknowledged(self) -> int:
        """The number of events that the account has answered; each counts once."""

    def pushes_again(self) -> None:
        """Push the last event once more, over the present socket, as if its answer had got lost."""

    def drops_socket(self) -> None:
        """Cut the present socket, if there is one; another can be opened at once."""


class DeafDriver(Driver, Protocol):
    """The other side of a platform whose sockets can stay open without delivering anything."""

    def goes_deaf(self) -> None:
        """Deliver nothing more over the present socket, which stays open and answers pings; others deliver."""


class GapDriver(Driver, Protocol):
    """The other side of a platform that remembers for a while what it could not deliver."""

    @property
    def window_s(self) -> float:
        """For how many seconds; later, what was missed must be fetched in another way."""

    def cuts(self, seconds: float) -> None:
        """Cut the connection, and let none be opened for so long. People can write meanwhile."""


class SignInDriver(Driver, Protocol):
    """The other side of a platform that permits only so many sign-ins a day."""

    def drops_socket(self) -> None:
        """Cut the present socket, if there is one; another needs a sign-in."""

    def leaves_sign_ins(self, left: int) -> None:
        """So many more sign-ins are permitted from now on."""

    def overdrawn(self) -> bool:
        """Whether the last of them was used."""


class BusyDriver(Driver, Protocol):
    """The other side of a platform that can ask clients to wait."""

    def puts_off(self, times: int, seconds: float) -> None:
        """Refuse this many of the next parts, which must be sent after these seconds."""


class QuotaDriver(Driver, Protocol):
    """The other side of a platform with a limit of the whole account."""

    def limits_account(self, seconds: float) -> None:
        """Refuse the next part, and all others for so many seconds after it, because of a limit of the account."""

    def hasty(self) -> int:
        """How many parts came later than a second after the first refusal, and before its time was over."""


class CountingDriver(Driver, Protocol):
    """The other side of a platform whose requests can be counted."""

    def asked(self) -> int:
        """The number of requests to the platform, except those that wait for updates."""


class RenewingDriver(Driver, Protocol):
    """The other side of a platform that can lose the numbering of its events."""

    async def starts_over(self) -> None:
        """Make cursors invalid or change their meaning; repeated events are the same, but in different bytes."""


class SharedDriver(Driver, Protocol):
    """The other side of a platform that shows messages of the account itself, and of programs."""

    async def own_says(self, thread: str, text: str) -> None:
        """The account itself writes in this thread from another device of its owner."""

    async def bot_says(self, thread: str, text: str) -> None:
        """A program writes to the account."""


class EditingDriver(Driver, Protocol):
    """The other side of a platform on which people edit what they wrote."""

    async def edits(self, thread: str, text: str) -> None:
        """The person of this thread changes the last message there."""


class SplittingDriver(Driver, Protocol):
    """The other side of a platform whose apps send a long text in several messages."""

    async def splits(self, thread: str, text: str) -> None:
        """A person writes a text of 10,000 characters without blanks, which arrives in pieces."""


class ThreadDriver(Driver, Protocol):
    """The other side of a platform on which many people read a place, and write in threads of it."""

    async def calls(self, place: str, thread: str, text: str) -> None:
        """A person addresses the account in this thread of this place, and begins it there if there is none.

        No two threads have the same name; `shown` tells of them as of direct chats.
        """


class ButtonDriver(Driver, Protocol):
    """The other side of a platform with buttons below messages."""

    async def buttons(self, thread: str) -> Sequence[str]:
        """The labels of the buttons below the last message of the account in this direct chat."""

    async def presses(self, thread: str, label: str) -> None:
        """The person of this thread presses the button with this label there."""


class DeletingDriver(Driver, Protocol):
    """The other side of a platform that reports deletions."""

    async def deletes(self, thread: str) -> None:
        """The person of this thread deletes the last message there."""


class FileDriver(Driver, Protocol):
    """The other side of a platform on which people send files."""

    async def brings(self, thread: str, text: str, data: bytes) -> None:
        """A person sends a file with this text to the account, in the direct chat with this thread."""


class LosingDriver(FileDriver, Protocol):
    """The other side of a platform from which files must be fetched."""

    def loses_files(self) -> None:
        """Make all files sent so far unavailable."""
