"""`/v1/modules` and `switchboard modules`: what is listed, what is opened at the terminal, and who logs in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from switchboard.ports.chores import ChoreKey
from switchboard.store.models.module_quarantine import StoredQuarantine
from switchboard.store.modules.chores import ChoreTable
from tests.commands import Cli
from tests.installed import DIARY, forget, install
from tests.lab import butler, rule, team_of
from tests.servers import Opened, open_server

LOGIN: Final = """

async def log_in(context):
    import os, pathlib
    pathlib.Path(os.environ["LOGGED_IN"]).write_text(context.settings.owner)
"""
NOTED: Final = """def open_diary(context):
    import os, pathlib
    with pathlib.Path(os.environ["OPENED"]).open("a") as file:
        file.write("diary\\n")
"""
WIZARD: Final = 'secrets=("DIARY_KEY",), logs_in={"diary": "diary_module:log_in"}'
WITH_LOGIN: Final = DIARY.replace('secrets=("DIARY_KEY",)', WIZARD)
KEPT: Final = WITH_LOGIN.replace("def open_diary(context):\n", NOTED) + LOGIN
BROKEN: Final = DIARY.replace("diary", "broken").replace("return Diary(context)", "raise RuntimeError('no day')")
SOURCES: Final = {"diary": KEPT, "broken": BROKEN, "quitting": "raise SystemExit(4)"}
TEAM: Final = team_of(butler("clerk", modules={"diary": {}, "gone": {}}), butler("other", modules={"diary": {}}))


@dataclass(frozen=True)
class Terminal:
    """A server with modules, and the command line beside it."""

    server: Opened
    cli: Cli
    capsys: pytest.CaptureFixture[str]

    async def run(self, *arguments: str) -> tuple[int, str]:
        code, out, err = await asyncio.to_thread(self.cli.run, "modules", *arguments)
        return code, out + err

    async def listed(self) -> dict[str, Any]:
        found = (await self.server.http.get("/v1/modules")).json()["modules"]
        return {one["module"]: one for one in found}


@pytest.fixture
async def terminal(
    database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Terminal]:
    install(tmp_path / "modules", monkeypatch, SOURCES)
    async with open_server(database_url, tmp_path / "data", tree=((TEAM,), (rule("System1/clerk"),))) as server:
        more = {
            "SWITCHBOARD_DATABASE_URL": database_url,
            "SWITCHBOARD_DATA_DIR": str(tmp_path / "data"),
            "LOGGED_IN": str(tmp_path / "logged-in"),
            "OPENED": str(tmp_path / "opened"),
        }
        yield Terminal(server, Cli(capsys, monkeypatch, {**server.environment, **more}), capsys)
    forget(SOURCES)


async def test_modules_are_listed_with_who_has_them_and_what_is_wrong(terminal: Terminal) -> None:
    table = ChoreTable(terminal.server.lab.database, "a worker")
    for name in ("sync", "tidy"):
        await table.plan(ChoreKey("diary", "", name), 3600.0)
    [first, _] = (await table.take([ChoreKey("diary", "", "sync"), ChoreKey("diary", "", "tidy")], 2)).leases
    await table.finish(first, "no network")
    found = await terminal.listed()
    assert {name: one["state"] for name, one in found.items()} == {
        "broken": "unused",
        "calendar": "unused",
        "contacts": "unused",
        "diary": "in use",
        "email": "unused",
        "gone": "unusable",
        "quitting": "unusable",
        "schedule": "unused",
    }
    assert found["diary"]["butlers"] == ["System1/clerk", "System1/other"]
    assert found["diary"]["tools"] == ["diary_read", "diary_add"]
    assert "wanted to end the process" in found["quitting"]["why"]
    code, out = await terminal.run("list")
    assert (code, "sync: no network" in out, "there is no module 'gone'" in out) == (0, True, True)
    code, out = await terminal.run("show", "diary")
    assert (code, "sync, every 3600 s: last " in out, "System1/clerk, System1/other" in out) == (0, True, True)
    # What failed is tried again at once; what a worker is doing is left to it.
    code, out = await terminal.run("sync", "diary")
    assert (code, out) == (0, "diary: 1 due now; see `switchboard modules list`\n")
    assert len((await table.take([ChoreKey("diary", "", "sync"), ChoreKey("diary", "", "tidy")], 2)).leases) == 1
    code, out = await terminal.run("sync", "broken")
    assert (code, "nothing that the module 'broken' does by itself" in out) == (1, True)
    assert (await terminal.run("sync", "dairy"))[0] == 5
    audited = (await terminal.server.http.get("/v1/audit", params={"action": "modules:synced"})).json()["entries"]
    assert [one["detail"] for one in audited] == [{"module": "diary", "chores": 1}]


async def test_a_module_in_quarantine_is_listed_and_released(terminal: Terminal) -> None:
    quarantine = StoredQuarantine(terminal.server.lab.database, "desk")
    await quarantine.note_state("broken", "RuntimeError: no day")
    for _ in range(3):
        await quarantine.note_hold("diary")
    found = await terminal.listed()
    assert (found["diary"]["state"], bool(found["diary"]["why"])) == ("quarantined", True)
    assert found["broken"]["failures"] == [{"host": "desk", "why": "RuntimeError: no day"}]
    code, out = await terminal.run("list")
    assert (code, "on desk: RuntimeError: no day" in out) == (0, True)
    assert await terminal.run("release", "diary") == (0, "diary: released; workers open it again\n")
    assert (await terminal.listed())["diary"]["state"] == "in use"
    assert (await terminal.run("release", "diary"))[0] == 5


async def test_a_module_is_opened_at_the_terminal_alone(terminal: Terminal, tmp_path: Path) -> None:
    code, out = await terminal.run("test", "diary", "--json")
    tried = json.loads(out.splitlines()[-1])
    assert (code, tried["state"], tried["tools"]) == (0, "open", ["diary_read", "diary_add"])
    code, out = await terminal.run("test", "broken")
    assert (code, "broken: failed: RuntimeError: no day" in out) == (1, True)
    assert (tmp_path / "opened").read_text() == "diary\n", "only when it was asked for, although butlers have it"
    assert (await terminal.listed())["broken"]["failures"] == []  # it says nothing of workers
    code, out = await terminal.run("test", "dairy")
    assert (code, "did you mean diary?" in out) == (5, True)


async def test_an_account_is_logged_in_by_the_wizard_of_its_module(terminal: Terminal, tmp_path: Path) -> None:
    code, out = await terminal.run("login", "diary")
    assert (code, out.endswith("diary: logged in\n"), (tmp_path / "logged-in").read_text()) == (0, True, "Ann")
    code, out = await terminal.run("login", "broken")
    assert (code, "the module 'broken' has no accounts to log in" in out) == (1, True)


async def test_an_erasure_says_what_modules_it_cannot_reach(terminal: Terminal) -> None:
    await terminal.server.http.post("/v1/people", json={"person_id": "ann", "name": "Ann"})
    answer = await terminal.server.http.post("/v1/people/ann/erase", json={"dry_run": True})
    told = " ".join(answer.json()["erasure"]["out_of_reach"])
    assert ("what the module quitting keeps" in told, "module diary" in told) == (True, False)
