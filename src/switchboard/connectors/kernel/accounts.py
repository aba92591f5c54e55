"""The file of an account, `channels.d/NAME.toml`: its channel, its settings, and where its secrets are.

A manifest checks the settings. Secrets are in other files or in environment variables, never in this file.

    channel = "telegram"
    settings = {}
    secrets.token.file = "telegram.token"   # or: secrets.token.env = "TELEGRAM_TOKEN"
    handling = {groups = "all"}
    endpoint = "telegram/bot:123456"        # whom the secret must belong to; `switchboard channels add` writes it
    strangers = "pair"                      # who may write there
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, get_args, get_origin

from msgspec import Struct
from pydantic import BaseModel, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo

from switchboard.connectors.kernel.intake import Handling
from switchboard.core.people.strangers import Policy
from switchboard.core.text.problems import after, wrong
from switchboard.core.text.words import near, offer
from switchboard.domain.errors import ConfigurationError
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import Account, Manifest
from switchboard.transport.plug_ins import plug_ins

GROUP: Final = "switchboard.connectors"

ReadFile = Callable[[Path], str]
"""Reads a file that only its owner may write to. Raises OSError, ConfigurationError."""


class _SecretPlace(BaseModel, extra="forbid", frozen=True):
    file: Path | None = None
    env: str | None = None


class _File(BaseModel, extra="forbid", frozen=True):
    channel: str
    endpoint: str | None = Field(default=None, pattern=r"^[^/]+/.+$")
    strangers: Policy | None = None
    settings: JsonObject = {}
    secrets: Mapping[str, _SecretPlace] = {}
    handling: Handling = Handling()

    @model_validator(mode="after")
    def _policies_are_of_endpoints(self) -> _File:
        if self.strangers is not None and self.endpoint is None:
            raise ValueError("strangers needs the endpoint beside it, which `switchboard channels test NAME` shows")
        return self


class Configured(Struct, frozen=True):
    """An account that can be opened. `endpoint` is the platform id that it must have; None allows any."""

    manifest: Manifest
    account: Account
    handling: Handling
    endpoint: str | None = None


class Declared(Struct, frozen=True):
    """The contents of an account's file, with neither secrets nor settings checked.

    `endpoint` is channel and endpoint, as in `telegram/bot:123456`; `secret_files` are the files of its secrets. Not
    `receives`: its settings say `receive = false`. `token_file` is renewed by its connector.
    """

    channel: str
    endpoint: str | None
    strangers: Policy | None
    secret_files: tuple[Path, ...]
    receives: bool = True
    token_file: Path | None = None


def read_account(file: Path, read: ReadFile, public_url: str | None = None) -> Configured:
    """Read an account from its file; paths in it are relative to the file. Raises ConfigurationError.

    `public_url`: the address of the server on the internet.
    """
    parsed = _parse_file(file, read)
    manifest = manifest_of(parsed.channel)
    try:
        settings = manifest.settings.model_validate(parsed.settings)
    except ValidationError as error:
        raise ConfigurationError(f"{file}: settings: {wrong_setting(error, manifest.settings)}") from error
    secrets = _secrets(manifest, parsed.secrets, file, read)
    endpoint = _endpoint(manifest, parsed.endpoint, file)
    account = Account(file.stem, settings, secrets, hook_url(public_url, file.stem), file.parent)
    return Configured(manifest, account, handling_of(manifest, parsed.handling), endpoint)


def read_declarations(file: Path, read: ReadFile) -> Declared:
    """Read the declarations in the file of an account. Raises ConfigurationError."""
    parsed = _parse_file(file, read)
    files = tuple(file.parent / place.file for place in parsed.secrets.values() if place.file is not None)
    receives = parsed.settings.get("receive") is not False
    tokens = parsed.settings.get("token_file")
    token_file = file.parent / tokens if isinstance(tokens, str) and tokens else None
    return Declared(parsed.channel, parsed.endpoint, parsed.strangers, files, receives, token_file)


def handling_of(manifest: Manifest, said: Handling) -> Handling:
    """The handling that the file asks for, combined with the platform's default age limit for messages."""
    usual = dict(zip(("stale_direct_s", "stale_group_s"), manifest.capabilities.stale_s, strict=True))
    return said.model_copy(update={name: value for name, value in usual.items() if name not in said.model_fields_set})


def hook_url(public_url: str | None, name: str) -> str | None:
    """The URL to which other programs post events of the account; None without a public address."""
    return f"{public_url.rstrip('/')}/hooks/{name}" if public_url else None


def pause_file(file: Path) -> Path:
    """The file next to an account's; while it exists, nobody connects the account."""
    return file.with_suffix(".paused")


