"""What the commands look like in their help: every value has a name in capitals.

Called by `main.py` with the finished command line. Typer shows types (`<str>`, `<UUID>`), which mean nothing to people.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from uuid import UUID

from typer import Context
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

_NAMES: Final[Mapping[object, str]] = {int: "NUMBER", float: "NUMBER", Path: "FILE", UUID: "ID"}


class _Argument(TyperArgument):
    """An argument that is known by its name alone."""

    def display_type_rich(self, ctx: object) -> str | None:  # noqa: ARG002 - Typer's
        return None

    def _usage_display_name(self) -> str:
        many = "..." if self.nargs != 1 else ""
        return f"{self.display_name_raw}{many}" if self.required else f"[{self.display_name_raw}{many}]"


def name_values(command: object) -> None:
    """Name the values of all options and arguments of a command and those below it."""
    for one in _all(command):
        if (option := one.get_help_option(Context(one, help_option_names=["-h", "--help"]))) is not None:
            option.metavar = ""
        for parameter in one.params:
            if isinstance(parameter, TyperArgument):
                parameter.metavar = parameter.metavar or _capitals(parameter.name)
                parameter.__class__ = _Argument
            elif isinstance(parameter, TyperOption) and parameter.metavar is None:
                parameter.metavar = _name(parameter)


def _name(option: TyperOption) -> str:
    """Nothing for a flag; `api|cli` for a choice."""
    if option.is_flag:
        return ""
    described = option.type_descriptor
    if described.choices is not None:
        return "|".join(str(getattr(choice, "value", choice)) for choice in described.choices)
    return _NAMES.get(described.annotation, "TEXT")


def _capitals(name: str | None) -> str:
    return (name or "").replace("_", "-").upper()


def _all(command: object) -> Iterator[TyperCommand | TyperGroup]:
    if isinstance(command, TyperCommand):
        yield command
    if isinstance(command, TyperGroup):
        yield command
        for one in command.commands.values():
            yield from _all(one)
