"""Another channel takes one package and nothing else: what it means, its connector, and the checks that it passes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from switchboard.app.access import Principal
from switchboard.connectors.kernel.accounts import manifest_of, read_account
from switchboard.connectors.kernel.runner import Runner
from switchboard.ports.connector import Identity
from switchboard.testing.connectors import ConnectorCheck, checks_for, in_no_time
from switchboard.transport.plug_ins import plug_ins
from tests.documents import HOME
from tests.drivers import FolderDriver, put, replies_in
from tests.routing import rule
from tests.servers import RULES, TEAMS, open_server
from tests.waiting import eventually

CHANNEL = """

from switchboard.ports.channel import Channel

CHANNEL = Channel(name="pigeon", providers=frozenset({"loft"}), history="realtime")
"""
ENTRY_POINTS = """
[switchboard.channels]
pigeon = pigeon_loft:CHANNEL

[switchboard.connectors]
pigeon = pigeon_loft:MANIFEST
"""


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package whose module is the example of a folder, under a name of its own."""
    about = tmp_path / "packages/pigeon_loft-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: pigeon-loft\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(ENTRY_POINTS)
    source = (HOME / "src/switchboard/examples/connectors/folder/folder_channel.py").read_text()
    for old, new in (('"webhook"', '"pigeon"'), ('"http"', '"loft"'), ('"folder"', '"pigeon"')):
        assert old in source
        source = source.replace(old, new)
    (about.parent / "pigeon_loft.py").write_text(source + CHANNEL)
    monkeypatch.syspath_prepend(str(about.parent))
    plug_ins.cache_clear()
    yield
    plug_ins.cache_clear()
    sys.modules.pop("pigeon_loft", None)


@pytest.mark.parametrize(
    "check", [one for one in checks_for(FolderDriver) if "a_kill" in one.__name__], ids=lambda check: check.__name__
)
def test_it_passes_the_checks(check: ConnectorCheck, tmp_path: Path) -> None:
    in_no_time(check(FolderDriver(tmp_path / "loft", manifest_of("pigeon"))))


async def test_its_messages_are_answered(database_url: str, tmp_path: Path) -> None:
    loft = tmp_path / "loft"
    (tmp_path / "birds.toml").write_text(f'channel = "pigeon"\nsettings = {{path = "{loft}"}}\n')
    account = read_account(tmp_path / "birds.toml", Path.read_text)
    tree = (TEAMS, (*RULES, rule("System1/echo", channel="pigeon")))
    async with open_server(database_url, tmp_path / "data", worker=True, tree=tree) as server:
        token = await server.token_for(Principal("connector", "birds", "pigeon", str(loft)))

        async def is_answered() -> bool:
            return len(replies_in(loft)) == 1

        async with httpx2.AsyncClient(base_url=server.url, headers=token, trust_env=False) as client:

            async def connect(_: Identity) -> httpx2.AsyncClient:
                return client

            stop = asyncio.Event()
            running = asyncio.create_task(Runner(account, connect, asyncio.get_running_loop().time).run(stop))
            put(loft, "ada", "1", "hello")
            await eventually(is_answered)
            stop.set()
            assert await running == 0
    assert "hello" in replies_in(loft)[0]
