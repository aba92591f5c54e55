"""A worker is killed with SIGKILL while a command line works for it: what is left behind dies, or can do no harm."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from switchboard.app.runtime import Runtime, Switchboard
from switchboard.app.settings import Settings
from switchboard.server.listener import bind
from switchboard.server.serve import run_server
from switchboard.transport.mail_reading import MailReader
from switchboard.transport.programs import death_guard
from tests.chaos import claude
from tests.hands import assert_balanced, settled
from tests.integration.test_sessions_cli import PRELUDE, gone
from tests.lab import Lab, butler, lab, submission, team_of
from tests.processes import environment
from tests.waiting import eventually

TEAM: Final = team_of(butler("b0"), butler("b1"), classify=True)
HANGS: Final = """
import json
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    mark("child")
    time.sleep(600)
mark("config", pathlib.Path(sys.argv[sys.argv.index("--mcp-config") + 1]).read_text())
mark("program")
time.sleep(600)
"""


@asynccontextmanager
async def open_house(database_url: str, place: Path) -> AsyncIterator[tuple[Lab, str]]:
    """A server, and the URL of its MCP endpoint."""
    async with lab(database_url, [TEAM], [], classifying=True) as parts:
        runtime = Runtime(Settings(data_dir=place), parts.database, parts.notifier, parts.rule_book)
        listener, stop, is_open = bind("127.0.0.1", 0), asyncio.Event(), asyncio.Event()
        switchboard = Switchboard(runtime, parts.accept, parts.replies, MailReader())
        serving = asyncio.create_task(run_server(switchboard, listener, stop, lambda *_: is_open.set()))
        await is_open.wait()
        try:
            yield parts, f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        finally:
            stop.set()
            await serving


@asynccontextmanager
async def a_worker(place: Path, database: str, mcp: str, program: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """`switchboard work` with this program as its one model."""
    lines = [f'database_url = "{database}"', "[classify]", 'models = ["cli"]', f'mcp_url = "{mcp}"', "[[models]]"]
    lines += ['name = "cli"', 'kind = "claude-code"', 'model = "m"', 'base_url = "http://127.0.0.1:9"']
    (place / "switchboard.toml").write_text("\n".join([*lines, f'program = "{program}"']))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "switchboard.cli.main", "work"),
        cwd=place,
        env=environment(place / "data") | {"TMPDIR": str(place)},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def call(config: Mapping[str, Any], method: str, **params: Any) -> httpx2.Response:
    """Ask our MCP server under the token of a session, as its program would."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
    async with httpx2.AsyncClient(headers={**config["headers"], **headers}) as http:
        return await http.post(config["url"], json=body)


@pytest.mark.slow
@pytest.mark.skipif(not death_guard(), reason="needs setpriv of util-linux")
async def test_a_session_whose_worker_was_killed_can_do_no_harm(database_url: str, tmp_path: Path) -> None:
    program = tmp_path / "hangs"
    program.write_text(f"#!{sys.executable} -S\n{PRELUDE}{HANGS}", encoding="utf-8")
    program.chmod(0o755)
    async with open_house(database_url, tmp_path) as (parts, mcp):
        sent = await parts.accept.accept(submission("0 b1 e0", channel="api"))
        async with a_worker(tmp_path, database_url, mcp, program) as worker:
            await eventually(lambda: _there(tmp_path, "program", "child"))
            orphan = int((tmp_path / "child").read_text())
            worker.kill()
            await worker.wait()
        try:
            await gone(tmp_path / "program")
            # A child of the program is out of the kernel's guard. All that it has is the token.
            config = json.loads((tmp_path / "config").read_text())["mcpServers"]["switchboard"]
            [left] = _left_behind(tmp_path)
            stray = await call(config, "tools/call", name="route_to_butler", arguments={"butler": "b0"})
            assert "accepted" in stray.text, "the session is open still; but nobody will read what it calls"
            async with a_worker(tmp_path, database_url, mcp, claude.install(tmp_path, rate=0.0)):
                await eventually(lambda: settled(parts), within=60)
            assert left not in _left_behind(tmp_path), "with what was secret in it"
            assert (await call(config, "tools/list")).status_code == 401
            stray = await call(config, "tools/call", name="route_to_butler", arguments={"butler": "b0"})
            assert stray.status_code == 401
            assert await settled(parts)
        finally:
            with suppress(ProcessLookupError):
                os.kill(orphan, signal.SIGKILL)
        rows = await parts.database.rows("select request_id, system_id, state from delivery")
        assert [tuple(row) for row in rows] == [(sent.request_id, "System1/b1", "answered")]
        await assert_balanced(parts)


async def _there(place: Path, *marks: str) -> bool:
    return all((place / mark).exists() for mark in marks)


def _left_behind(place: Path) -> list[Path]:
    return list(place.glob("switchboard-session-*"))
