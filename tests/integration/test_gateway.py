"""The gateway at `/v1/ws`: chats over a WebSocket, from a foreign client to turns in a worker and back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from switchboard.app.access import Principal
from tests.gateway import client, socket
from tests.servers import Opened, open_server


@pytest.fixture
async def server(database_url: str, tmp_path: Path) -> AsyncIterator[Opened]:
    async with open_server(database_url, tmp_path / "data") as opened:
        yield opened


async def test_a_client_shows_its_token_and_is_welcome(server: Opened) -> None:
    async with client(server.url, server.token) as one:
        assert one.welcome["speaker"] == {"channel": "gateway", "endpoint": "operator-1", "sender": "operator-1"}
        assert (await one.call("ping"))["at"].endswith("Z")
