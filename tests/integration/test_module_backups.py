"""What modules keep is in every backup, and comes back behind its role; nobody else's schema is touched."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from switchboard.app.ops.backup import back_up, dump, restore
from switchboard.app.settings import Settings
from switchboard.ports.module import ModuleManifest
from switchboard.store.checkup import data_bytes, kept_schemas, schema_bytes
from switchboard.store.database import Database
from switchboard.store.modules.migrations import migrate_module, try_module
from switchboard.store.modules.opening import ModuleRooms
from tests.modules import NOTES, a_module

STRANGER = "create schema switchboard_archive; create table switchboard_archive.box (what text);"


def settings_of(url: str, data_dir: Path) -> Settings:
    return Settings.model_validate({"database_url": url, "data_dir": data_dir})


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Database]:
    database = await Database.connect(url, size=2)
    try:
        yield database
    finally:
        await database.close()


async def open_rooms(database: Database, *manifests: ModuleManifest) -> ModuleRooms:
    rooms = ModuleRooms(database)
    assert await rooms.migrate(manifests) == {}
    return rooms


async def test_what_modules_keep_is_in_backups_and_comes_back_behind_its_role(
    database_url: str, empty_database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    notes, other = a_module(tmp_path), a_module(tmp_path, "other")
    file = tmp_path / "backup.dump"
    async with opened(database_url) as database:
        rooms = await open_rooms(database, notes)
        before = await schema_bytes(database), await data_bytes(database)
        for n in range(500):
            await rooms.stores(notes)("ann").run("notes.add", f"figs {n} {'x' * 100}")
        assert (await schema_bytes(database), await data_bytes(database)) > before
        await database.run(STRANGER)
        assert await kept_schemas(database) == ["switchboard", "switchboard_notes"]
    await back_up(settings_of(database_url, tmp_path), file, lambda _: None)
    pieces: list[bytes] = []
    await dump(settings_of(database_url, tmp_path), pieces.append)
    assert b"switchboard_notes" in b"".join(pieces)
    async with opened(empty_database_url) as database:  # another installation, with other modules and a stranger
        await database.run(STRANGER)
        await database.run("insert into switchboard_archive.box values ('theirs')")
    there = settings_of(empty_database_url, tmp_path)
    for _ in range(2):
        await restore(there, file, lambda _: None, force=True)
        async with opened(empty_database_url) as database:
            assert await kept_schemas(database) == ["switchboard", "switchboard_notes"]
            assert await database.value("select what from switchboard_archive.box") == "theirs"
            rooms = await open_rooms(database, notes, other)
            assert rooms.stores(notes).caged
            assert len(await rooms.stores(notes)("ann").rows("notes.all")) == 500
            assert await rooms.stores(notes)("bob").run("notes.add", "pears") == 1
            assert await kept_schemas(database) == ["switchboard", "switchboard_notes", "switchboard_other"]


async def test_the_migration_of_a_module_can_be_tried(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    notes = a_module(tmp_path)
    assert [one.number for one in await try_module(database, notes)] == [1]
    assert await kept_schemas(database) == ["switchboard"]
    assert [one.number for one in await migrate_module(database, notes)] == [1]
    longer = a_module(tmp_path, sql={**NOTES, "migrations/0002_at.sql": "alter table note add column at date"})
    assert [one.name for one in await try_module(database, longer)] == ["at"]
    assert [one.name for one in await migrate_module(database, longer)] == ["at"]
    assert await try_module(database, longer) == ()
