"""Accounts that sign in by OAuth 2: `channels add gmail` and the like, and `channels login`. Called by `commands.py`.

In: a preset of a connector, or an account; out: a token file beside the account's file. Next: `connecting.py`, which
signs in with it and writes the account; `transport/oauth/sign_in.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from switchboard.app.ownership import read_ours
from switchboard.app.settings import Settings
from switchboard.cli.channels.connecting import ConnectOptions, connect_new, require_new_name
from switchboard.cli.login_terminal import LoginTerminal, read_answers
from switchboard.cli.output import Json, errors
from switchboard.connectors.kernel.accounts import connectable, manifest_of, read_declarations
from switchboard.domain.errors import ConfigurationError, InvalidInput, Unavailable
from switchboard.ports.connector import SignInPreset
from switchboard.transport.oauth.asking import CLIENT_QUESTIONS, ask_client
from switchboard.transport.oauth.providers import PROVIDERS
from switchboard.transport.oauth.sign_in import AskedAccess, sign_in_person
from switchboard.transport.oauth.token_file import KeptTokens, hold_token_lock, lock_of, read_tokens, write_tokens

_QUESTIONS: Final = CLIENT_QUESTIONS | {"address"}
"""What can be answered beforehand, beside the settings of the channel."""


def find_preset(name: str) -> tuple[str, SignInPreset] | None:
    """The channel and the preset of this name; None if there is none. Raises ConfigurationError, as `manifest_of`."""
    if name in connectable():
        return None
    manifests = (manifest_of(channel) for channel in sorted(connectable()))
    return next(((one.name, one.presets[name]) for one in manifests if name in one.presets), None)


def connect_preset(settings: Settings, wanted: ConnectOptions, channel: str, preset: SignInPreset) -> Json:
    """Have the person sign in, then add the account as `connect_new` does.

    Raises what that raises, and InvalidInput for a consent that does not suffice; then nothing was written.
    """
    name = wanted.name or wanted.channel
    file, provider = require_new_name(settings, name), PROVIDERS[preset.provider]
    answers, given = _split_answers(wanted.settings)
    places = (next(iter(wanted.secret_files), None), next(iter(wanted.secret_variables), None))
    terminal = LoginTerminal(answers, *places, asking=wanted.asking)
    if wanted.asking:
        for number, step in enumerate(preset.steps, 1):
            errors().print(f"{number}. {step}", soft_wrap=True)
    address = terminal.answer_to("address", "The address of the mailbox", None, _check_address)
    client = ask_client(terminal, provider)
    scopes = provider.scopes_for(preset.opens, write=False)
    asked = AskedAccess(client, provider, scopes, f"switchboard channels login {name}", address)
    kept = asyncio.run(_sign_in(asked, terminal))
    tokens = file.with_name(f"{name}.token")
    known = {key: value for key, value in preset.settings.items() if key not in {_group_of(one) for one in given}}
    settled = [f"address={address}", f"token_file={tokens.name}"]
    settled += [f"{key}={json.dumps(value)}" for key, value in known.items()]
    _write_tokens(tokens, kept)
    try:
        return connect_new(
            settings,
            replace(
                wanted,
                channel=channel,
                name=name,
                settings=(*settled, *given),
                secret_files=(),
                secret_variables=(),
                asking=False,
            ),
        )
    except BaseException:
        tokens.unlink(missing_ok=True)
        lock_of(tokens).unlink(missing_ok=True)
        raise


def sign_in_again(file: Path) -> KeptTokens:
    """Have the person of an account sign in once more, with the same client and scopes.

    Raises InvalidInput for an account without a token file, and what `sign_in_person` raises.
    """
    tokens = read_declarations(file, read_ours).token_file
    if tokens is None:
        raise InvalidInput(f"the account {file.stem} has no `token_file`: it signs in with a secret, or by a program")
    kept = read_tokens(tokens)
    asked = AskedAccess(kept.client, PROVIDERS[kept.client.provider], kept.scopes, kept.sign_in, kept.user)
    renewed = asyncio.run(_sign_in_again(tokens, asked))
    file.touch()  # so that its connector is started again
    return renewed


async def _sign_in_again(tokens: Path, asked: AskedAccess) -> KeptTokens:
    renewed = await _sign_in(asked, LoginTerminal({}, None, None, asking=False))
    async with hold_token_lock(tokens):
        _write_tokens(tokens, renewed)
    return renewed


async def _sign_in(asked: AskedAccess, terminal: LoginTerminal) -> KeptTokens:
    try:
        return await sign_in_person(asked, terminal)
    except OSError as error:
        raise Unavailable(f"{asked.provider.title} cannot be asked: {error}; nothing was changed") from error


def _write_tokens(tokens: Path, kept: KeptTokens) -> None:
    try:
        tokens.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_tokens(tokens, kept)
    except OSError as error:
        raise ConfigurationError(f"{error.filename or tokens} cannot be written: {error.strerror}") from error


def _split_answers(given: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The answers to questions of the sign-in, and the settings of the account."""
    answers = [one for one in given if _group_of(one) in _QUESTIONS]
    return dict(read_answers(answers)), [one for one in given if one not in answers]


def _group_of(given: str) -> str:
    return given.partition("=")[0].partition(".")[0]


def _check_address(typed: str) -> str:
    if typed.count("@") != 1 or typed.startswith("@") or typed.endswith("@") or typed.split() != [typed]:
        raise ValueError("write one address, such as desk@example.org")
    return typed
