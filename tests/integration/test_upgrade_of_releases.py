"""The populated database of each release so far: upgraded to this one and back, killed at ten points on the way.

`make house` makes such a database (`tests/houses.py`). Where this release changes no tables since then, a release that
does is pretended.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from switchboard.app.dumps import find_tools
from switchboard.app.ops.backup import drops_of, replace_schemas, unpack
from switchboard.app.settings import Settings
from switchboard.cli.examples import examples
from switchboard.store.books import audit_books
from switchboard.store.checkup import schema_facts, server_facts
from switchboard.store.database import Database
from switchboard.store.migrate import known_schema
from tests.houses import ANSWERED, MODEL, OPEN, RELEASES
from tests.next_release import NEXT_RELEASE
from tests.processes import environment as environment_of
from tests.processes import running, switchboard

UP: Final = ("migration_begun", "migration_dumped", "migration_backed_up", "migration_pruned", "migration_done")
BACK: Final = ("rollback_begun", "rollback_unpacked", "rollback_counted", "rollback_kept", "rollback_done")
COUNTS: Final = """
select 'inbox' as what, '' as state, count(*) from message_inbox
union all select 'delivery', state::text, count(*) from delivery group by 2
union all select 'outbox', state::text, count(*) from outbox group by 2
union all select 'dead letter', '', count(*) from dead_letter
order by 1, 2
"""
TWICE: Final = "select count(*) from (select from outbox group by request_id, system_id having count(*) > 1) as twice"
Counts = Mapping[tuple[str, str], int]


@dataclass(frozen=True)
class OldHouse:
    """A database as a release left it, and the words that make a command one of a release that changes its tables."""

    url: str
    environment: Mapping[str, str]
    newer: tuple[str, ...]
    schema: int

    def run(self, *arguments: str, crash_at: str = "") -> subprocess.CompletedProcess[str]:
        return switchboard({**self.environment, "SWITCHBOARD_CRASH_AT": crash_at}, *self.newer, *arguments, "--json")

    @asynccontextmanager
    async def database(self) -> AsyncIterator[Database]:
        database = await Database.connect(self.url, size=1)
        try:
            yield database
        finally:
            await database.close()

    async def counts(self) -> Counts:
        async with self.database() as database:
            return {(row["what"], row["state"]): row["count"] for row in await database.rows(COUNTS)}

    async def is_upgraded(self) -> bool:
        async with self.database() as database:
            return (await schema_facts(database)).migration > self.schema

    async def answer_what_is_open(self) -> None:
        with running(self.environment, *self.newer, "up") as server:
            async with self.database() as database:
                while (await audit_books(database)).targets.in_flight:
                    assert server.process.poll() is None, server.said
                books = await audit_books(database)
                assert books.balanced, books
                assert books.problems == ()
                assert await database.value(TWICE) == 0


@pytest.fixture(params=sorted(RELEASES.glob("*.dump")), ids=lambda file: file.stem)
async def house(request: pytest.FixtureRequest, empty_database_url: str, tmp_path: Path) -> OldHouse:
    settings = Settings(data_dir=tmp_path / "data")
    script = tmp_path / "dump.sql"
    database = await Database.connect(empty_database_url, size=1)
    tools = await find_tools(settings, (await server_facts(database)).major)
    await unpack(tools, request.param, script, lambda: None)
    await replace_schemas(tools, empty_database_url, drops_of(["switchboard"]), (script,))
    schema = (await schema_facts(database)).migration
    await database.close()
    newer = () if known_schema() > schema else NEXT_RELEASE
    given = {"DATABASE_URL": empty_database_url, "TEAMS_DIR": str(examples() / "teams"), "MODELS": json.dumps([MODEL])}
    return OldHouse(empty_database_url, environment_of(tmp_path / "data", LOG_LEVEL="error", **given), newer, schema)


async def test_a_house_is_upgraded_and_rolled_back_despite_ten_kills(house: OldHouse) -> None:
    before = await house.counts()
    assert before["inbox", ""] >= ANSWERED + OPEN
    assert before["delivery", "pending"] == OPEN
    for at in UP:
        ended = await asyncio.to_thread(house.run, "db", "migrate", crash_at=at)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        assert await house.is_upgraded() == (at == "migration_done")
        assert await house.counts() == before, at
    await asyncio.to_thread(lambda: asyncio.run(house.answer_what_is_open()))
    after = await house.counts()
    assert "pending" not in {state for what, state in after if what == "delivery"}
    for at in BACK:
        ended = await asyncio.to_thread(house.run, "db", "rollback", crash_at=at)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        assert await house.is_upgraded() == (at != "rollback_done")
        assert await house.counts() == (before if at == "rollback_done" else after), at
    assert json.loads(house.run("db", "migrate").stdout)["applied"]
    assert await house.counts() == before
    await asyncio.to_thread(lambda: asyncio.run(house.answer_what_is_open()))
