"""Every query of every module that comes with Switchboard runs in its room, and reads by an index."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import pytest

from switchboard.ports.module import ModuleManifest
from switchboard.store.database import Database
from switchboard.store.modules.migrations import migrate_modules
from tests.modules import NOTES, a_module, weak_queries


def installed() -> list[ModuleManifest]:
    """The manifests of all modules that keep something."""
    manifests = [entry.load() for entry in entry_points(group="switchboard.modules")]
    return [manifest for manifest in manifests if manifest.sql]


async def test_queries_of_installed_modules_run_and_read_by_an_index(database: Database) -> None:
    manifests = installed()
    assert await migrate_modules(database, manifests) == {}
    weak = {manifest.name: await weak_queries(database, manifest) for manifest in manifests}
    assert {name: queries for name, queries in weak.items() if queries} == {}


async def test_a_query_that_cannot_run_or_reads_a_whole_table_is_found(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    queries = """
-- name: gone
select nothing from note where account = $1;

-- name: whole
select id from note where lower(text) = $2 and $1 <> '';
"""
    manifest = a_module(tmp_path, sql={**NOTES, "queries/bad.sql": queries})
    assert await migrate_modules(database, [manifest]) == {}
    assert await weak_queries(database, manifest) == {
        "bad.gone": 'column "nothing" does not exist',
        "bad.whole": "reads all of note",
    }
