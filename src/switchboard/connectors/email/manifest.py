"""What the connector for e-mail declares. Next: `channel.py`, imported once an account is opened."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from switchboard.domain.errors import ConfigurationError
from switchboard.ports.connector import Account, Capabilities, Manifest, Secret, Session

Tls = Literal["tls", "starttls", "none"]
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


class Server(BaseModel):
    """Where a mail server listens."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str
    port: Annotated[int, Field(ge=1, le=65535)]
    tls: Tls = "tls"

    @model_validator(mode="after")
    def _encrypted(self) -> Server:
        if self.tls == "none" and self.host not in _LOOPBACK:
            raise ValueError('`tls = "none"` sends the password in the clear: only to this machine')
        return self


class Settings(BaseModel):
    """The settings of an account. With `token_command` the account signs in with XOAUTH2 instead of a password."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    address: Annotated[str, Field(pattern=r"^[^\s<>@]+@[^\s<>@]+$")]
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


async def _open(account: Account) -> Session:
    settings = account.settings
    if isinstance(settings, Settings) and not (settings.token_command or account.secrets.get("password")):
        raise ConfigurationError(f"the account {account.name!r} needs the secret `password`, or `token_command`")
    try:
        from switchboard.connectors.email.channel import open_account
    except ModuleNotFoundError as error:
        raise ConfigurationError("e-mail needs the extra `email`: pip install 'switchboard[email]'") from error
    return await open_account(account)


MANIFEST: Final = Manifest(
    name="email",
    channel="email",
    provider="imap",
    settings=Settings,
    secrets=(Secret("password", "the password of the mailbox; an app password where there are some", optional=True),),
    strangers="listed",
    steps=(
        "Create a mailbox of its own for your butler; it answers whatever arrives there.",
        "Find the names of its IMAP and SMTP servers in the help pages of your provider.",
        "Create an app password, or name a program that prints access tokens (`token_command`).",
    ),
    capabilities=Capabilities(
        text_limit=1_000_000,
        caption_limit=1_000_000,
        markup="html",
        history="cursor",
        idempotency="lookup",
        max_file_in=25_000_000,
        max_file_out=18_000_000,  # base64 makes 25 MB of it
        receive_window_s=300,
        on_uncertain="ask",
        brake=(4, 600),
        stale_s=(3 * 86_400.0, 3 * 86_400.0),
    ),
    open=_open,
)
