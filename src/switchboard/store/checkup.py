"""What PostgreSQL says of itself: version, durability, clock, schema, who else is connected.

Called by `app/doctor.py` and `app/backup.py`; reads only. Next: whoever mends what it finds.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from switchboard.store.database import Database, query


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The server as it runs; the three settings as PostgreSQL writes them, `now` by its clock."""

    major: int
    version: str
    fsync: str
    synchronous_commit: str
    full_page_writes: str
    now: datetime


@dataclass(frozen=True, slots=True)
class SchemaFacts:
    """How many tables there are in our schema, and the number of the newest migration (0: none)."""

    tables: int
    migration: int


async def server_facts(database: Database) -> ServerFacts:
    """What the server is."""
    [row] = await database.rows(query("checkup.server"))
    return ServerFacts(**{name: row[name] for name in ServerFacts.__slots__})


async def schema_facts(database: Database) -> SchemaFacts:
    """What is in our schema."""
    [row] = await database.rows(query("checkup.schema"))
    migration = int(await database.value(query("checkup.migration"))) if row["migrated"] else 0
    return SchemaFacts(row["tables"], migration)


async def others_connected(database: Database) -> int:
    """How many other connections of Switchboard there are; exact when `database` has a pool of one."""
    return int(await database.value(query("checkup.others")))
