"""What keeps people's words or files, so that all of one person's can be handed out and erased.

`app/people/personal.py` lists everything that keeps something, and asks each in turn. In: the senders that are the
person, as stored rows name them; out: what is kept, as JSON, or how much was erased. Next: `store/people/personal.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from msgspec import Struct

from switchboard.domain.json_values import JsonMapping
from switchboard.domain.routing import Owner


class PersonalScope(Struct, frozen=True):
    """Whose data is meant. Linking changes no stored row, so all names are given under which rows may be kept.

    `senders`: as channels named the person, at each endpoint. `keys`: the same as what is remembered names them, see
    `Reader.person`.
    """

    person_id: str
    senders: tuple[Owner, ...]
    keys: tuple[str, ...]


class KeepsPersonal(Protocol):
    """Something that keeps what a person said, or what was learned from it. Raises Unavailable."""

    @property
    def name(self) -> str:
        """What is kept, in a word or two, such as `facts`."""
        ...

    async def count(self, scope: PersonalScope) -> int:
        """How much `erase` would erase now."""
        ...

    def export(self, scope: PersonalScope) -> AsyncIterator[JsonMapping]:
        """Everything that is kept, oldest first, each as JSON."""
        ...

    async def erase(self, scope: PersonalScope) -> int:
        """Erase it, in batches that are a transaction each; returns how much. Again, it finds only what is new."""
        ...
