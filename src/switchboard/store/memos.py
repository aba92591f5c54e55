"""What the memo engine keeps: notes of a butler, found again by their words.

Called by `agents/memo.py`. A memo enters once, however often it is filed; the nearest earlier ones leave. Next:
`agents/memo.py`, which says whose memos may be shown to whom.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from switchboard.domain.message import Conversation, RequestId
from switchboard.domain.routing import SystemId
from switchboard.store.database import Database, query


@dataclass(frozen=True, slots=True)
class Memo:
    """A note of one butler. `person` wrote it (empty: nobody to whom it may be shown); `private`: nobody else heard."""

    memo_id: UUID
    conversation: Conversation
    system_id: SystemId
    request_id: RequestId
    person: str
    private: bool
    text: str


@dataclass(frozen=True, slots=True)
class Found:
    """An earlier memo: its first 1000 characters."""

    memo_id: UUID
    created_at: datetime
    text: str


async def file_memo(database: Database, memo: Memo) -> bool:
    """Keep a memo. False: it was kept before."""
    tag = await database.run(
        query("memos.file"),
        memo.conversation,
        memo.memo_id,
        memo.system_id,
        memo.request_id,
        memo.person,
        memo.private,
        memo.text,
    )
    return tag == "INSERT 0 1"


async def nearest_memos(database: Database, memo: Memo, limit: int) -> list[Found]:
    """Up to `limit` memos of the same butler about earlier messages that share words with this one, the nearest first.

    A private memo finds those of the same person; any other finds those that were said in this very conversation
    before others. Of very many, the latest 500 are compared.
    """
    person = memo.person if memo.private else None
    rows = await database.rows(
        query("memos.nearest"), memo.system_id, memo.request_id, person, memo.conversation, memo.text, limit
    )
    return [Found(row["memo_id"], row["created_at"], row["text"]) for row in rows]
