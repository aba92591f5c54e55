"""The needs and abilities of Telegram, as the entry point `telegram`. Next: `channel.py`."""

from __future__ import annotations

from typing import Final

from switchboard.connectors.telegram.posted import hook_of
from switchboard.connectors.telegram.settings import MAX_FILE_IN, MAX_POLL_S, MIB, TelegramAccountSettings
from switchboard.domain.ledger import MAX_CHOICES
from switchboard.ports.connector import Account, Capabilities, Manifest, Secret, Session

_ANSWER_S: Final = 10.0


async def _open(account: Account) -> Session:
    from switchboard.connectors.telegram.channel import open_session  # noqa: PLC0415  the HTTP client, only when needed

    return await open_session(account)


MANIFEST: Final = Manifest(
    name="telegram",
    channel="telegram",
    provider="telegram",
    title="Telegram",
    settings=TelegramAccountSettings,
    secrets=(Secret("token", "the token that @BotFather gave your bot, such as 123456:ABC-DEF"),),
    steps=(
        "Open Telegram and write to @BotFather.",
        "Send it /newbot, and choose a name and a username that ends in bot.",
        "It answers with a token such as 123456:ABC-DEF: copy it.",
        "To read whole groups, not only what is addressed to the bot, send it /setprivacy and choose Disable.",
    ),
    capabilities=Capabilities(
        text_limit=4096,
        text_unit="utf16",
        caption_limit=1024,
        markup="entities",
        history="window",
        idempotency="none",
        typing_s=5.0,
        max_file_in=MAX_FILE_IN,
        max_file_out=50 * MIB,
        buttons=MAX_CHOICES,
        draft_s=1.0,
        per_account_s=1 / 30,
        per_conversation_s=1.0,
        per_group=(20, 60.0),
        receive_window_s=MAX_POLL_S + _ANSWER_S,
    ),
    open=_open,
    hook=hook_of,
)
