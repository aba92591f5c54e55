"""What tools look up in the mirrors of accounts reads by index, with a plan for its values and with one for any values.

PostgreSQL takes the latter once a statement has run a few times on a connection.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from switchboard.modules.calendar.manifest import MANIFEST as CALENDAR
from switchboard.modules.contacts.keys import name_digest
from switchboard.modules.contacts.manifest import MANIFEST as CONTACTS
from switchboard.ports.module import ModuleManifest
from switchboard.store.database import Database
from switchboard.store.modules.migrations import migrate_modules
from switchboard.store.modules.rooms import queries_of

MOST_READ: Final = 100
OBJECTS: Final = """
insert into collection (account, collection, url, name) values ('ann', '/c', 'http://127.0.0.1/c', 'C');
insert into object (account, collection, name, etag, uid, data)
select 'ann', '/c', n::text, '1', n::text, '' from generate_series(1, 3000) n;
"""
FILL: Final = {
    "contacts": """
insert into card (account, collection, name, shown, words)
select 'ann', '/c', n::text, 'Ben ' || n, E'\n ben b' || n || E'\n\n\n\n' from generate_series(1, 3000) n;
insert into word (account, collection, name, word)
select 'ann', '/c', n::text, 'b' || n from generate_series(1, 3000) n;
insert into way select 'ann', '/c', n::text, 0, 'email', '', 'email b' || n, '', false from generate_series(1, 3000) n;
""",
    "calendar": """
insert into event
select 'ann', '/c', n::text, 0, n::text, false, 'x', '', '', '', '{}', '{}', '', '', false, false, 'busy', 'x'
from generate_series(1, 3000) n;
insert into occurrence
select 'ann', '/c', n::text, 0, '', at, at + interval '1 h', at::timestamp, (at + interval '1 h')::timestamp,
       false, 'UTC', false
from (select n, timestamptz '2026-01-01' + n * interval '1 h' as at from generate_series(1, 3000) n) as x;
""",
}
DAY: Final = ("'2026-02-01'::timestamptz", "'2026-02-02'::timestamptz", "'2026-02-01'", "'2026-02-02'")
ASKED: Final = {
    "people.candidates": ("array['email b7']", "array['b77']", "U&'\\+10FFFF'", f"'{name_digest(['b77'])}'", "100"),
    "people.cards_of": ("array['/c']", "array['7']"),
    "occurrences.within": ("'all'", "true", *DAY, "array['%x%']", "''", "'UTC'", "1001"),
    "occurrences.state": (),
}
TYPES: Final = {
    "people.candidates": "text, text[], text[], text, text, int",
    "people.cards_of": "text, text[], text[]",
    "occurrences.within": "text, text, bool, timestamptz, timestamptz, timestamp, timestamp, text[], text, text, int",
    "occurrences.state": "text",
}


@pytest.mark.parametrize("module", [CONTACTS, CALENDAR], ids=lambda module: module.name)
async def test_a_look_up_reads_little_with_any_plan(database: Database, module: ModuleManifest) -> None:
    assert await migrate_modules(database, [module]) == {}
    queries = queries_of(module)
    async with database.connection() as connection, connection.transaction():
        await connection.execute(f"set local search_path = switchboard_{module.name}")
        await connection.execute(OBJECTS + FILL[module.name])
        await connection.execute("analyze")
        for name in ASKED.keys() & queries.keys():
            await connection.execute(f"prepare asked ({TYPES[name]}) as {queries[name]}")
            for mode in ("force_generic_plan", "force_custom_plan"):
                await connection.execute(f"set local plan_cache_mode = {mode}")
                values = ", ".join(("'ann'", *ASKED[name]))
                plan = await connection.fetchval(f"explain (analyze, format json) execute asked ({values})")
                most = max(map(rows_read, nodes_of(plan[0]["Plan"])))
                assert most <= MOST_READ, f"{name}, {mode}: {json.dumps(plan, indent=1)}"
            await connection.execute("deallocate asked")


def nodes_of(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from nodes_of(inner)


def rows_read(node: dict[str, Any]) -> float:
    return float((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"])
