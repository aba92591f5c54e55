"""Values of the port of engines: what a butler has learned from people, who said it, and who may hear it.

The store implements `Facts` over one function of PostgreSQL, `visible`. Next: `engine.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final, Protocol
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


class OwnWords(Struct, frozen=True):
    """Something that the person of a turn wrote themselves in its conversation."""

    text: str
    position: int = 0
    """That of the entry; 0: it is in the message being answered, whose entry has none yet."""


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

    async def search_history(self, wanted: WantedHistory) -> Sequence[SaidEntry]:
        """Messages that the person may see, with the replies, the best first. Raises `Unavailable`."""
        ...
