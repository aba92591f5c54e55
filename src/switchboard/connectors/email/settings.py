"""The settings in the file of an e-mail account, and what mail can do. Read by `manifest.py` and `channel.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, Field

from switchboard.ports.connector import Capabilities
from switchboard.transport.mail_servers.server import Server

CAPABILITIES: Final = Capabilities(
    text_limit=1_000_000,
    caption_limit=1_000_000,
    markup="html",
    history="cursor",
    idempotency="lookup",
    max_file_in=25_000_000,
    max_file_out=18_000_000,  # base64 makes 25 MB of it
    files_per_part=100,
    receive_window_s=300,
    on_uncertain="ask",
    brake=(4, 600),
    stale_s=(3 * 86_400.0, 3 * 86_400.0),
)
"""What mail can do, unless the SMTP server takes less."""


class EmailAccountSettings(BaseModel, extra="forbid", frozen=True):
    """The settings of an account. With `token_file` or `token_command` it signs in with XOAUTH2, without a password."""

    address: Annotated[str, Field(pattern=r"^[^\s<>@]+@[^\s<>@]+$", description="of the mailbox")]
    """The address of the mailbox, from which answers are sent."""
    display_name: str = ""
    user: str = ""
    """For signing in, if it is not the address."""
    token_command: Annotated[tuple[str, ...], Field(json_schema_extra={"local": True})] = ()
    """A program and its arguments; it prints an access token."""
    token_file: Path | None = None
    """The file of a sign-in by OAuth 2, which `switchboard channels add gmail` writes; beside that of the account."""
    imap: Server
    smtp: Server
    folder: str = "INBOX"
    sent_folder: str = ""
    """Empty: the one that the server marks as such, else `Sent`."""
    sent_copy: Literal["auto", "always", "never"] = "auto"
    """Whether a copy of an answer is filed; `auto`: unless the provider does so by itself."""
    receive: bool = True
    """If not, nothing that arrives is taken in: the account sends the mails that butlers write, and no more."""
    idle_s: Annotated[float, Field(gt=0, le=290)] = 120
    """Seconds after which the mailbox is searched although the server has announced nothing; of an account that does
    not receive, those after which it is seen whether the SMTP server is there."""
