"""What Telegram needs and can do, as the entry point `telegram`. Next: `channel.py`."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from switchboard.ports.connector import Account, Capabilities, Manifest, Secret, Session

_MIB: Final = 1024 * 1024
_ANSWER_S: Final = 10.0
MAX_POLL_S: Final = 50


class Settings(BaseModel):
    """Of one bot. `api_url`: of a Bot API server of your own; `poll_s`: how long a poll waits for news."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    api_url: str = Field(default="https://api.telegram.org", pattern=r"^https?://[^\s?#]+$")
    poll_s: int = Field(default=30, ge=1, le=MAX_POLL_S)
    quote: Literal["groups", "always", "never"] = "groups"
    """Where an answer shows the message that it answers."""


async def _open(account: Account) -> Session:
    from switchboard.connectors.telegram.channel import open_session  # noqa: PLC0415  the HTTP client, only when needed

    return await open_session(account)


MANIFEST: Final = Manifest(
    name="telegram",
    channel="telegram",
    provider="telegram",
    settings=Settings,
    secrets=(Secret("token", "the token that @BotFather gave your bot, such as 123456:ABC-DEF"),),
    steps=(
        "Open Telegram and write to @BotFather.",
        "Send him /newbot, and choose a name and a username that ends in bot.",
        "He answers with a token such as 123456:ABC-DEF: copy it.",
        "To read whole groups, not only what is addressed to the bot, send him /setprivacy and choose Disable.",
    ),
    capabilities=Capabilities(
        text_limit=4096,
        text_unit="utf16",
        caption_limit=1024,
        markup="entities",
        history="window",
        idempotency="none",
        typing_s=5.0,
        max_file_in=20 * _MIB,
        max_file_out=50 * _MIB,
        per_account_s=1 / 30,
        per_conversation_s=1.0,
        per_group=(20, 60.0),
        receive_window_s=MAX_POLL_S + _ANSWER_S,
    ),
    open=_open,
)
