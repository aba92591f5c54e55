"""Common features of all commands: the option `--json`, and help with a name in capitals for every value.

Called by `main.py` with the finished command line. Typer shows types (`<str>`, `<UUID>`), which mean nothing to people.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Final
from uuid import UUID

import typer
from typer import Context
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from switchboard.cli.output import set_json

MODULE: Final = "switchboard.cli.main"
"""What `python -m` runs in child processes."""

_NAMES: Final[Mapping[object, str]] = {int: "NUMBER", float: "NUMBER", Path: "FILE", UUID: "ID"}
_WITH_JSON: Final = typer.Typer(add_completion=False)
_JSON: Final = typer.Option(
    "--json", help="Print one JSON object on stdout, for scripts.", callback=set_json, expose_value=False
)


@_WITH_JSON.command()
def _with_json(*, wanted: Annotated[bool, _JSON] = False) -> None:
    """Adds the common option of all commands."""


class _Argument(TyperArgument):
    """An argument shown by its name alone."""

    def display_type_rich(self, ctx: object) -> str | None:  # noqa: ARG002 - Typer's
        return None

    def _usage_display_name(self) -> str:
        many = "..." if self.nargs != 1 else ""
        return f"{self.display_name_raw}{many}" if self.required else f"[{self.display_name_raw}{many}]"


def offer_json(command: object, *, but: str) -> None:
    """Let all commands except `but` accept `--json`; `wants_json` tells whether it was given."""
    (option,) = get_command(_WITH_JSON).params
    for one in _all(command):
        if one.name != but and (not isinstance(one, TyperGroup) or one.invoke_without_command):
            one.params.append(option)


def name_values(command: object) -> None:
    """Name the values of all options and arguments of a command and those below it."""
    for one in _all(command):
        if (option := one.get_help_option(Context(one, help_option_names=["-h", "--help"]))) is not None:
            option.metavar = ""
        for parameter in one.params:
            if isinstance(parameter, TyperArgument):
                parameter.metavar = parameter.metavar or (parameter.name or "").replace("_", "-").upper()
                parameter.__class__ = _Argument
            elif isinstance(parameter, TyperOption) and parameter.metavar is None:
                parameter.metavar = _name(parameter)


def _name(option: TyperOption) -> str:
    """The name of a value: empty for a flag; `api|cli` for a choice."""
    if option.is_flag:
        return ""
    described = option.type_descriptor
    if described.choices is not None:
        return "|".join(str(getattr(choice, "value", choice)) for choice in described.choices)
    return _NAMES.get(described.annotation, "TEXT")


def _all(command: object) -> Iterator[TyperCommand | TyperGroup]:
    if isinstance(command, TyperCommand):
        yield command
    if isinstance(command, TyperGroup):
        yield command
        for one in command.commands.values():
            yield from _all(one)
