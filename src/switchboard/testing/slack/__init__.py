"""A strict Slack on loopback, well-behaved or not: the Web API, Socket Mode, and the people of a workspace.

For tests of apps, ours and yours: it sends events again until they are acknowledged, refuses what Slack refuses, and
fails on purpose. It contacts nobody and needs no account. Begin with `server.py`.
"""

from __future__ import annotations

from switchboard.testing.platform_server import Cut, Hang, MovableClock, Page
from switchboard.testing.slack.checks import Arguments
from switchboard.testing.slack.errors import Fault, SlackError
from switchboard.testing.slack.people import People
from switchboard.testing.slack.server import APP_TOKEN, BOT_TOKEN, SCOPES, SlackServer, WebCall
from switchboard.testing.slack.workspace import ANN, BOT, BOT_USER, TEAM, Conversation, Workspace

__all__ = [
    "ANN",
    "APP_TOKEN",
    "BOT",
    "BOT_TOKEN",
    "BOT_USER",
    "SCOPES",
    "TEAM",
    "Arguments",
    "Conversation",
    "Cut",
    "Fault",
    "Hang",
    "MovableClock",
    "Page",
    "People",
    "SlackError",
    "SlackServer",
    "WebCall",
    "Workspace",
]
