"""Accounts that somebody opens by consenting at a provider (OAuth 2): what is asked for, and their token file.

The command line and the page are two faces of it. In: a preset of a connector, or an account; out: what a sign-in asks
for, and the settings of the account. Next: `transport/oauth/sign_in.py`, `adding.py`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from switchboard.app.ownership import read_ours
from switchboard.connectors.kernel.accounts import connectable, manifest_of, read_declarations
from switchboard.domain.errors import ConfigurationError, InvalidInput, NotFound
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import SignInPreset
from switchboard.transport.oauth.providers import PROVIDERS
from switchboard.transport.oauth.sign_in import AskedAccess
from switchboard.transport.oauth.token_file import (
    KeptTokens,
    OAuthClient,
    lock_of,
    read_tokens,
    replace_tokens,
    write_tokens,
)


def find_preset(name: str) -> tuple[str, SignInPreset] | None:
    """The channel and the preset of this name; None if there is none. Raises ConfigurationError, as `manifest_of`."""
    if name in connectable():
        return None
    manifests = (manifest_of(channel) for channel in sorted(connectable()))
    return next(((one.name, one.presets[name]) for one in manifests if name in one.presets), None)


def access_of(preset: SignInPreset, client: OAuthClient, name: str, address: str) -> AskedAccess:
    """What the sign-in of a new account asks for."""
    provider = PROVIDERS[preset.provider]
    scopes = provider.scopes_for(preset.opens, write=False)
    return AskedAccess(client, provider, scopes, f"switchboard channels login {name}", address)


def access_again(file: Path) -> tuple[Path, AskedAccess]:
    """The token file of an account, and what its sign-in asks for: the same once more.

    Raises InvalidInput for an account without a token file, and ConfigurationError.
    """
    tokens = read_declarations(file, read_ours).token_file
    if tokens is None:
        raise InvalidInput(f"the account {file.stem} has no `token_file`: it signs in with a secret, or by a program")
    kept = read_tokens(tokens)
    return tokens, AskedAccess(kept.client, PROVIDERS[kept.client.provider], kept.scopes, kept.sign_in, kept.user)


async def replace_sign_in(file: Path, tokens: Path, kept: KeptTokens) -> None:
    """Put the tokens of another consent in place of those of an account, whose connector is then started again.

    Raises NotFound if the account was removed meanwhile, as a consent takes minutes, and ConfigurationError.
    """
    if not await asyncio.to_thread(file.exists):
        raise NotFound(f"the account {file.stem} was removed meanwhile: add it again")
    try:
        await replace_tokens(tokens, kept)
        os.utime(file)
    except OSError as error:
        raise ConfigurationError(f"{error.filename or tokens} cannot be written: {error.strerror}") from error


def check_mailbox(typed: str) -> str:
    """Raises ValueError unless it is the address of a mailbox."""
    if typed.count("@") != 1 or typed.startswith("@") or typed.endswith("@") or typed.split() != [typed]:
        raise ValueError("write one address, such as desk@example.org")
    return typed


def settings_by_consent(preset: SignInPreset, file: Path, address: str, given: JsonObject) -> JsonObject:
    """The settings of a new account: those of the preset, except groups that were given."""
    known = {name: value for name, value in preset.settings.items() if name not in given}
    return {"address": address, "token_file": tokens_beside(file).name, **known, **given}


def tokens_beside(file: Path) -> Path:
    """Where the tokens of an account are kept that is added by consent."""
    return file.with_name(f"{file.stem}.token")


def require_own_tokens(file: Path) -> None:
    """Check that no other account signs in by the token file of a new one. Raises ConfigurationError."""
    tokens = tokens_beside(file)
    for other in sorted(file.parent.glob("*.toml")):
        with suppress(ConfigurationError):
            if other != file and read_declarations(other, read_ours).token_file == tokens:
                break
    else:
        return
    raise ConfigurationError(f"the account {other.stem} signs in by {tokens}: give the new account another name")


@contextmanager
def tokens_for(file: Path, kept: KeptTokens) -> Iterator[None]:
    """The token file of a new account is there within the block, and stays if the account's file is there at its end.

    Raises ConfigurationError.
    """
    require_own_tokens(file)
    tokens = tokens_beside(file)
    try:
        tokens.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_tokens(tokens, kept)
    except OSError as error:
        raise ConfigurationError(f"{error.filename or tokens} cannot be written: {error.strerror}") from error
    try:
        yield
    finally:
        if not file.exists():
            tokens.unlink(missing_ok=True)
            lock_of(tokens).unlink(missing_ok=True)