def _parse_file(file: Path, read: ReadFile) -> _File:
    try:
        found = tomllib.loads(read(file))
    except OSError as error:
        raise ConfigurationError(f"the account {file.stem!r} has no file {file}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # also for bytes that are not text, and for infinite numbers
        raise ConfigurationError(f"{file} is not TOML: {error}") from error
    try:
        return _File.model_validate(found)
    except ValidationError as error:
        raise ConfigurationError(f"{file}: {wrong_setting(error, _File)}") from error


def _endpoint(manifest: Manifest, named: str | None, file: Path) -> str | None:
    channel, _, endpoint = (named or "").partition("/")
    if named is not None and channel != manifest.channel:
        raise ConfigurationError(f"{file}: endpoint: {named} is not an endpoint of the channel {manifest.channel}")
    return endpoint or None


def connectable() -> frozenset[str]:
    """The channels for which a package with a connector is installed."""
    return frozenset(entry.name for entry in plug_ins(GROUP))


def manifest_of(name: str) -> Manifest:
    """The manifest that an installed package registers under this name. Raises ConfigurationError."""
    found = {entry.name: entry for entry in plug_ins(GROUP)}
    if name not in found:
        raise ConfigurationError(f"there is no channel {name!r} to connect{offer(name, found)}")
    try:
        manifest = found[name].load()
    except Exception as error:  # it is the code of others
        raise ConfigurationError(f"the channel {name!r} cannot be loaded: {str(error) or repr(error)}") from error
    if not isinstance(manifest, Manifest):
        raise ConfigurationError(f"the entry point {name!r} of {GROUP} is not a Manifest")
    return manifest


def _secrets(manifest: Manifest, places: Mapping[str, _SecretPlace], file: Path, read: ReadFile) -> dict[str, str]:
    known = {secret.name for secret in manifest.secrets}
    if unknown := sorted(places.keys() - known):
        raise ConfigurationError(f"{file}: the channel {manifest.name!r} has no secret {unknown[0]!r}")
    found = {name: _secret(name, place, file, read) for name, place in places.items()}
    for secret in manifest.secrets:
        if not secret.optional and secret.name not in found:
            raise ConfigurationError(f"{file}: secrets.{secret.name} is missing: {secret.what}")
    return found


def _secret(name: str, place: _SecretPlace, file: Path, read: ReadFile) -> str:
    if (place.file is None) == (place.env is None):
        raise ConfigurationError(f"{file}: secrets.{name} needs either file or env")
    try:
        value = read(file.parent / place.file) if place.file is not None else os.environ.get(str(place.env), "")
    except FileNotFoundError as error:  # as after a restore without secrets
        missing = file.parent / str(place.file)
        raise ConfigurationError(
            f"{file}: secrets.{name}: the file {missing} is missing; put it there again"
        ) from error
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{file}: secrets.{name} cannot be read: {error}") from error
    if not value.strip():
        raise ConfigurationError(f"{file}: secrets.{name} is empty: {place.file or place.env}")
    return value.strip()


def wrong_setting(error: ValidationError, model: type[BaseModel]) -> str:
    """What is wrong with settings of a file or a command line; misspelt names first: they explain missing ones."""
    problems = error.errors(include_url=False)
    first = next((one for one in problems if one["type"] == "extra_forbidden"), problems[0])
    path = tuple(map(str, first["loc"]))
    name = ".".join(path)
    if first["type"] == "extra_forbidden":
        meant = near(name, _paths_in(model))
        known = f"; there are: {', '.join(sorted(model.model_fields))}" if len(path) == 1 else ""
        return f"{name} is not a setting" + (f"; did you mean {meant[0]}?" if meant else known)
    if first["type"] == "missing":
        return _missing(path, model)
    return after(name, wrong(first))


def _paths_in(model: type[BaseModel], above: str = "") -> Iterator[str]:
    """All settings, those of groups as `imap.host`."""
    for name, field in model.model_fields.items():
        group = field.annotation
        if isinstance(group, type) and issubclass(group, BaseModel):
            yield from _paths_in(group, f"{above}{name}.")
        else:
            yield above + name


def hint_of(field: FieldInfo) -> str:
    """Valid values of a setting, in words or as its choices; empty if neither is known."""
    choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    return field.description or ", ".join(map(str, choices))


def _missing(path: Sequence[str], model: type[BaseModel]) -> str:
    """The message for a missing setting, with its valid values; for a group, its first required setting."""
    name, *below = path
    field = model.model_fields.get(name)
    group = field.annotation if field is not None else None
    if isinstance(group, type) and issubclass(group, BaseModel):
        needed = [name for name, one in group.model_fields.items() if one.is_required()]
        return f"{name}.{_missing(below or needed[:1], group)}" if below or needed else f"{name} is missing"
    hint = hint_of(field) if field is not None else ""
    return f"{'.'.join(path)} is missing" + (f": {hint}" if hint else "")
