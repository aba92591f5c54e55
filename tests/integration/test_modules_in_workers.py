"""Modules of a worker with a database: their tables, their chores, and one whose tables cannot be made."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from uuid import UUID

import pytest

from switchboard.app.ops.checks import installation_checks
from switchboard.app.ops.modules import make_modules
from switchboard.app.settings import Settings
from switchboard.app.wiring import make_worker, open_runtime
from switchboard.ports.checks import CheckResult
from switchboard.ports.tools import ToolScope
from tests.hands import at_work
from tests.installed import DIARY, forget, install
from tests.waiting import eventually

KEEPER: Final = '''
from switchboard.ports.module import Chore, ModuleManifest, typed_tool


async def NAME_count(module) -> str:
    """How often it was looked."""
    return f"{(await module.store.rows('looks.all'))[0]['found']}"


class Keeper:
    def __init__(self, context):
        self.store = context.stores("")
        self.chores = (Chore("look", 3600, self.look),)

    async def look(self, store):
        await store.run("looks.add")

    async def aclose(self):
        pass


def open_keeper(context):
    return Keeper(context)


TOOLS = (typed_tool(NAME_count, effect="idempotent", reach="inside"),)
MANIFEST = ModuleManifest("NAME", TOOLS, "NAME_module:open_keeper", sql="NAME_sql")
'''
TABLES: Final = "create table look (account text not null, at timestamptz not null default clock_timestamp());"
QUERIES: Final = """
-- name: add
insert into look (account) values ($1);

-- name: all
select count(*) as found from look where account = $1;
"""
SOURCES: Final = {
    "diary": DIARY,
    "keeper": KEEPER.replace("NAME", "keeper"),
    "broken": KEEPER.replace("NAME", "broken"),
    "quitting": "raise SystemExit(1)",
}
MIGRATIONS: Final = {"keeper": TABLES, "broken": "create tabel look ();"}
SCOPE: Final = ToolScope(Path(), frozenset(), frozenset(), UUID(int=1), UUID(int=2))


@pytest.fixture
def settings(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    install(tmp_path / "packages", monkeypatch, SOURCES)
    for name, tables in MIGRATIONS.items():
        sql = tmp_path / f"packages/{name}_sql"
        for path, text in (("migrations/0001_look.sql", tables), ("queries/looks.sql", QUERIES)):
            (sql / path).parent.mkdir(parents=True, exist_ok=True)
            (sql / path).write_text(text)
    options = {"modules": [*SOURCES]}
    member = {"name": "clerk", "type": "operation", "engine": "memo", "config": options}
    (tmp_path / "teams").mkdir()
    (tmp_path / "teams/root.json").write_text(json.dumps({"team": {"name": "root"}, "systems": [member]}))
    given = {"database_url": database_url, "data_dir": tmp_path, "teams_dir": tmp_path / "teams"}
    yield Settings.model_validate(given | {"modules": {"diary": {"owner": "Ben"}}})
    monkeypatch.undo()
    forget(SOURCES)


async def test_a_worker_opens_modules_keeps_their_tables_and_does_their_chores(settings: Settings) -> None:
    async with open_runtime(settings) as runtime, at_work(make_worker(runtime)):
        database = runtime.database
        [clerk] = [one for one in runtime.rule_book.rules.members.values() if one.name == "clerk"]
        modules = make_modules(runtime)
        tools = {tool.spec.name: tool for tool in await modules.of(clerk)}
        assert sorted(tools) == ["diary_add", "diary_read", "keeper_count"]
        assert sorted(modules.lacking(clerk)) == ["broken", "quitting"]
        assert "its tables cannot be made" in modules.state_of("broken").why

        async def has_looked() -> bool:
            return (await tools["keeper_count"].call({}, SCOPE)).text == "1"  # once, in whichever of the two

        await eventually(has_looked)
        assert (await tools["diary_read"].call({"day": "Monday"}, SCOPE)).text == "Ben: nothing on Monday"
        found: list[CheckResult] = []
        for check in installation_checks(database, settings):
            found += await check()
        told = {one.name: one.detail for one in found if one.name.startswith("module ")}
    assert sorted(told) == ["module broken", "module quitting"]
    assert "cannot be loaded: it wanted to end the process" in told["module quitting"]
