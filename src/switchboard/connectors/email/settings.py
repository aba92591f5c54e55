"""The settings in the file of an e-mail account, and what mail can do. Read by `manifest.py` and `channel.py`."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, Field, model_validator

from switchboard.ports.connector import Capabilities

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
Tls = Literal["tls", "starttls", "none"]
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_STARTTLS: Final = frozenset({"25", "143", "587"})
"""Ports at which a connection begins in the clear."""


class Server(BaseModel, extra="forbid", frozen=True):
    """Where a mail server listens."""

    host: Annotated[str, Field(min_length=1, description="the help pages of your provider name it")]
    port: Annotated[int, Field(ge=1, le=65535, description="as a rule 993 for IMAP, 465 or 587 for SMTP")]
    tls: Tls = "tls"
    """Unless it is said, `starttls` at the ports where that is usual."""

    @model_validator(mode="before")
    @classmethod
    def _usual(cls, given: object) -> object:
        if isinstance(given, dict) and "tls" not in given and str(given.get("port")) in _STARTTLS:
            return {**given, "tls": "starttls"}
        return given

    @model_validator(mode="after")
    def _encrypted(self) -> Server:
        if self.tls == "none" and self.host not in _LOOPBACK:
            raise ValueError('`tls = "none"` sends the password in the clear: only to this machine')
        return self


class EmailAccountSettings(BaseModel, extra="forbid", frozen=True):
    """The settings of an account. With `token_command` the account signs in with XOAUTH2 instead of a password."""

    address: Annotated[str, Field(pattern=r"^[^\s<>@]+@[^\s<>@]+$", description="of the mailbox")]
    """The address of the mailbox, from which answers are sent."""
    display_name: str = ""
    user: str = ""
    """For signing in, if it is not the address."""
    token_command: tuple[str, ...] = ()
    """A program and its arguments; it prints an access token."""
    imap: Server
    smtp: Server
    folder: str = "INBOX"
    sent_folder: str = ""
    """Empty: the one that the server marks as such, else `Sent`."""
    sent_copy: Literal["auto", "always", "never"] = "auto"
    """Whether a copy of an answer is filed; `auto`: unless the provider does so by itself."""
    idle_s: Annotated[float, Field(gt=0, le=290)] = 120
    """Seconds after which the mailbox is searched although the server has announced nothing."""
