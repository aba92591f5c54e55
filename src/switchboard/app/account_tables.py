"""Adds the account of a module to the settings file, without changing any other byte of it.

`login_desk.py` calls it when a wizard has checked the account. In: the table; out: the file, longer by it, and a file
beside it that only we may read, with the password. Without a settings file it says what to set in the environment.
"""

from __future__ import annotations

import json
import os
import shlex
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from switchboard.app.ownership import read_ours, write_private
from switchboard.app.settings_file import FILE_NAME
from switchboard.distribution import OUR_VARIABLES
from switchboard.domain.errors import ConfigurationError, Conflict
from switchboard.domain.json_values import JsonMapping
from switchboard.ports.login_desk import TypedPassword

_HEAD: Final = "# Written by `switchboard modules login`; it is yours to edit. Restart the workers after a change."


class NewAccount(Struct, frozen=True):
    """An account of a module that is not in the settings yet."""

    module: str
    name: str
    table: JsonMapping

    @property
    def path(self) -> tuple[str, ...]:
        """Where it is in the settings."""
        return ("modules", self.module, "accounts", self.name)

    @property
    def password_file(self) -> str:
        """The name of the file with its password, beside the settings."""
        return f"{self.module}-{self.name}.password"


def add_account(account: NewAccount, password: TypedPassword | None) -> tuple[Path, ...]:
    """Write the files: first the password, unless there is none, or it stays in a variable. Returns what was written.

    Raises Conflict if there is such an account, and ConfigurationError if a file cannot be written or read afterwards.
    """
    file = Path(FILE_NAME)
    kept = file.with_name(account.password_file)
    writes = password is not None and not password.env
    try:
        before = read_ours(file)
        after = _with_table(before, account, {**account.table, **_place_of(password, kept.name)})
        _require_only_that(file, before, after, account)
        if password is not None and writes:
            _write_new(kept, password.value)
        with file.open("a", encoding="utf-8") as opened:
            opened.write(after.removeprefix(before))
            opened.flush()
            os.fsync(opened.fileno())
    except OSError as error:
        raise ConfigurationError(f"{error.filename or file} cannot be written: {error.strerror}") from error
    return (file, kept) if writes else (file,)


def has_settings_file() -> bool:
    """Whether there is a file of settings here."""
    return Path(FILE_NAME).is_file()


def describe_variables(account: NewAccount, module: JsonMapping, password: TypedPassword | None) -> str:
    """What to set where all settings are in the environment: all that the module has there, and this account."""
    variable = f"{OUR_VARIABLES}{'__'.join(account.path[:2]).upper()}"
    known = module.get("accounts")
    named = password is None or bool(password.env)
    new = {**account.table, **_place_of(password and TypedPassword("", password.env or "NAME_OF_A_VARIABLE"), "")}
    wanted = {**module, "accounts": {**(known if isinstance(known, Mapping) else {}), account.name: new}}
    told = f"There is no {FILE_NAME} here. Set in the environment of the server and the workers:\n"
    told += f"{variable}={shlex.quote(json.dumps(wanted, ensure_ascii=False))}"
    return told if named else f"{told}\nand put the password into the variable that you name there"


def _place_of(password: TypedPassword | None, file: str) -> JsonMapping:
    """Where the password is, as in the settings."""
    if password is None:
        return {}
    return {"password": {"env": password.env} if password.env else {"file": file}}


def _write_new(file: Path, password: str) -> None:
    if file.exists():
        raise Conflict(f"{file} is there already: remove it, or give the account another name")
    write_private(file, f"{password}\n")


def _with_table(before: str, account: NewAccount, table: JsonMapping) -> str:
    head = ".".join(account.path[:3]) + f".{account.name}"
    lines = [_HEAD, f"[{head}]", *(f"{name} = {toml_value(value)}" for name, value in table.items())]
    gap = "" if not before else "\n" if before.endswith("\n") else "\n\n"
    return before + gap + "\n".join(lines) + "\n"


def _require_only_that(file: Path, before: str, after: str, account: NewAccount) -> None:
    """Raise if the file, with the table, would not say the same as before, and this."""
    try:
        old, new = tomllib.loads(before), tomllib.loads(after)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(
            f"{file}: the table [{'.'.join(account.path)}] cannot be added ({error}): write modules as tables, such as "
            f"[modules.{account.module}], and not as values in braces"
        ) from error
    inner = new
    for name in account.path[:-1]:
        inner = inner[name]
    del inner[account.name]
    if _without_empty(old) != _without_empty(new):
        raise ConfigurationError(f"{file}: adding the account {account.name} would change other settings")


def _without_empty(values: object) -> object:
    """Tables that are only there because of others in them do not count."""
    if not isinstance(values, Mapping):
        return values
    inner = {name: _without_empty(value) for name, value in values.items()}
    return {name: value for name, value in inner.items() if value != {}}


def toml_value(value: object) -> str:
    """A value as TOML on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(name)} = {toml_value(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
