"""The slots of models, shared by all processes of an installation: the port.

A model runs as many sessions at once as its settings allow, in all workers together, and a pause that its provider
asks of one of them holds for the others. `dispatch.py` takes a slot before it asks and gives it back; the store keeps
them as leases, so that those of a worker that was killed come back by themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Lease:
    """A slot that was taken. It holds until it is freed or expires."""

    key: str


@dataclass(frozen=True, slots=True)
class Taken:
    """Why there is no slot: the others have all; or its provider wants a pause of `paused` seconds, or refuses our key.

    `refused` is what it said about the key; "": nothing.
    """

    paused: float = 0.0
    refused: str = ""

    @property
    def busy(self) -> bool:
        """Whether there may be a slot soon."""
        return not self.paused and not self.refused


class Slots(Protocol):
    """The slots of all models, and their cooldowns."""

    async def take(self, model: str, most: int) -> Lease | Taken:
        """One of `most` slots of a model, or why there is none."""

    async def free(self, lease: Lease) -> None:
        """Give it back."""

    async def pause(self, model: str, seconds: float, why: str, *, for_all: bool) -> None:
        """Tell the others that a cooldown has begun here. `for_all`: the provider asked for it, so it is theirs too."""

    async def refuse(self, model: str, why: str) -> None:
        """Pause a model for all that have the same key: its provider has refused it, and will refuse it again."""
