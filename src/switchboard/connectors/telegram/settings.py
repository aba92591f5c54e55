"""The settings in the file of a bot's account, and limits of the Bot API. Read by `manifest.py` and `channel.py`."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import BaseModel, Field

MIB: Final = 1024 * 1024
MAX_FILE_IN: Final = 20 * MIB
"""Bytes: larger files are not given to bots."""
MAX_POLL_S: Final = 50


class TelegramAccountSettings(BaseModel, extra="forbid", frozen=True):
    """Settings of one bot. `api_url`: your own Bot API server; `poll_s`: how long a poll waits for updates."""

    api_url: str = Field(
        default="https://api.telegram.org", pattern=r"^https?://[^\s?#]+$", title="Address of the platform"
    )
    poll_s: int = Field(default=30, ge=1, le=MAX_POLL_S, title="Seconds that a poll waits for messages")
    quote: Literal["groups", "always", "never"] = Field(default="groups", title="Where answers quote the message")
    """Where an answer shows the message that it answers."""
    drafts: bool = Field(default=True, title="Show answers while they are written")
    """Whether private chats show an answer while it is written."""
    webhook: bool = Field(default=False, title="Receive by webhook")
    """Telegram posts updates to the server, and is not polled."""
