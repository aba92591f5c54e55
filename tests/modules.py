"""Packages of modules that tests write: only their SQL, as the store needs no more of them; and a guard of any SQL."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from asyncpg import PostgresError

from switchboard.ports.module import ModuleManifest
from switchboard.store.database import Database
from switchboard.store.modules.stores import open_stores

NOTES: Final = {
    "migrations/0001_note.sql": """
        create table note (account text not null, id integer generated always as identity, text text not null,
                           primary key (account, id), unique (account, text));
    """,
    "queries/notes.sql": """
-- part: mine
account = $1

-- name: all
select text from note where {{mine}} order by id;

-- name: add
insert into note (account, text) values ($1, $2);

-- name: slowly
select count(*) from generate_series(1, 4000000000) as n where n::text <> $1;

-- name: as_whom
select current_user as role, $1::text as account;
""",
}


def a_module(place: Path, name: str = "notes", sql: Mapping[str, str] = NOTES) -> ModuleManifest:
    """The manifest of a module whose files are written below `place`, which is on `sys.path`."""
    package = f"{name}_package"
    for path, text in sql.items():
        file = place / package / "sql" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return ModuleManifest(name, (), f"{package}:open_module", sql=f"{package}.sql")


async def weak_queries(database: Database, manifest: ModuleManifest) -> dict[str, str]:
    """Which queries of a migrated module PostgreSQL does not take, or can answer only by reading a whole table."""
    stores = await open_stores(database, manifest)
    found = {}
    for number, (name, sql) in enumerate(stores.queries.items()):
        try:
            async with stores.transaction() as connection:
                await connection.execute(
                    "set local enable_seqscan = off; set local plan_cache_mode = force_generic_plan"
                )
                await connection.execute(f"prepare guarded_{manifest.name}_{number} as {sql}")
                nulls = ", ".join("null" for _ in {*re.findall(r"\$\d+", sql)})
                plan = await connection.fetchval(
                    f"explain (format json) execute guarded_{manifest.name}_{number}({nulls})"
                )
        except PostgresError as error:
            found[name] = str(error)
            continue
        if whole := [node for node in _nodes_of(plan[0]["Plan"]) if _reads_all(node)]:
            found[name] = f"reads all of {', '.join(node['Relation Name'] for node in whole)}"
    return found


def _reads_all(node: dict[str, Any]) -> bool:
    return node["Node Type"] == "Seq Scan" or ("Index Name" in node and "Index Cond" not in node)


def _nodes_of(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", ()):
        yield from _nodes_of(part)
