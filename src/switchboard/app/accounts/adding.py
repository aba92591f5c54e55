"""A new account, from settings and secrets to its files. Nothing is written before the platform accepts the secret.

In: a manifest, and answers that `questions.py` has checked; out: an account that has signed in. Next: `files.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct
from pydantic import BaseModel

from switchboard.app.accounts.files import KeptSecret, find_new_file, known_accounts, require_single, write_account
from switchboard.app.channels import is_full
from switchboard.app.ownership import read_ours
from switchboard.app.settings import TOO_MANY_INSIDE, Settings
from switchboard.connectors.kernel.accounts import Configured, handling_of, hook_url, read_account
from switchboard.connectors.kernel.intake import Handling
from switchboard.core.people.strangers import Policy
from switchboard.domain.errors import ConfigurationError, Unavailable
from switchboard.ports.connector import Account, Identity, Manifest, SignInRefused

_SIGN_IN_S: Final = 60.0


class AskedAccount(Struct, frozen=True):
    """An account to be added."""

    manifest: Manifest
    name: str
    settings: BaseModel
    secrets: Mapping[str, KeptSecret]
    strangers: Policy | None = None

    @property
    def policy(self) -> Policy:
        """Who may write to it."""
        return self.strangers or self.manifest.strangers


class TriedAccount(Struct, frozen=True):
    """An account that has signed in, as `identity`, and is not written yet."""

    asked: AskedAccount
    file: Path
    account: Account
    identity: Identity

    @property
    def endpoint(self) -> str:
        """As in `telegram/bot:123456`."""
        return f"{self.asked.manifest.channel}/{self.identity.endpoint}"

    @property
    def hook_url(self) -> str | None:
        """Where its platform is to post events; None: it does not, or `public_url` is not set."""
        return hook_url_of(self.asked.manifest, self.account)

    @property
    def to_do(self) -> str | None:
        """What is left to do at the platform."""
        to_do = self.asked.manifest.to_do
        return to_do(self.account, self.identity) if to_do else None


def hook_url_of(manifest: Manifest, account: Account) -> str | None:
    """Where the platform is to post events of the account; None: it does not, or `public_url` is not set."""
    return account.hook_url if manifest.hook and manifest.hook(account) else None


def require_room(settings: Settings, manifest: Manifest) -> None:
    """Check that one more account of this kind could be served. Raises ConfigurationError."""
    if manifest.connects and is_full(settings, more=1):
        raise ConfigurationError(TOO_MANY_INSIDE)


async def try_account(settings: Settings, asked: AskedAccount) -> TriedAccount:
    """Sign in with the secret. Raises InvalidInput, Conflict, ConfigurationError, SignInRefused, Unavailable."""
    manifest, file = asked.manifest, find_new_file(settings, asked.name)
    require_room(settings, manifest)
    values = {name: one.value for name, one in asked.secrets.items()}
    account = Account(asked.name, asked.settings, values, hook_url(settings.public_url, asked.name), file.parent)
    _require_public(manifest, account)
    tried = TriedAccount(asked, file, account, await sign_in_account(manifest, account))
    require_single(known_accounts(settings)[0], tried.endpoint)
    return tried


def keep_account(tried: TriedAccount) -> tuple[Path, ...]:
    """Write its files, by which it is connected; returns them. Raises ConfigurationError."""
    asked = tried.asked
    handling = handling_of(asked.manifest, Handling())
    made = Configured(asked.manifest, tried.account, handling, tried.identity.endpoint)
    return write_account(tried.file, made, asked.secrets, asked.policy)


async def sign_in_account(manifest: Manifest, account: Account) -> Identity:
    """The identity of the secret's owner at the platform, if the secret also opens the server for replies.

    Accounts without a connector check themselves.

    Raises SignInRefused, Unavailable, ConfigurationError.
    """
    if not manifest.connects and manifest.hook and (hook := manifest.hook(account)):
        return Identity(hook.endpoint)
    try:
        async with asyncio.timeout(_SIGN_IN_S):
            session = await manifest.open(account)
            try:
                if manifest.can_send is not None:
                    await manifest.can_send(account)
                return session.identity
            finally:
                await session.close()
    except OSError as error:
        why = str(error) or type(error).__name__
        hint = "check its network, or try again later; nothing was changed"
        raise Unavailable(f"{manifest.name} cannot be reached from this machine ({why}): {hint}") from error


async def check_account(settings: Settings, file: Path) -> tuple[Configured, Identity]:
    """Sign in with the secret of an account that is there. Raises SignInRefused, Unavailable, ConfigurationError."""
    account = read_account(file, read_ours, settings.public_url)
    identity = await sign_in_account(account.manifest, account.account)
    if account.endpoint not in {None, identity.endpoint}:
        channel = account.manifest.channel
        raise SignInRefused(
            f"the secret belongs to {channel}/{identity.endpoint}, and the account {file.stem} is "
            f"{channel}/{account.endpoint}: put the right secret back"
        )
    return account, identity


def _require_public(manifest: Manifest, account: Account) -> None:
    """Raise ConfigurationError if the platform would have to post to a server that it cannot reach."""
    if manifest.connects and manifest.hook and manifest.hook(account) and account.hook_url is None:
        raise ConfigurationError(
            f"{manifest.name} can only post to a public address: set public_url in the settings to the one at which "
            "the world reaches this server"
        )
