"""Checks for a pooler in transaction mode between us and PostgreSQL, such as PgBouncer 1.21 or newer.

Behind one, each statement may run in another session, so nothing may rely on what an earlier one has left there: our
settings are set on the role, prepared statements are the pooler's to follow, and LISTEN and advisory locks need a
connection that goes past it. `database.py` asks here when it connects, `lanes/worker.py`
when a worker registers.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import asyncpg
from asyncpg.pool import PoolConnectionProxy

Connection: TypeAlias = "asyncpg.Connection | PoolConnectionProxy[asyncpg.Record]"

NEEDS_DIRECT: Final = (
    "the pooler there drops our settings; set database_direct_url to PostgreSQL itself, beside database_url"
)
_STALE: Final = (
    "the pooler's connections are without the settings of our role: both URLs must name the same role and database; "
    "if they do, run RECONNECT on the pooler's console"
)
_NO_STATEMENTS: Final = (
    "the pooler there does not follow prepared statements: "
    "PgBouncer 1.21 or newer is needed, with max_prepared_statements = 200 or more"
)
_OURS: Final = "__asyncpg_"
"""How the driver's names of prepared statements begin; a pooler that follows them has its own."""


async def is_direct(connection: Connection) -> bool:
    """Whether there is no pooler in between: a pooler invents the process id that it gives to clients."""
    return bool(connection.get_server_pid() == await connection.fetchval("select pg_backend_pid()"))


async def pooler_trouble(connection: Connection, search_path: str, *, pooled: bool) -> str | None:
    """Why this connection cannot be used, or None. `pooled`: whether a pooler is expected."""
    if await connection.fetchval("show search_path") != search_path:
        return _STALE if pooled else NEEDS_DIRECT
    if pooled and not await is_direct(connection) and not await _follows_statements(connection):
        return _NO_STATEMENTS
    return None


async def _follows_statements(connection: Connection) -> bool:
    async with connection.transaction():
        # The driver prepares this statement under a name, so the query finds itself where names are passed on.
        found = await connection.fetchval("select true from pg_prepared_statements where starts_with(name, $1)", _OURS)
    return not found
