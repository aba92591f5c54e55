"""A new account, from what was typed to its files: `channels add` and `init` call it. Next: `adding.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import typer
from msgspec import Struct

from switchboard.app.accounts.adding import AskedAccount, keep_account, require_room, try_account
from switchboard.app.accounts.files import find_new_file, known_accounts
from switchboard.app.accounts.tokens import require_free
from switchboard.app.settings import Settings
from switchboard.cli.channels.adding import errors_of, secrets_of, settings_of
from switchboard.cli.channels.served import served_endpoints
from switchboard.cli.client import Client, ask
from switchboard.cli.names import butlers_with_tools
from switchboard.cli.output import Json, NoServer, clean, errors
from switchboard.connectors.kernel.accounts import connectable, manifest_of
from switchboard.core.channels.registry import CHANNELS
from switchboard.core.people.strangers import Policy, owner_by_code_mistake
from switchboard.core.text.words import offer
from switchboard.ports.connector import Identity, Manifest

_NOBODYS: Final = "none"
_NO_CODE: Final = "owners are made by a code, and none is needed where strangers is {policy}; leave one of the two out"


class ConnectOptions(Struct, frozen=True):
    """The typed options; with `asking`, missing ones are asked for. `name` None: the channel's name.

    `owner`: the butler that the sender of the code will own; None: nobody said, and with `asking` it is asked.
    """

    channel: str
    name: str | None
    settings: Sequence[str]
    secret_files: Sequence[str]
    secret_variables: Sequence[str]
    strangers: Policy | None
    asking: bool
    owner: str | None = None


def connect_new(settings: Settings, wanted: ConnectOptions) -> Json:
    """Sign in and write the files of the account; returns what was added, for `print_next`.

    Raises BadParameter, ConfigurationError, Conflict, SignInRefused, Unavailable; then nothing was written.
    """
    manifest, name = _find_manifest(wanted), wanted.name or wanted.channel
    channel = CHANNELS[manifest.channel]
    if wanted.owner is not None and (why := owner_by_code_mistake(channel)):
        raise typer.BadParameter(why, param_hint="--owner")
    require_new_name(settings, name)
    require_room(settings, manifest)
    if wanted.asking and not (wanted.secret_files or wanted.secret_variables):
        _print_steps(manifest)
    values = settings_of(manifest, wanted.settings, ask=wanted.asking)
    secrets = secrets_of(manifest, wanted.secret_files, wanted.secret_variables, ask=wanted.asking)
    asked = AskedAccount(manifest, name, values, secrets, wanted.strangers)
    if wanted.owner is not None and asked.policy != "pair":
        raise typer.BadParameter(_NO_CODE.format(policy=asked.policy), param_hint="--owner")
    for problem in known_accounts(settings)[1]:
        errors().print(clean(problem), style="yellow", soft_wrap=True)
    tried = asyncio.run(try_account(settings, asked))
    _require_free(name, tried.endpoint)
    butlers = _butlers_with_tools()
    by_code = asked.policy == "pair" and owner_by_code_mistake(channel) is None
    owner_of = _owner_of(wanted, butlers) if by_code else None
    written = keep_account(tried)
    return {
        "name": name,
        "channel": manifest.channel,
        "endpoint": tried.identity.endpoint,
        "display_name": tried.identity.display_name,
        "strangers": asked.policy,
        "files": list(map(str, written)),
        "connects": manifest.connects,
        "hook_url": tried.hook_url,
        "to_do": None if tried.to_do is None else clean(tried.to_do),
        "pairing": _make_code(manifest, tried.identity, owner_of) if asked.policy == "pair" else None,
        "owner_of": owner_of,
        "butlers_with_tools": None if butlers is None else list(butlers.values()),
    }


def _find_manifest(wanted: ConnectOptions) -> Manifest:
    """Raises BadParameter for an unknown channel, ConfigurationError for one that cannot be loaded."""
    installed = connectable()
    if wanted.channel not in installed:
        known = [*installed, *(preset for one in installed for preset in manifest_of(one).presets)]
        unknown = f"there is no channel {wanted.channel!r} to connect{offer(wanted.channel, known)}"
        raise typer.BadParameter(unknown, param_hint="CHANNEL")
    return manifest_of(wanted.channel)


def require_new_name(settings: Settings, name: str) -> Path:
    """The file of a new account. Raises BadParameter, Conflict."""
    with errors_of("NAME"):
        return find_new_file(settings, name)


def _print_steps(manifest: Manifest) -> None:
    for number, step in enumerate(manifest.steps, 1):
        errors().print(f"{number}. {step}", soft_wrap=True)
    if manifest.to_paste:
        errors().print(f"\n{manifest.to_paste}\n", soft_wrap=True)


def _require_free(name: str, account: str) -> None:
    """Check with the server, if it runs, that nobody else connects it. Raises SignInRefused."""

    async def check(client: Client) -> None:
        require_free(served_endpoints(await client.whole("/v1/tokens", "tokens")), name, account)

    with suppress(NoServer):
        ask(check)


def _butlers_with_tools() -> Mapping[str, str] | None:
    """The butlers with tools; None if no server runs."""
    try:
        return ask(butlers_with_tools)
    except NoServer:
        return None


def _owner_of(wanted: ConnectOptions, butlers: Mapping[str, str] | None) -> str | None:
    """The butler that the sender of the code will own; asked for if a server runs. Raises BadParameter."""
    if butlers is None:
        return wanted.owner
    if wanted.owner is not None:
        return _known_butler(butlers, "--owner", wanted.owner)
    if not (wanted.asking and butlers):
        return None
    names = ", ".join(butlers)
    errors().print(f"Butlers use their tools only for their owners. With tools are: {names}", soft_wrap=True)
    question = "Which one should belong to the person who sends the code?"
    right = partial(_known_butler, {**butlers, _NOBODYS: ""}, None)
    return typer.prompt(question, default=_NOBODYS, value_proc=right, err=True) or None


def _known_butler(butlers: Mapping[str, str], option: str | None, typed: str) -> str:
    """The system_id of a butler by its name."""
    word = typed.strip()
    if word in butlers:
        return butlers[word]
    if word in butlers.values():
        return word
    raise typer.BadParameter(f"there is no butler {word!r} with tools{offer(word, butlers)}", param_hint=option)


def _make_code(manifest: Manifest, identity: Identity, owner_of: str | None) -> Json | None:
    """A code for who adds the account; None if no server runs."""
    body = {"channel": manifest.channel, "endpoint": identity.endpoint, "owner_of": owner_of}
    try:
        return ask(lambda client: client.post("/v1/pairing/codes", body))
    except NoServer:
        return None
