"""What many tests of parts begin with: a server with or without a worker, a database, Telegram."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from switchboard.store.database import Database
from switchboard.testing.bot_api import BotApi
from tests.servers import Opened, open_server


@pytest.fixture
async def server(database_url: str, tmp_path: Path) -> AsyncIterator[Opened]:
    """A server that accepts and decides."""
    async with open_server(database_url, tmp_path / "data") as opened:
        yield opened


@pytest.fixture
async def answering(database_url: str, tmp_path: Path) -> AsyncIterator[Opened]:
    """One with a worker, which answers too."""
    async with open_server(database_url, tmp_path / "data", worker=True) as opened:
        yield opened


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """A pool of connections to the test's own database."""
    opened = await Database.connect(database_url)
    yield opened
    await opened.close()


@pytest.fixture
async def api() -> AsyncIterator[BotApi]:
    """Telegram."""
    async with BotApi() as opened:
        yield opened
