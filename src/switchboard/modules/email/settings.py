"""The tables `[modules.email]` and `[modules.email.accounts.NAME]`. The kernel reads them; `opened.py` hands them on.

It imports no library, as the manifest names it. Next: `modules/accounts/walls.py`, who may see into an account.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct, field

from switchboard.modules.accounts.settings import AccountName, PasswordPlace, check_owner

_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


class ImapPlace(Struct, frozen=True):
    """Where mails are read."""

    host: Annotated[str, Meta(min_length=1)]
    port: Annotated[int, Meta(ge=1, le=65535)] = 993
    tls: Literal["tls", "starttls", "none"] = "tls"

    def check(self) -> None:
        """Raises ValueError."""
        if self.tls == "none" and self.host not in _LOOPBACK:
            raise ValueError('`tls = "none"` sends the password in the clear: only to this machine')


class MailAccount(Struct, frozen=True):
    """A mailbox, which is a person's or a household's. All that tools show of it is decided by that."""

    imap: ImapPlace
    user: str
    password: PasswordPlace | None = None
    person: str = ""
    """The id of the person whose mailbox it is, as in `switchboard people list`."""
    group: str = ""
    """Of a household's mailbox: the group of people whose members share it."""
    writes_as: tuple[str, ...] = ()
    """The addresses from which its person writes, besides `user` if that is one."""
    trusted_servers: tuple[str, ...] = ()
    """The names (`authserv-id`) by which its server marks mails with the results of its checks of senders."""
    token_file: Path | None = None
    """The file that `switchboard modules login google` or `microsoft` has written, instead of a password."""

    @property
    def busy_for(self) -> tuple[str, ...]:
        """Of mail there is nothing that others see."""
        return ()

    @property
    def own_addresses(self) -> frozenset[str]:
        """In lower case."""
        return frozenset(one.lower() for one in (*self.writes_as, self.user) if "@" in one)

    @property
    def sends_as(self) -> tuple[str, ...]:
        """The addresses from which mails are written for it, in lower case, the first one by default."""
        return tuple(dict.fromkeys(one.lower() for one in (*self.writes_as, self.user) if "@" in one))

    def check(self) -> None:
        """Raises ValueError."""
        check_owner(self.person, self.group)
        if (self.password is None) == (self.token_file is None):
            raise ValueError('give either `password`, as {file = "…"} or {env = "…"}, or `token_file`')


class EmailGrants(Struct, frozen=True):
    """What the option `modules` of a butler may say of the module."""

    send_as: tuple[str, ...] | None = None
    """The addresses from which the butler may write; left out: those of every account that it sees for a person."""


class EmailModuleSettings(Struct, frozen=True):
    """The mailboxes that can be searched, by the names that tools and operators use."""

    accounts: Mapping[AccountName, MailAccount] = field(default_factory=dict)
