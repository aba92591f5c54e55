"""The state of PostgreSQL: version, durability, clock, schema, other connections.

Called by `app/ops/doctor.py` and `app/ops/backup.py`; reads only.
"""

from __future__ import annotations

from msgspec import Struct

from switchboard.store.database import Database, query, rows_as


class ServerFacts(Struct, frozen=True):
    """The running server; the three settings as PostgreSQL writes them."""

    major: int
    version: str
    fsync: str
    synchronous_commit: str
    full_page_writes: str


class SchemaFacts(Struct, frozen=True):
    """The number of tables in our schema, and the number of the newest migration (0: none)."""

    tables: int
    migration: int


async def server_facts(database: Database) -> ServerFacts:
    """Facts about the server."""
    [found] = rows_as(ServerFacts, await database.rows(query("checkup.server")))
    return found


async def schema_facts(database: Database) -> SchemaFacts:
    """Facts about our schema."""
    [row] = await database.rows(query("checkup.schema"))
    migration = int(await database.value(query("checkup.migration"))) if row["migrated"] else 0
    return SchemaFacts(row["tables"], migration)


async def others_connected(database: Database) -> int:
    """The number of other connections of Switchboard; exact if `database` has a pool of one."""
    return int(await database.value(query("checkup.others")))
