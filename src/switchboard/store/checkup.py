"""The state of PostgreSQL: version, durability, clock, schema, other connections.

Called by `checks/server.py`, and by `app/ops/` for `switchboard db`; reads only.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from msgspec import Struct

from switchboard.store.database import SCHEMA, Database, query, rows_as
from switchboard.store.migrate import LOCK


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


class OpenWork(Struct, frozen=True):
    """Of a restored database: messages that have not been answered yet, and replies that may have been sent."""

    messages: int
    replies: int


class OurConnection(Struct, frozen=True):
    """A connection of Switchboard: the process of PostgreSQL that serves it, its name, and where it comes from."""

    pid: int
    name: str
    host: str


class AcceptedSince(Struct, frozen=True):
    """A message, and how many replies to it have been sent."""

    request_id: UUID
    channel: str
    sender: str
    received_at: datetime
    replies_sent: int


async def server_facts(database: Database) -> ServerFacts:
    """Facts about the server."""
    [found] = rows_as(ServerFacts, await database.rows(query("checkup.server")))
    return found


async def schema_facts(database: Database) -> SchemaFacts:
    """Facts about our schema."""
    [row] = await database.rows(query("checkup.schema"))
    migration = int(await database.value(query("checkup.migration"))) if row["migrated"] else 0
    return SchemaFacts(row["tables"], migration)


async def kept_schemas(database: Database) -> list[str]:
    """The schemas that a backup holds and a restore replaces: ours, and those of modules."""
    [row] = await database.rows(query("checkup.schema"))
    if not row["migrated"]:
        return [SCHEMA]
    return [row["name"] for row in await database.rows(query("checkup.schemas"))]


async def schema_bytes(database: Database) -> int:
    """What our tables and those of modules take on the disk, with their indexes."""
    return int(await database.value(query("checkup.size"), await kept_schemas(database)))


def guards_of_rollback(messages: int) -> tuple[str, ...]:
    """The first statements of a rollback: whoever starts now waits for it, and whoever has started prevents it.

    `messages`: how many there were when people were told which would be lost.
    """
    return (
        "set local lock_timeout = '60s'",
        f"select pg_advisory_xact_lock({LOCK})",
        query("checkup.require_alone"),
        f"lock table {SCHEMA}.message_inbox in access exclusive mode",
        query("checkup.require_messages").replace("$1", str(int(messages))),
    )


async def withdrawn_here(database: Database) -> str:
    """SQL that withdraws in a newly restored schema what is withdrawn here: tokens, people let in, owners."""
    return "".join(f"{row['statement']}\n" for row in await database.rows(query("checkup.withdrawn")))


async def data_bytes(database: Database) -> int:
    """What the tables of all our schemas take on the disk, without indexes: the most that a backup takes."""
    return int(await database.value(query("checkup.data"), await kept_schemas(database)))


async def open_work(database: Database) -> OpenWork:
    """What is answered again, and what a person has to decide about."""
    [found] = rows_as(OpenWork, await database.rows(query("checkup.open_work")))
    return found


def doubt_of_replies() -> str:
    """SQL that makes what is unsent in a newly restored schema uncertain, whichever schema it is."""
    return f"set local search_path to {SCHEMA};\n{query('checkup.doubt_replies')};\n"


async def others_connected(database: Database) -> int:
    """The number of other connections of Switchboard; exact if `database` has a pool of one."""
    return int(await database.value(query("checkup.others")))


async def connections(database: Database) -> list[OurConnection]:
    """The other connections of Switchboard; exact if `database` has a pool of one."""
    return rows_as(OurConnection, await database.rows(query("checkup.connections")))


async def accepted_besides(database: Database, known: Sequence[UUID]) -> list[AcceptedSince]:
    """The messages that are not `known`, oldest first."""
    return rows_as(AcceptedSince, await database.rows(query("checkup.accepted"), known))


async def count_messages(database: Database) -> int:
    """All messages that were ever accepted and are still kept."""
    return int(await database.value(query("checkup.messages")))
