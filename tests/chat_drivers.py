"""The other sides of chats: of each platform a driver, against its strict server, for the laws and `make kit`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

from msgspec import Struct

from switchboard.testing.bot_api import BotApi
from switchboard.testing.connectors import Driver
from switchboard.testing.discord import DiscordServer
from switchboard.testing.slack import SlackServer
from switchboard.testing.whatsapp import WhatsAppServer
from tests.discord_driver import DiscordDriver
from tests.drivers import TelegramDriver
from tests.slack_driver import AGAIN_AFTER_S, SlackDriver
from tests.whatsapp_driver import WhatsAppDriver, whatsapp_driver


class Chat(Struct, frozen=True):
    """`driver` says which laws are checked; `open` gives one of a new platform."""

    driver: type[Driver]
    open: Callable[[], AbstractAsyncContextManager[Driver]]


@asynccontextmanager
async def _telegram() -> AsyncIterator[Driver]:
    async with BotApi() as server:
        yield TelegramDriver(server)


@asynccontextmanager
async def _slack() -> AsyncIterator[Driver]:
    async with SlackServer(again_after=AGAIN_AFTER_S) as server:
        yield SlackDriver(server)


@asynccontextmanager
async def _discord() -> AsyncIterator[Driver]:
    async with DiscordServer() as server:
        yield DiscordDriver(server)


@asynccontextmanager
async def _whatsapp() -> AsyncIterator[Driver]:
    async with WhatsAppServer() as server, whatsapp_driver(server) as driver:
        yield driver


CHATS: Final[Mapping[str, Chat]] = {
    "telegram": Chat(TelegramDriver, _telegram),
    "slack": Chat(SlackDriver, _slack),
    "discord": Chat(DiscordDriver, _discord),
    "whatsapp": Chat(WhatsAppDriver, _whatsapp),
}
