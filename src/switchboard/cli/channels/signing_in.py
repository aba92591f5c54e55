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

from switchboard.app.accounts.presets import (
    access_again,
    access_of,
    check_mailbox,
    replace_sign_in,
    settings_by_consent,
    tokens_for,
)
from switchboard.app.accounts.questions import put_given
from switchboard.app.settings import Settings
from switchboard.cli.channels.adding import errors_of
from switchboard.cli.channels.connecting import ConnectOptions, connect_new, require_new_name
from switchboard.cli.login_terminal import LoginTerminal, read_answers
from switchboard.cli.output import Json, errors
from switchboard.domain.errors import Unavailable
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import SignInPreset
from switchboard.transport.oauth.asking import CLIENT_QUESTIONS, ask_client
from switchboard.transport.oauth.providers import PROVIDERS
from switchboard.transport.oauth.sign_in import AskedAccess, sign_in_person
from switchboard.transport.oauth.token_file import KeptTokens

_QUESTIONS: Final = CLIENT_QUESTIONS | {"address"}
"""What can be answered beforehand, beside the settings of the channel."""


def connect_preset(settings: Settings, wanted: ConnectOptions, channel: str, preset: SignInPreset) -> Json:
    """Have the person sign in, then add the account as `connect_new` does.

    Raises what that raises, and InvalidInput for a consent that does not suffice; then nothing was written.
    """
    name = wanted.name or wanted.channel
    file = require_new_name(settings, name)
    answers, given = _split_answers(wanted.settings)
    values: JsonObject = {}
    with errors_of("--set"):
        for one in given:
            put_given(values, one)
    places = (next(iter(wanted.secret_files), None), next(iter(wanted.secret_variables), None))
    terminal = LoginTerminal(answers, *places, asking=wanted.asking)
    if wanted.asking:
        for number, step in enumerate(preset.steps, 1):
            errors().print(f"{number}. {step}", soft_wrap=True)
    address = terminal.answer_to("address", "The address of the mailbox", None, check_mailbox)
    client = ask_client(terminal, PROVIDERS[preset.provider])
    kept = asyncio.run(_sign_in(access_of(preset, client, name, address), terminal))
    settled = settings_by_consent(preset, file, address, values)
    typed = [f"{key}={one if isinstance(one, str) else json.dumps(one)}" for key, one in settled.items()]
    with tokens_for(file, kept):
        return connect_new(
            settings,
            replace(
                wanted,
                channel=channel,
                name=name,
                settings=typed,
                secret_files=(),
                secret_variables=(),
                asking=False,
            ),
        )


def sign_in_again(file: Path) -> KeptTokens:
    """Have the person of an account sign in once more, with the same client and scopes.

    Raises InvalidInput for an account without a token file, and what `sign_in_person` raises.
    """
    tokens, asked = access_again(file)
    return asyncio.run(_sign_in_again(file, tokens, asked))


async def _sign_in_again(file: Path, tokens: Path, asked: AskedAccess) -> KeptTokens:
    renewed = await _sign_in(asked, LoginTerminal({}, None, None, asking=False))
    await replace_sign_in(file, tokens, renewed)
    return renewed


async def _sign_in(asked: AskedAccess, terminal: LoginTerminal) -> KeptTokens:
    try:
        return await sign_in_person(asked, terminal)
    except OSError as error:
        raise Unavailable(f"{asked.provider.title} cannot be asked: {error}; nothing was changed") from error


def _split_answers(given: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The answers to questions of the sign-in, and the settings of the account."""
    answers = [one for one in given if _group_of(one) in _QUESTIONS]
    return dict(read_answers(answers)), [one for one in given if one not in answers]


def _group_of(given: str) -> str:
    return given.partition("=")[0].partition(".")[0]
