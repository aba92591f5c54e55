"""The settings in the file of a bot's account, and limits of Discord. Read by `manifest.py` and `channel.py`."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import BaseModel, Field

MIB: Final = 1024 * 1024
MAX_FILE_IN: Final = 500 * MIB
"""The largest file that people can send."""
MAX_FILE_OUT: Final = 10 * MIB
"""What a bot may send without a boosted server."""
MAX_TEXT: Final = 2000
DISCORD: Final = "https://discord.com/api/v10"


class DiscordAccountSettings(BaseModel, extra="forbid", frozen=True):
    """Settings of one bot. `api_url` and `gateway_url`: those of another Discord, such as one for tests."""

    message_content: bool = True
    """Whether it reads everything that is written where it is; else only direct messages, and those that mention it.

    Discord wants this permitted for the application, as its *Message Content Intent*.
    """
    quote: Literal["groups", "always", "never"] = "groups"
    """Where an answer shows the message that it answers."""
    threads: Literal["channel", "start"] = "channel"
    """Where a message of a channel is answered: there, or in a thread that begins with it."""
    follow_threads: bool = True
    """Whether everything in a thread that the bot has begun is said to it."""
    catch_up_h: int = Field(default=24, ge=0, le=336)
    """How many hours back it reads what it missed."""
    api_url: str = Field(default=DISCORD, pattern=r"^https?://[^\s?#]+$", title="Address of the platform")
    gateway_url: str | None = Field(default=None, pattern=r"^wss?://[^\s?#]+$")
    """None: where Discord says that it is."""
