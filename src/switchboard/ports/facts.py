"""The port of facts: what a butler has learned from people, each with who said it and who may hear it again.

The store implements it in PostgreSQL over one function, `visible`. Who reads comes from the message that is
being answered, never from an argument of a tool. Next: `history.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol
from uuid import UUID

from switchboard.domain.message import Conversation
from switchboard.domain.routing import SystemId

MAX_FACT: Final = 300
"""Characters of a fact."""


@dataclass(frozen=True, slots=True)
class Reader:
    """For whom facts are read, as the message says that is being answered."""

    system_id: SystemId
    conversation: Conversation
    person: str = ""
    """Who wrote it, as `person_of` names people; empty: nobody, so that only what is shared is read."""
    private: bool = False
    """Whether nobody else reads the answer."""
    authenticated: bool = True
    """Whether it is sure who wrote it; else nothing is read, and nothing is learned."""


@dataclass(frozen=True, slots=True)
class Fact:
    """What `author` said about `subject`, in at most 300 characters."""

    fact_id: UUID
    author: str
    subject: str
    space: str
    """Who may hear it: `private:<author>`, `group:<conversation>` or `shared`."""
    text: str
    created_at: datetime


class Facts(Protocol):
    """The facts of all butlers; each reads its own."""

    async def visible(self, reader: Reader, limit: int = 100) -> Sequence[Fact]:
        """The latest facts that this reader may be told, the newest first. Raises `Unavailable`."""
        ...
