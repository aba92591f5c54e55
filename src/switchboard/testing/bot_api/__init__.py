"""A strict server of Telegram's Bot API on loopback, well-behaved or not.

For tests of bots, ours and yours: it repeats updates until they are confirmed, refuses what Telegram refuses, and fails
on purpose. It contacts nobody and needs no account. Begin with `server.py`.
"""

from __future__ import annotations

from switchboard.testing.bot_api.checks import Params, utf16
from switchboard.testing.bot_api.faults import ApiError, Fault, Status
from switchboard.testing.bot_api.people import People
from switchboard.testing.bot_api.server import TOKEN, BotApi, Call, Webhook
from switchboard.testing.bot_api.world import ANN, BOT, Chat, World
from switchboard.testing.platform_server import Cut, Hang, Page, Upload

__all__ = [
    "ANN",
    "BOT",
    "TOKEN",
    "ApiError",
    "BotApi",
    "Call",
    "Chat",
    "Cut",
    "Fault",
    "Hang",
    "Page",
    "Params",
    "People",
    "Status",
    "Upload",
    "Webhook",
    "World",
    "utf16",
]
