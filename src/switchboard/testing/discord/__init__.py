"""A strict Discord on loopback, well-behaved or not: the REST API, the gateway, and the people of a guild.

For tests of bots, ours and yours: it gives missed events again to who resumes, refuses what Discord refuses, and fails
on purpose. It contacts nobody and needs no account. Begin with `server.py`.
"""

from __future__ import annotations

from switchboard.testing.discord.errors import (
    ARCHIVED_THREAD,
    CLOSED_TO_BOT,
    LOCKED_THREAD,
    MISSING_ACCESS,
    MISSING_PERMISSIONS,
    Fault,
    FormError,
    RestError,
    too_many_requests,
)
from switchboard.testing.discord.gateway import Link, Session, Sessions
from switchboard.testing.discord.people import VOICE, People
from switchboard.testing.discord.routes import RestRequest
from switchboard.testing.discord.server import HEARTBEAT_S, TOKEN, DiscordServer, RestCall
from switchboard.testing.discord.world import ANN, BOT, FORUM, GUILD, ROLE, Channel, DiscordWorld
from switchboard.testing.platform_server import Cut, Hang, MovableClock, Page, Upload

__all__ = [
    "ANN",
    "ARCHIVED_THREAD",
    "BOT",
    "CLOSED_TO_BOT",
    "FORUM",
    "GUILD",
    "HEARTBEAT_S",
    "LOCKED_THREAD",
    "MISSING_ACCESS",
    "MISSING_PERMISSIONS",
    "ROLE",
    "TOKEN",
    "VOICE",
    "Channel",
    "Cut",
    "DiscordServer",
    "DiscordWorld",
    "Fault",
    "FormError",
    "Hang",
    "Link",
    "MovableClock",
    "Page",
    "People",
    "RestCall",
    "RestError",
    "RestRequest",
    "Session",
    "Sessions",
    "Upload",
    "too_many_requests",
]
