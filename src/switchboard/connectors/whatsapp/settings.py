"""The settings in the file of a number's account, and limits of WhatsApp. Read by `manifest.py` and `channel.py`."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, Field

MIB: Final = 1024 * 1024
MAX_FILE: Final = 100 * MIB
MAX_BODY: Final = 1024
"""Characters of a caption, and of a text with buttons below it."""
MAX_LABEL: Final = 20
WINDOW_S: Final = 24 * 3600.0
"""For how long a business may write freely after a person has written."""
MAX_URL: Final = 200
GRAPH_URL: Final = "https://graph.facebook.com"
MEDIA_HOST: Final = "lookaside.fbsbx.com"
"""Where Meta keeps files; besides the Graph API the only host that gets the token."""


class WhatsAppAccountSettings(BaseModel, extra="forbid", frozen=True):
    """Settings of one number."""

    phone_number_id: str = Field(
        pattern=r"^[0-9]{5,25}$", description="the Phone number ID under WhatsApp, API Setup; not the number itself"
    )
    reopen_template: str = Field(
        default="",
        pattern=r"^([a-z0-9_]{1,512}/[A-Za-z_]{2,10})?$",
        description="an approved template without variables, as NAME/LANGUAGE, that asks people to write again",
    )
    """Sent, at most once a day, to whom an answer is more than a day late; empty: such an answer has failed."""
    graph_version: str = Field(default="v25.0", pattern=r"^v[0-9]{2}\.[0-9]$")
    api_url: str = Field(default=GRAPH_URL, pattern=r"^https?://[^\s?#]+$", title="Address of the platform")

    @property
    def template(self) -> tuple[str, str] | None:
        """Name and language of the template."""
        name, _, language = self.reopen_template.partition("/")
        return (name, language) if name else None
