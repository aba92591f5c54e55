"""The port of chores: who does which now, in the whole fleet.

`modules/kernel/chores.py` takes chores from a `ChoreBook` and runs them; the store keeps it. What a chore is, is said
in `module.py`. Next: `module_store.py`, whose stores a lease fences.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from switchboard.ports.module_store import ModuleStore


class ChoreKey(Struct, frozen=True):
    """Which chore it is: its name, for an account of a module."""

    module: str
    account: str
    name: str


class ChoreLease(Struct, frozen=True):
    """The right to do a chore now. It is over when another worker has taken the chore, or when it is given back."""

    key: ChoreKey
    epoch: int


class TakenChores(Struct, frozen=True):
    """`wait_s`: seconds until another one of those asked for may be due."""

    leases: Sequence[ChoreLease]
    wait_s: float


class ChoreStores(Protocol):
    """Makes the store of a module that fits a lease."""

    def for_chore(self, lease: ChoreLease) -> ModuleStore:
        """A store whose transactions raise `TakenOver`, and change nothing, once the lease is over."""
        ...


class ChoreBook(Protocol):
    """Says which chores are due. All of it raises `Unavailable`."""

    lease_s: float
    """Seconds after which another worker may take a chore that was not renewed."""

    async def plan(self, key: ChoreKey, every: float) -> None:
        """A chore is to be done every so many seconds, and the first time now; a chore that is known is changed."""
        ...

    async def take(self, keys: Sequence[ChoreKey], most: int) -> TakenChores:
        """Take what is due of these, at most so many; nobody else gets them while their lease is renewed."""
        ...

    async def renew(self, lease: ChoreLease) -> bool:
        """Whether it is still ours; then for another `lease_s` seconds."""
        ...

    async def finish(self, lease: ChoreLease, error: str | None) -> None:
        """Give back a chore that has ended, well or with an error; it is due again after a while."""
        ...

    async def release(self, lease: ChoreLease) -> None:
        """Give back a chore that was not done: it is due at once."""
        ...
