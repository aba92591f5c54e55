"""What the connector for e-mail declares. Next: `channel.py`, imported once an account is opened."""

from __future__ import annotations

from typing import Final

from switchboard.connectors.email.settings import CAPABILITIES, EmailAccountSettings
from switchboard.core.mail.providers import usual_servers
from switchboard.domain.errors import ConfigurationError
from switchboard.ports.connector import Account, Manifest, Secret, Session


async def _open_session(account: Account) -> Session:
    settings = account.settings
    if isinstance(settings, EmailAccountSettings) and not (settings.token_command or account.secrets.get("password")):
        raise ConfigurationError(f"the account {account.name!r} needs the secret `password`, or `token_command`")
    from switchboard.connectors.email.channel import open_account

    return await open_account(account)


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
        "Create an app password, or name a program that prints access tokens (`token_command`).",
    ),
    capabilities=CAPABILITIES,
    open=_open_session,
    can_send=_can_send,
    usual=usual_servers,
)
