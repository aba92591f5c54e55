"""The storage of the memo engine: notes of a butler, found again by their words.

`app/wiring.py` passes it to engines. A memo is stored once, however often it is submitted. Next: `agents/memo.py`,
which decides whose memos may be shown.
"""

from __future__ import annotations

from msgspec import Struct

from switchboard.ports.memos import FoundMemo, Memo
from switchboard.store.database import Database, query, rows_as


class StoredMemos(Struct, frozen=True):
    """`Memos` in PostgreSQL."""

    database: Database

    async def file(self, memo: Memo) -> bool:
        """Keep a memo. False: it was already kept."""
        filed = await self.database.change_rows(
            query("memos.file"),
            memo.conversation,
            memo.memo_id,
            memo.system_id,
            memo.request_id,
            memo.person,
            memo.private,
            memo.text,
        )
        return filed == 1

    async def nearest(self, memo: Memo, limit: int) -> list[FoundMemo]:
        """As in the port; if there are very many, the latest 500 are compared."""
        person = memo.person if memo.private else None
        rows = await self.database.rows(
            query("memos.nearest"), memo.system_id, memo.request_id, person, memo.conversation, memo.text, limit
        )
        return rows_as(FoundMemo, rows)
