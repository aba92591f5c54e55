"""The needs and abilities of Discord, as the entry point `discord`. Next: `channel.py`."""

from __future__ import annotations

from typing import Final

from switchboard.connectors.discord.settings import (
    MAX_FILE_IN,
    MAX_FILE_OUT,
    MAX_TEXT,
    DiscordAccountSettings,
)
from switchboard.ports.connector import Account, Capabilities, Dialect, Identity, Manifest, Secret, Session

_TO_WRITE: Final = 274_878_008_384
"""View channels, send messages, also in threads, read their history, attach files, add reactions."""
_TO_BEGIN_THREADS: Final = 1 << 35


async def _open_bot(account: Account) -> Session:
    from switchboard.connectors.discord.channel import open_session  # noqa: PLC0415  the clients, only when needed

    return await open_session(account)


def _invitation_for(account: Account, identity: Identity) -> str:
    settings, bot = account.settings, identity.endpoint.partition(":")[2]
    starts = isinstance(settings, DiscordAccountSettings) and settings.threads == "start"
    asked = _TO_WRITE + (_TO_BEGIN_THREADS if starts else 0)
    url = f"https://discord.com/oauth2/authorize?client_id={bot}&scope=bot&permissions={asked}"
    return f"To invite {identity.display_name or 'the bot'} to your server, open this address and choose it:\n  {url}"


MANIFEST: Final = Manifest(
    name="discord",
    channel="discord",
    provider="discord",
    title="Discord",
    settings=DiscordAccountSettings,
    secrets=(Secret("token", "the token of the bot, from its page Bot"),),
    steps=(
        "Open discord.com/developers/applications, press New Application, and name it.",
        "Under Bot press Reset Token, and copy the token.",
        "On the same page switch on Message Content Intent; without it the bot reads only direct messages and messages "
        "that mention it.",
        "When the token has been tested, open the address that is shown then, and choose your server.",
    ),
    to_do=_invitation_for,
    capabilities=Capabilities(
        text_limit=MAX_TEXT,
        text_unit="utf16",  # Discord does not say in what it counts; nothing counts more
        caption_limit=MAX_TEXT,
        markup="markdown",
        dialect=Dialect(headings=3),
        mentions=r"@(?=everyone|here)|<(?=@[!&]?\d|#\d|id:|/[^\s:>])",
        history="window",
        idempotency="key",
        key_window_s=120.0,
        typing_s=10.0,
        max_file_in=MAX_FILE_IN,
        max_file_out=MAX_FILE_OUT,
        files_per_part=10,
        buttons=25,
        label_limit=80,
        per_account_s=0.03,
        receive_window_s=90.0,
    ),
    open=_open_bot,
)
