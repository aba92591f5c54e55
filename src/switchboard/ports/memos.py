"""The port of memos: short notes of a butler that are found again by their words.

`store/models/memos.py` implements it in PostgreSQL, `testing/engines.py` in memory. Next: `agents/memo.py`, which
decides whose memos may be shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from msgspec import Struct

from switchboard.domain.message import Conversation, RequestId
from switchboard.domain.routing import SystemId


class Memo(Struct, frozen=True):
    """A note of one butler. `person` wrote it (empty: it is shown to nobody); `private`: nobody else read it."""

    memo_id: UUID
    conversation: Conversation
    system_id: SystemId
    request_id: RequestId
    person: str
    private: bool
    text: str


class FoundMemo(Struct, frozen=True):
    """An earlier memo: its first 1000 characters."""

    memo_id: UUID
    created_at: datetime
    text: str


class Memos(Protocol):
    """Keeps memos; those of different butlers are separate."""

    async def file(self, memo: Memo) -> bool:
        """Store a memo. False: one with the same id was already stored. Raises `Unavailable`."""
        ...

    async def nearest(self, memo: Memo, limit: int) -> Sequence[FoundMemo]:
        """Up to `limit` memos of the same butler about earlier messages that share words with this one, nearest first.

        For a private memo only those of the same person; for any other, those of the same conversation come before
        others. Raises `Unavailable`.
        """
        ...
