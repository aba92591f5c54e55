"""The way back from a migration: the backup made before it replaces the database, in one transaction.

Called by `switchboard db rollback`. In: settings, and how many messages may be lost; out: a database on which the
release before starts, and a file with the newer state. Killed at any moment, it leaves one state or the other, and can
be repeated. Next: `backup.py`, `app/backups.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from uuid import UUID

from msgspec import Struct

from switchboard.app.backups import backups_of
from switchboard.app.database import database_url, one_connection
from switchboard.app.dumps import PostgresPrograms, dump_options, find_tools, own_directory, partial_file, run_program
from switchboard.app.ops.backup import drops_of, forgotten_there, replace_schemas, unpack
from switchboard.app.settings import Settings
from switchboard.domain.errors import Conflict, NotFound
from switchboard.lanes.faults import point
from switchboard.store.checkup import (
    AcceptedSince,
    OpenWork,
    OurConnection,
    accepted_besides,
    connections,
    count_messages,
    guards_of_rollback,
    kept_schemas,
    open_work,
    schema_facts,
    server_facts,
)
from switchboard.store.database import SCHEMA, Database
from switchboard.store.migrate import known_schema

_LISTED: Final = 1000


class RolledBack(Struct, frozen=True):
    """The schema that the database has now, the file with the newer state, and what is only there.

    Without a file there was nothing to do.
    """

    schema: int
    newer: Path | None = None
    lost: Sequence[AcceptedSince] = ()
    open: OpenWork | None = None


class _Plan(Struct, frozen=True):
    """From the schema `after` to `before`, by a backup, whose SQL is `script`; it replaces `schemas`."""

    before: int
    after: int
    backup: Path
    script: Path
    forgotten: Path
    tools: PostgresPrograms
    newer: Path
    schemas: Sequence[str]


async def roll_back(settings: Settings, lose: int) -> RolledBack:
    """Replace the database by the backup that was made before its last migration.

    `lose`: the number of messages that have been accepted since. Raises Conflict with a list of processes that are
    connected or of these messages, if there are others than that many; NotFound without a backup; ConfigurationError.
    """
    async with database_url(settings) as url:
        with own_directory(settings.data_dir / "backups" / ".rollback", "rollback") as scratch:
            async with one_connection(url) as database:
                if (schema := (await schema_facts(database)).migration) < known_schema():
                    return RolledBack(schema)
                plan = await _prepare(settings, database, schema, scratch)
                lost = await _require_known(database, plan.script, lose)
                messages = await count_messages(database)
                point("rollback_counted")
            # Every connection that is found from here on is another's.
            await _keep_newer(plan, url)
            first = (*guards_of_rollback(messages), *drops_of(plan.schemas))
            await replace_schemas(plan.tools, url, first, (plan.script, plan.forgotten))
            point("rollback_done")
            async with one_connection(url) as database:
                again = await open_work(database)
    return RolledBack(plan.before, plan.newer, lost, again)


async def _prepare(settings: Settings, database: Database, schema: int, scratch: Path) -> _Plan:
    if found := await connections(database):
        raise Conflict(f"processes are connected; stop them before a rollback:\n{_lines_of(found)}")
    if not (backups := backups_of(settings, schema)):
        raise NotFound(
            f"there is nothing to roll back: no backup made before a migration to schema {schema} is in "
            f"{settings.data_dir / 'backups'}. If there was one, run this on the machine that migrated, or restore a "
            "backup of your own with the release before"
        )
    point("rollback_begun")
    before, backup = backups[0]
    tools = await find_tools(settings, (await server_facts(database)).major)
    newer = _free_name(backup, f"{schema:04d}-{before:04d}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}")
    schemas = await kept_schemas(database)
    plan = _Plan(before, schema, backup, scratch / "backup.sql", scratch / "forgotten.sql", tools, newer, schemas)
    await asyncio.to_thread(plan.forgotten.write_text, await forgotten_there(database))
    await unpack(tools, backup, plan.script, lambda: None)
    point("rollback_unpacked")
    return plan


def _free_name(beside: Path, stem: str) -> Path:
    """No dump of a newer state is ever replaced: what was lost is only there."""
    names = (f"{stem}{suffix}.dump" for suffix in ("", *(f"-{n}" for n in range(2, 1000))))
    return next(file for file in map(beside.with_name, names) if not file.exists())


def _lines_of(found: Sequence[OurConnection]) -> str:
    return "\n".join(f"  {one.name} from {one.host} (PostgreSQL's process {one.pid})" for one in found)


async def _require_known(database: Database, script: Path, lose: int) -> list[AcceptedSince]:
    """What is not in the backup: by its content, not by a clock, so that an old backup loses nothing unnoticed."""
    known = await asyncio.to_thread(lambda: list(_messages_in(script)))
    lost = await accepted_besides(database, known)
    if len(lost) == lose:
        return lost
    if not lost:
        raise Conflict("no message has been accepted since the backup: leave out --lose")
    lines = [
        f"  {one.request_id} {one.channel} {one.sender!r}, replies sent: {one.replies_sent}" for one in lost[:_LISTED]
    ]
    more = [f"  and {len(lost) - _LISTED} more"] if len(lost) > _LISTED else []
    listed = "\n".join([*lines, *more])
    raise Conflict(
        f"messages have been accepted since the backup, and would be lost:\n{listed}\n"
        f"pass --lose {len(lost)} to lose them; a dump of the present state is kept"
    )


def _messages_in(script: Path) -> Iterator[UUID]:
    """The ids in the inbox of a backup: the lines between COPY and `\\.`, column by column."""
    start = f"COPY {SCHEMA}.message_inbox".encode()
    column = -1
    with script.open("rb") as lines:
        for line in lines:
            if column >= 0 and line != b"\\.\n":
                yield UUID(line.rstrip(b"\n").split(b"\t", column + 1)[column].decode())
                continue
            is_inbox = line.startswith(start) and line.endswith(b" FROM stdin;\n")
            column = _columns(line).index(b"request_id") if is_inbox else -1


def _columns(line: bytes) -> list[bytes]:
    return line[line.index(b"(") + 1 : line.rindex(b")")].split(b", ")


async def _keep_newer(plan: _Plan, url: str) -> None:
    with partial_file(plan.newer) as partial:
        await run_program(plan.tools, "pg_dump", [*dump_options(plan.schemas), f"--file={partial}"], url, lambda: None)
    point("rollback_kept")
