"""The platforms whose servers are ours, and the account of ours that each has.

Called by `channels.py` and `footprint.py`, and by the chaos run of channels, which has these servers as processes. In:
where a server listens; out: what the account is made of. Next: `testing/platform_process.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from switchboard.domain.json_values import JsonMapping
from switchboard.testing import bot_api, discord, slack, whatsapp
from switchboard.testing.bot_api.__main__ import TelegramPlatform
from switchboard.testing.discord.__main__ import DiscordPlatform
from switchboard.testing.discord.world import BOT
from switchboard.testing.platform_process import Platform
from switchboard.testing.slack.__main__ import SlackPlatform
from switchboard.testing.slack.workspace import BOT_USER, TEAM
from switchboard.testing.whatsapp.__main__ import WhatsAppPlatform


class PlatformAccount(Struct, frozen=True, kw_only=True):
    """An account open to everybody; its file and its process have the name of the channel."""

    channel: str
    endpoint: str
    """Without the channel before it."""
    secrets: Mapping[str, str]
    settings: JsonMapping


class TriedPlatform(Struct, frozen=True, kw_only=True):
    """A platform, and the account on it; its settings follow from the URL of the server."""

    platform: Platform
    channel: str
    endpoint: str
    secrets: Mapping[str, str]
    settings: Callable[[str], JsonMapping]

    def account_at(self, url: str) -> PlatformAccount:
        """The account that connects to the server at this URL."""
        return PlatformAccount(
            channel=self.channel, endpoint=self.endpoint, secrets=self.secrets, settings=self.settings(url)
        )


TELEGRAM: Final = TriedPlatform(
    platform=TelegramPlatform(),
    channel="telegram",
    endpoint="bot:123456",
    secrets={"token": bot_api.TOKEN},
    settings=lambda url: {"api_url": url},
)
SLACK: Final = TriedPlatform(
    platform=SlackPlatform(),
    channel="slack",
    endpoint=f"{TEAM}:{BOT_USER}",
    secrets={"app_token": slack.APP_TOKEN, "bot_token": slack.BOT_TOKEN},
    settings=lambda url: {"api_url": f"{url}/api/"},
)
DISCORD: Final = TriedPlatform(
    platform=DiscordPlatform(),
    channel="discord",
    endpoint=f"bot:{BOT['id']}",
    secrets={"token": discord.TOKEN},
    settings=lambda url: {"api_url": f"{url}/api/v10"},
)
WHATSAPP: Final = TriedPlatform(
    platform=WhatsAppPlatform(),
    channel="whatsapp",
    endpoint=whatsapp.NUMBER,
    secrets={"token": whatsapp.TOKEN, "app_secret": whatsapp.APP_SECRET},
    settings=lambda url: {"api_url": url, "phone_number_id": whatsapp.NUMBER},
)
TRIED: Final = (TELEGRAM, SLACK, DISCORD, WHATSAPP)


def put_account(place: Path, account: PlatformAccount) -> None:
    """Write its file and those of its secrets into `channels.d` of a home."""
    directory, name = place / "channels.d", account.channel
    directory.mkdir(exist_ok=True)
    lines = [f'channel = "{name}"', f'endpoint = "{name}/{account.endpoint}"', 'strangers = "open"']
    for secret, value in account.secrets.items():
        file = directory / f"{name}.{secret}"
        file.touch(mode=0o600)
        file.write_text(value, encoding="utf-8")
        lines.append(f'secrets.{secret}.file = "{file.name}"')
    lines += ["[settings]", *(f"{key} = {_toml_of(value)}" for key, value in account.settings.items())]
    (directory / f"{name}.toml").write_text("\n".join(lines), encoding="utf-8")


def _toml_of(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_toml_of(one)}" for key, one in value.items()) + "}"
    return json.dumps(value)
