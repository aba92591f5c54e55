"""Where the database has a word: for tests that everything of a person is gone, and nothing of anybody else."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import AsyncIterator

from switchboard.store.database import Database


async def find_in_tables(database: Database, word: str) -> dict[str, int]:
    """How many rows of each table have the word, in compressed bytes, too; only in those of bytes that are no words."""
    return dict(Counter([table async for table, text in read_rows(database) if word in text.lower()]))


async def read_rows(database: Database) -> AsyncIterator[tuple[str, str]]:
    """The table and the text of each row, but for tables of bytes that are no words."""
    tables = await database.rows(
        "select c.relname from pg_class c where c.relnamespace = 'switchboard'::regnamespace"
        " and c.relkind in ('r', 'p') and not c.relispartition"
        " and c.relname not in ('audit', 'blob', 'blob_piece', 'blob_upload')"
    )
    for table in (row["relname"] for row in tables):
        async with database.transaction() as one:
            await one.run("select facts_open(true)")
            rows = await one.rows(f'select to_jsonb(t)::text as text from "{table}" t')  # noqa: S608 - names of tables
        for row in rows:
            yield table, _unpack(row["text"])


def _unpack(text: str) -> str:
    """With the text of compressed bytes, which stand there in hexadecimal digits."""
    packed = (bytes.fromhex(found) for found in re.findall(r'"\\\\x(78[0-9a-f]+)"', text))
    return text + "".join(_decompress(one).decode(errors="replace") for one in packed)


def _decompress(packed: bytes) -> bytes:
    """Nothing of what only begins like something compressed, such as a hash."""
    try:
        return zlib.decompress(packed)
    except zlib.error:
        return b""
