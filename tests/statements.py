"""The statements that the previous release sends, recorded, and prepared again on the present schema.

`make statements` records them at a release, in `tests/fixtures/statements.json`; `test_previous_release.py` compares.
During an upgrade, servers of the previous release go on working on the schema of the next.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypedDict

import asyncpg

from switchboard import __version__
from switchboard.embedded.supervisor import embedded_postgres
from switchboard.store.database import SQL, Database, query
from switchboard.store.migrate import migrate
from tests.postgres import FAST

FILE: Final = Path(__file__).parent / "fixtures" / "statements.json"


class Statement(TypedDict):
    """One statement with the types that PostgreSQL found when it prepared it."""

    sql: str
    parameters: list[str]
    columns: dict[str, str]


class Recording(TypedDict):
    """All statements of a release."""

    release: str
    statements: dict[str, Statement]


def recording() -> Recording:
    """What was recorded last."""
    read: Recording = json.loads(FILE.read_text(encoding="utf-8"))
    return read


def statements() -> Iterator[tuple[str, str]]:
    """Name and SQL of every statement of this release."""
    for file in sorted(SQL.joinpath("queries").iterdir(), key=lambda file: file.name):
        for name in re.findall(r"^-- name: (\w+)$", file.read_text(encoding="utf-8"), re.MULTILINE):
            full = f"{file.name.removesuffix('.sql')}.{name}"
            yield full, query(full)


async def prepared(database: Database, sql: str) -> Statement:
    """What PostgreSQL makes of a statement. Raises PostgresError."""
    async with database.connection() as connection:
        one = await connection.prepare(sql)
        return {
            "sql": sql,
            "parameters": [kind.name for kind in one.get_parameters()],
            "columns": {column.name: column.type.name for column in one.get_attributes()},
        }


async def differences(database: Database, recorded: Recording) -> dict[str, str]:
    """Which statements the schema no longer takes, or takes or answers with other types, and how that is."""
    found = {}
    for name, before in recorded["statements"].items():
        try:
            now = await prepared(database, before["sql"])
        except asyncpg.PostgresError as error:
            found[name] = str(error)
            continue
        if now != before:
            found[name] = f"{before['parameters']} -> {before['columns']}: now {now['parameters']} -> {now['columns']}"
    return found


async def record() -> None:
    """Write the file again, from a new database of this release."""
    place = Path(tempfile.gettempdir(), f"switchboard-statements-{os.getpid()}")
    try:
        async with embedded_postgres(place, settings=FAST) as server:
            database = await Database.connect(server.url, size=1)
            try:
                await migrate(database)
                made = {name: await prepared(database, sql) for name, sql in statements()}
            finally:
                await database.close()
    finally:
        shutil.rmtree(place, ignore_errors=True)
    recorded: Recording = {"release": __version__, "statements": made}
    FILE.write_text(json.dumps(recorded, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(record())
