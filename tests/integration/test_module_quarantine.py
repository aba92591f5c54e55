"""Modules that harm workers are left alone by all of them until an operator releases them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import sleep
from typing import Final
from uuid import UUID, uuid4

import pytest

from switchboard.app.access import Principal
from switchboard.app.ops.modules import release_module
from switchboard.domain.errors import NotFound
from switchboard.modules.kernel import holding
from switchboard.modules.kernel.opened import OpenModules
from switchboard.ports.tools import ToolScope
from switchboard.store.database import Database
from switchboard.store.migrate import migrate
from switchboard.store.models.module_quarantine import StoredQuarantine, list_failures, list_quarantined
from tests.installed import DIARY, butler, forget, install, installation
from tests.processes import switchboard
from tests.waiting import eventually

SPINNING: Final = """
from switchboard.ports.module import ModuleManifest, typed_tool

class Open:
    chores = ()

    async def aclose(self):
        pass

async def spinning_do(module) -> str:
    \"\"\"Compute for ever.\"\"\"
    while True:
        pass

async def open_it(context):
    return Open()

MANIFEST = ModuleManifest("spinning", (typed_tool(spinning_do, effect="idempotent"),), "spinning_module:open_it")
"""
SOURCES: Final = {"diary": DIARY, "spinning": SPINNING, "broken": "raise SystemExit(1)"}
SCOPE: Final = ToolScope(Path(), frozenset(), frozenset(), UUID(int=1), UUID(int=2))
OPERATOR: Final = Principal("operator", "ops")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    install(tmp_path, monkeypatch, SOURCES)
    yield tmp_path
    monkeypatch.undo()
    forget(SOURCES)


@pytest.fixture
async def database(database_url: str) -> Database:
    opened = await Database.connect(database_url, size=2)
    await migrate(opened)
    return opened


async def names(database: Database) -> list[str]:
    return [one.module for one in await list_quarantined(database)]


async def test_a_module_that_computes_for_ever_kills_two_workers_and_no_third(
    database: Database, database_url: str, place: Path
) -> None:
    async def run() -> tuple[int | None, str]:
        env = {**os.environ, "PYTHONPATH": str(place)}
        node = await asyncio.to_thread(switchboard, env, "-m", "tests.module_node", database_url, place)
        await database.run("update module_use set beat = beat - interval '1 minute'")
        await StoredQuarantine(database, "there").beat(uuid4())  # another worker looks
        return node.returncode, (place / "told").read_text()

    assert await run() == (75, "diary_add diary_read spinning_do")
    assert await names(database) == []
    assert (await run())[0] == 75
    assert await names(database) == ["spinning"]
    assert await run() == (0, "Ann: nothing on Monday")
    await release_module(database, OPERATOR, "spinning")
    assert await names(database) == []
    with pytest.raises(NotFound):
        await release_module(database, OPERATOR, "spinning")
    await database.close()


async def test_three_long_holds_in_an_hour_are_too_many(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holding, "LONG_S", 0.005)
    owner = butler(["diary"])
    modules = OpenModules(installation(owner, quarantine=StoredQuarantine(database, "here")))
    (tool, _) = await modules.of(owner)

    for n in range(3):
        assert await names(database) == []
        await modules.call_module("diary", _hold())
        await eventually(partial(_has_held, database, n + 1))
    await eventually(partial(names, database))
    assert tool.spec.name == "diary_read"
    await modules.aclose()
    await database.close()


async def _hold() -> None:
    _compute(0.01)


def _compute(seconds: float) -> None:
    sleep(seconds)


async def _has_held(database: Database, times: int) -> bool:
    return bool(await database.value("select count(*) = $1 from module_harm", times))


async def test_why_a_module_is_not_open_can_be_seen_from_outside(database: Database) -> None:
    owner = butler(["broken", "diary"])
    modules = OpenModules(installation(owner, quarantine=StoredQuarantine(database, "here")))
    await modules.look()
    [failed] = await list_failures(database)
    assert (failed.module, failed.host) == ("broken", "here")
    assert "wanted to end the process (SystemExit 1)" in failed.why
    await modules.aclose()
    assert await database.value("select count(*) from module_use") == 0
    await database.close()
