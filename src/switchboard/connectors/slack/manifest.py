"""The needs and abilities of Slack, as the entry point `slack`, and the description of the app that people make there.

Imports no client. Next: `channel.py`.
"""

from __future__ import annotations

import json
from typing import Final

from switchboard.connectors.slack.scopes import PLACES, SCOPES
from switchboard.connectors.slack.settings import GIB, MAX_TEXT, SlackAccountSettings
from switchboard.domain.json_values import JsonObject
from switchboard.domain.ledger import MAX_CHOICES
from switchboard.ports.connector import Account, Capabilities, Identity, Manifest, Secret, Session

_EVENTS: Final = ("app_mention", *(f"message.{place}" for place in PLACES), "reaction_added")
APP: Final[JsonObject] = {
    "display_information": {"name": "Switchboard"},
    "features": {
        "agent_view": {"agent_description": "Answers what you write to it."},
        "app_home": {
            "home_tab_enabled": False,
            "messages_tab_enabled": True,
            "messages_tab_read_only_enabled": False,
        },
        "bot_user": {"display_name": "Switchboard", "always_online": True},
    },
    "oauth_config": {"scopes": {"bot": list(SCOPES)}},
    "settings": {
        "event_subscriptions": {"bot_events": list(_EVENTS)},
        "interactivity": {"is_enabled": True},
        "socket_mode_enabled": True,
        "org_deploy_enabled": False,
        "token_rotation_enabled": False,
    },
}
"""What Slack calls the manifest of an app."""


async def _open_account(account: Account) -> Session:
    from switchboard.connectors.slack.channel import open_session  # noqa: PLC0415  the HTTP client, only when needed

    return await open_session(account)


async def _can_receive_and_send(account: Account) -> None:
    from switchboard.connectors.slack.channel import check_app  # noqa: PLC0415  the HTTP client, only when needed

    await check_app(account)


def _to_do(_: Account, identity: Identity) -> str:
    return (
        f"In each channel where it should read, write: /invite {identity.display_name or '@NAME'}\n"
        "Slack gives it only messages of channels that it is in."
    )


MANIFEST: Final = Manifest(
    name="slack",
    channel="slack",
    provider="slack",
    title="Slack",
    settings=SlackAccountSettings,
    secrets=(
        Secret("app_token", "the app-level token, which begins with xapp-"),
        Secret("bot_token", "the Bot User OAuth Token, which begins with xoxb-"),
    ),
    steps=(
        "Open https://api.slack.com/apps, press Create New App, choose From a manifest and your workspace, and paste "
        "the text below as JSON.",
        "Under Basic Information, App-Level Tokens, generate a token with the scope connections:write, and copy it.",
        "Under Install App, install it to the workspace, and copy the Bot User OAuth Token.",
    ),
    to_paste=json.dumps(APP, indent=2),
    to_do=_to_do,
    capabilities=Capabilities(
        text_limit=MAX_TEXT,
        markup="markdown",
        mentions=r"<(?=[@!#])|(?<![\w.+-])@(?=(?:channel|here|everyone)\b)",
        history="cursor",
        idempotency="lookup",
        typing_s=100.0,
        max_file_in=GIB,
        max_file_out=GIB,
        files_per_part=10,
        buttons=MAX_CHOICES,
        per_conversation_s=1.0,
        receive_window_s=60.0,
    ),
    open=_open_account,
    can_send=_can_receive_and_send,
)
