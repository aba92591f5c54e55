"""Values of the port of engines: what a butler has learned from people, with who said it and who may hear it again.

The store implements `Facts` over one function of PostgreSQL, `visible`. Next: `engine.py`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final
from uuid import UUID

from msgspec import Struct

from switchboard.domain.message import Conversation
from switchboard.domain.routing import SystemId

MAX_FACT: Final = 300
"""Characters of a fact."""


class Reader(Struct, frozen=True):
    """For whom a turn reads, as the message says that it answers: `core/readers.py` makes it, never an argument."""

    system_id: SystemId
    conversation: Conversation
    person: str = ""
    """Who wrote the message; empty: nobody, so that only what is shared is read."""
    private: bool = False
    """Whether nobody else reads the message and its answer."""
    authentic: bool = True
    """Whether it is sure who wrote it; else nothing is read, and nothing is kept."""


class Fact(Struct, frozen=True):
    """What `author` said about `subject`, in at most 300 characters."""

    fact_id: UUID
    author: str
    subject: str
    space: str
    """Who may hear it: `private:<author>`, `group:<conversation>` or `shared`."""
    text: str
    created_at: datetime
