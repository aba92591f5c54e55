"""Pages of rows that may be long."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest
from msgspec import Struct

from switchboard.app import cursors
from switchboard.app.cursors import LongRows


class Row(Struct, frozen=True):
    """A row with a text."""

    row_id: UUID
    text: str


async def test_a_page_of_long_rows_ends_sooner_and_the_next_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 500 messages of a megabyte took a gigabyte of memory."""
    monkeypatch.setattr(cursors, "_AT_ONCE", 2)
    monkeypatch.setattr(cursors, "PAGE_CHARACTERS", 40)
    stored = [Row(UUID(int=n), "x" * 15 if n > 3 else "short") for n in range(9, 0, -1)]

    async def read(before: UUID | None, limit: int) -> Sequence[Row]:
        return [row for row in stored if before is None or row.row_id < before][:limit]

    rows = LongRows(read, lambda row: row.row_id, lambda row: len(row.text))
    page, cursor = await rows.page(None, 50)
    pages = [page]
    while cursor is not None:
        page, cursor = await rows.page(cursor, 50)
        pages.append(page)
    assert [len(page) for page in pages] == [4, 4, 1]
    assert [row for page in pages for row in page] == stored
