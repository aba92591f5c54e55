"""Calls of the Bot API as they are, for tests of its server and of what talks to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2

from switchboard.domain.json_values import JsonObject
from switchboard.testing.bot_api import TOKEN, BotApi


class Bot:
    """A bot that does nothing by itself."""

    def __init__(self, client: httpx2.AsyncClient, url: str, token: str = TOKEN) -> None:
        self._client, self.base = client, f"{url}/bot{token}"

    async def __call__(self, method: str, **params: object) -> JsonObject:
        """The whole answer, a failure too."""
        answer = await self._client.post(f"{self.base}/{method}", json=params)
        found: JsonObject = answer.json()
        assert found["ok"] == answer.is_success
        return found

    async def updates(self, **params: object) -> list[JsonObject]:
        """What getUpdates gives."""
        found: list[JsonObject] = (await self("getUpdates", **params))["result"]
        return found


@asynccontextmanager
async def bot_of(api: BotApi) -> AsyncIterator[Bot]:
    """A bot of this server."""
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
        yield Bot(client, api.url)
