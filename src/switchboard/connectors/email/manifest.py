"""What the connector for e-mail declares. Next: `channel.py`, imported once an account is opened."""

from __future__ import annotations

from typing import Final

from switchboard.connectors.email.presets import GMAIL, MICROSOFT
from switchboard.connectors.email.settings import CAPABILITIES, EmailAccountSettings
from switchboard.core.mail.providers import usual_servers
from switchboard.domain.errors import ConfigurationError
from switchboard.ports.connector import Account, Manifest, Secret, Session


async def _open_session(account: Account) -> Session:
    _require_one_way_in(account)
    from switchboard.connectors.email.channel import open_account

    return await open_account(account)


def _require_one_way_in(account: Account) -> None:
    settings = account.settings
    if not isinstance(settings, EmailAccountSettings):
        return
    others = account.secrets.get("password") or settings.token_command
    if settings.token_file and others:
        raise ConfigurationError(f"the account {account.name!r} has a `token_file`, and needs no other way to sign in")
    if not (settings.token_file or others):
        raise ConfigurationError(
            f"the account {account.name!r} needs the secret `password`, `token_command` or `token_file`"
        )


async def _can_send(account: Account) -> None:
    from switchboard.connectors.email.channel import try_sending

    await try_sending(account)


MANIFEST: Final = Manifest(
    name="email",
    channel="email",
    provider="imap",
    title="e-mail",
    settings=EmailAccountSettings,
    secrets=(Secret("password", "the password of the mailbox; an app password where there are some", optional=True),),
    strangers="listed",
    steps=(
        "Create a separate mailbox for your butler; it answers everything that arrives there.",
        "Find the names of its IMAP and SMTP servers in the help pages of your provider; those of the large ones are "
        "known here.",
        "Create an app password, or name a program that prints access tokens (`token_command`). For Gmail and "
        "Microsoft 365 without a password: `switchboard channels add gmail`, or `microsoft`.",
    ),
    capabilities=CAPABILITIES,
    open=_open_session,
    can_send=_can_send,
    usual=usual_servers,
    presets={"gmail": GMAIL, "microsoft": MICROSOFT},
)
