"""Implements `switchboard channels add`: reading settings and secrets, signing in, writing the account's files.

`commands.py` calls it. In: typed values; out: an account that has signed in, and its files. Nothing is written before
the platform has accepted the secret. Next: `connectors/kernel/accounts.py`, which reads the file.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import typer
from pydantic import BaseModel, ValidationError, create_model
from pydantic.fields import FieldInfo

from switchboard.app.account_tables import toml_value
from switchboard.app.ownership import write_private
from switchboard.cli.given_secrets import secret_in_file, secret_in_variable
from switchboard.cli.missing import MissingOption
from switchboard.cli.output import errors, prompt_for
from switchboard.connectors.kernel.accounts import Configured, Declared, hint_of, wrong_setting
from switchboard.core.channels.registry import CHANNELS
from switchboard.core.people.strangers import Policy
from switchboard.core.text.problems import wrong
from switchboard.domain.errors import ConfigurationError, Conflict, Unavailable
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import Account, Identity, Manifest, Secret
from switchboard.ports.surroundings import MAX_HEARD

_SIGN_IN_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class KeptSecret:
    """A secret, and where it is kept: in the environment variable `env`, otherwise in a file of its own."""

    value: str = field(repr=False)
    env: str | None = None


def settings_of(manifest: Manifest, given: Sequence[str], *, ask: bool) -> BaseModel:
    """The settings given as `NAME=VALUE`; missing ones are derived or asked for. Raises BadParameter."""
    values: JsonObject = {}
    for one in given:
        name, is_set, value = one.partition("=")
        if not (is_set and name):
            raise typer.BadParameter(
                f"{one!r}: write NAME=VALUE, such as imap.host=imap.example.org", param_hint="--set"
            )
        _put_value(values, name.split("."), _read_value(value))
    for path, setting in _wanted_fields(manifest.settings, FieldInfo.is_required):
        values = _with_usual(manifest, values)
        if ask and not _has_value(values, path):
            _put_value(values, path, _asked_setting(path, setting))
    for path, setting in _wanted_fields(manifest.settings, _is_worth_asking) if ask else ():
        if not _has_value(values, path) and (typed := _asked_setting(path, setting, default="")):
            _put_value(values, path, typed)
    try:
        return manifest.settings.model_validate(values)
    except ValidationError as error:
        # `from None`: pydantic's message would otherwise replace this sentence, which names the setting.
        raise typer.BadParameter(wrong_setting(error, manifest.settings), param_hint="--set") from None


def secrets_of(
    manifest: Manifest, files: Sequence[str], variables: Sequence[str], *, ask: bool
) -> Mapping[str, KeptSecret]:
    """The secrets by name; missing ones are asked for without echo. Raises BadParameter."""
    found = {name: KeptSecret(secret_in_file(path)) for name, path in _name_secrets(manifest, files, "--secret-file")}
    found |= {
        name: KeptSecret(secret_in_variable(env), env)
        for name, env in _name_secrets(manifest, variables, "--secret-env")
    }
    for secret in manifest.secrets:
        if secret.name not in found and (value := _ask_secret(secret) if ask else ""):
            found[secret.name] = KeptSecret(value)
        if secret.name not in found and not secret.optional:
            raise MissingOption(
                f"write {secret.name}=FILE, or {secret.name}=- for stdin: {secret.what}", param_hint="--secret-file"
            )
    return found


async def signed_in(manifest: Manifest, account: Account) -> Identity:
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
        raise Unavailable(f"{manifest.name} cannot be reached: {why}; nothing was changed") from error


def require_single(others: Mapping[str, Declared], endpoint: str) -> None:
    """Check that no other account has this endpoint, as in `telegram/bot:123456`. Raises Conflict."""
    if twin := next((name for name, one in others.items() if one.endpoint == endpoint), None):
        raise Conflict(f"{endpoint} is connected by the account {twin} already: `switchboard channels show {twin}`")


def write_account(
    file: Path, account: Configured, secrets: Mapping[str, KeptSecret], strangers: Policy
) -> tuple[Path, ...]:
    """Write the files of an account that has signed in, secrets first: its own file connects it at once.

    Raises ConfigurationError.
    """
    kept = {name: file.with_name(f"{file.stem}.{name}") for name, one in secrets.items() if one.env is None}
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, place in kept.items():
            write_private(place, secrets[name].value + "\n")
        write_private(file, _account_file_text(account, secrets, kept, strangers))
    except OSError as error:
        raise ConfigurationError(f"{error.filename or file} cannot be written: {error.strerror}") from error
    return (file, *kept.values())


def _account_file_text(
    account: Configured, secrets: Mapping[str, KeptSecret], kept: Mapping[str, Path], strangers: Policy
) -> str:
    places = {name: {"file": kept[name].name} if name in kept else {"env": one.env} for name, one in secrets.items()}
    settings = account.account.settings.model_dump(mode="json", exclude_unset=True)
    lines = {
        "channel": account.manifest.name,
        "endpoint": f"{account.manifest.channel}/{account.endpoint}",
        "strangers": strangers,
        "settings": settings,
        "secrets": places,
    }
    if not CHANNELS[account.manifest.channel].personal:
        lines["handling"] = {"heard": MAX_HEARD}
    head = "# Written by `switchboard channels add`; it is yours to edit, and changes take effect within seconds."
    return "\n".join([head, *(f"{name} = {toml_value(value)}" for name, value in lines.items())]) + "\n"


def _put_value(values: JsonObject, path: Sequence[str], value: object) -> None:
    *groups, name = path
    for group in groups:
        values = values.setdefault(group, {})
        if not isinstance(values, dict):
            raise typer.BadParameter(f"{'.'.join(path)}: {group} is a value already", param_hint="--set")
    values[name] = value


def _has_value(values: object, path: Sequence[str]) -> bool:
    for name in path:
        if not isinstance(values, dict) or name not in values:
            return False
        values = values[name]
    return True


def _read_value(typed: str) -> object:
    """Lists and tables are written as JSON; everything else stays text, which the settings parse."""
    if typed.startswith(("[", "{")):
        try:
            return json.loads(typed)
        except ValueError:
            return typed
    return typed


def _with_usual(manifest: Manifest, values: JsonObject) -> JsonObject:
    """Add the usual values that belong to the given ones, changing none of these."""
    usual = manifest.usual(values) if manifest.usual else {}
    return {**usual, **values}


def _asked_setting(path: Sequence[str], setting: FieldInfo, default: str | None = None) -> object:
    """Ask until the typed value is valid. `default`: what Enter alone stands for."""
    right = create_model("Typed", value=(setting.annotation or str, setting))
    hint = hint_of(setting)
    if default == "":
        hint = f"{setting.description}; Enter: as usual"
    asked = prompt_for(".".join(path), hint)

    def checked(typed: str) -> object:
        try:
            right.model_validate({"value": _read_value(typed.strip())})
        except ValidationError as error:
            raise typer.BadParameter(wrong(error.errors(include_url=False)[0])) from error
        return _read_value(typed.strip())

    value: object = typer.prompt(asked, default=default, show_default=False, value_proc=checked, err=True)
    return value


def _wanted_fields(
    settings: type[BaseModel], wanted: Callable[[FieldInfo], bool], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], FieldInfo]]:
    """The settings that are wanted, also those of groups; of a group that may be left out none is required."""
    for name, setting in settings.model_fields.items():
        kind = setting.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            if wanted is not FieldInfo.is_required or setting.is_required():
                yield from _wanted_fields(kind, wanted, (*above, name))
        elif wanted(setting):
            yield (*above, name), setting


def _is_worth_asking(setting: FieldInfo) -> bool:
    """Whether it should be thought of, though it can be left out."""
    return isinstance(setting.json_schema_extra, dict) and bool(setting.json_schema_extra.get("ask"))


def _name_secrets(manifest: Manifest, given: Sequence[str], option: str) -> Iterator[tuple[str, str]]:
    """Name and place of each secret; the name may be omitted if the channel has, or needs, only one."""
    known = [secret.name for secret in manifest.secrets]
    needed = [secret.name for secret in manifest.secrets if not secret.optional or len(known) == 1]
    for one in given:
        name, is_named, place = one.partition("=")
        if is_named and name in known:
            yield name, place
        elif len(needed) == 1:
            yield needed[0], one
        else:
            raise typer.BadParameter(
                f"{one!r} names no secret: write NAME=…; there are: {', '.join(known) or 'none'}", param_hint=option
            )


def _ask_secret(secret: Secret) -> str:
    errors().print(f"{secret.name}: {secret.what}; it is not shown while you type", soft_wrap=True)
    default = "" if secret.optional else None
    typed: str = typer.prompt(secret.name, default=default, show_default=False, hide_input=True, err=True)
    return typed.strip()
