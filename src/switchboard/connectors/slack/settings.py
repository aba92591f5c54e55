"""The settings in the file of an app's account, and limits of Slack. Read by `manifest.py` and `channel.py`."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import BaseModel, Field

GIB: Final = 1024 * 1024 * 1024
MAX_TEXT: Final = 11_500
"""Characters of a part. Slack allows 12,000 of Markdown, but refuses messages that grow too long when it escapes them.
"""


class SlackAccountSettings(BaseModel, extra="forbid", frozen=True):
    """Settings of one app in one workspace."""

    api_url: str = Field(
        default="https://slack.com/api/", pattern=r"^https?://[^\s?#]+$", title="Address of the platform"
    )
    dm: Literal["one", "threads"] = "one"
    """Whether a direct chat is one conversation, or each of its threads is."""
    follow_threads: bool = True
    """Whether everything in a thread in which the app has written is said to it."""
    catch_up_h: int = Field(default=24, ge=0, le=336)
    """How many hours back messages are fetched that were missed."""
