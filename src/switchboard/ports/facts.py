"""Values of the port of engines: what a butler has learned from people, who said it, and who may hear it.

The store implements `Facts` over one function of PostgreSQL, `visible`. Next: `engine.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final, Literal, Protocol
from uuid import UUID

from msgspec import Struct

from switchboard.domain.message import Conversation
from switchboard.domain.routing import SystemId
from switchboard.ports.history import SaidEntry, WantedHistory

MAX_FACT: Final = 300
"""Characters of a fact."""


class Reader(Struct, frozen=True):
    """For whom a turn reads: `core/people/readers.py` derives it from the message to answer, never from an argument."""

    system_id: SystemId
    conversation: Conversation
    person: str = ""
    """Who wrote the message; empty: nobody, so that only shared facts are read."""
    private: bool = False
    """Whether nobody else reads the message and its answer."""
    authentic: bool = True
    """Whether it is certain who wrote it; if not, nothing is read and nothing is kept."""


class Fact(Struct, frozen=True):
    """What `author` said about `subject`, in at most 300 characters."""

    fact_id: UUID
    author: str
    subject: str
    space: str
    """Who may hear it: `private:<author>`, `group:<conversation>` or `shared`."""
    text: str
    created_at: datetime
    own: bool = False
    """Whether the reader said it, under this handle or another one of theirs."""
    said_at: datetime | None = None
    """When it was last said; None: as it was kept."""
    predicate: str = "other"
    denied: bool = False
    """Whether it says that something is not so."""
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    """The time for which it was said."""
    contradicts: Sequence[UUID] = ()
    """Other facts that the reader may see, and that cannot be true if it is."""
    importance: float = 0.5
    """From 0 to 1."""


class EntityAlias(Struct, frozen=True):
    """Another name of an entity, given by an owner."""

    name: str
    alias: str
    since: datetime


class KnownEntity(Struct, frozen=True):
    """Whom or what facts are about. `also`: its other names; `facts`: those that the reader may see."""

    name: str
    also: tuple[EntityAlias, ...]
    facts: tuple[Fact, ...]


class OwnWords(Struct, frozen=True):
    """Something that the person of a turn wrote themselves in its conversation."""

    text: str
    position: int = 0
    """That of the entry; 0: it is in the message being answered, whose entry has none yet."""
    subject: str = "self"
    """Whom or what they are about, once they are kept."""
    predicate: str = "other"
    until: datetime | None = None
    """Until when they hold; None: until told otherwise."""
    said_by: Literal["subject", "guardian", "owner", "other"] = "other"
    """What the person is to the subject."""


class PersonalMemory(Protocol):
    """What the person of a turn has said, and what is known from them. The turn's message determines both."""

    @property
    def said(self) -> Sequence[OwnWords]:
        """The person's own words in this conversation, the latest message first."""
        ...

    async def is_learning(self) -> bool:
        """Whether what the person says here may be kept: people switch that off. Raises `Unavailable`."""
        ...

    async def is_forgotten(self, texts: Collection[str], position: int) -> bool:
        """Whether one of these texts, or the entry at a position as in `said`, was forgotten. Raises `Unavailable`."""
        ...

    async def find(self, words: str, limit: int) -> Sequence[Fact]:
        """The person's own facts that share words with these, the best first. Raises `Unavailable`."""
        ...

    async def known(self) -> Sequence[Fact]:
        """All facts that may be told where the turn answers, the newest first. Raises `Unavailable`."""
        ...

    async def find_names(self, authors: Collection[str]) -> Mapping[str, str]:
        """What linked persons are called, by author. Raises `Unavailable`."""
        ...

    async def read_context(self) -> str:
        """What a turn for the person would be told of these facts; empty for nothing. Raises `Unavailable`."""
        ...

    async def entities(self) -> Sequence[KnownEntity]:
        """Whom and what these facts are about. Raises `Unavailable`."""
        ...

    async def may_change(self, fact_ids: Collection[UUID]) -> Collection[UUID]:
        """Those of these facts that the person may have forgotten. Raises `Unavailable`.

        They said it, it is about them, or they own the butler.
        """
        ...

    async def forget(self, fact_ids: Collection[UUID]) -> int:
        """Forget those of these facts that the person may change, for good, with what says the same; how many are gone.

        Raises `Unavailable`.
        """
        ...

    async def link_entity(self, name: str, alias: str) -> bool:
        """Give an entity another name. False: it has that already. Raises `Unavailable`."""
        ...

    async def unlink_entity(self, name: str, alias: str) -> bool:
        """Take a name from an entity again. False: it does not have it. Raises `Unavailable`."""
        ...

    async def search_history(self, wanted: WantedHistory) -> Sequence[SaidEntry]:
        """Messages that the person may see, with the replies, the best first. Raises `Unavailable`."""
        ...
