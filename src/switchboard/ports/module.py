"""The port of modules: what a butler can look up and do.

A module is found by an entry point of the group `switchboard.modules`, which names its `ModuleManifest`. Nothing opens
modules yet; only the manifest is settled. Next: `engine.py`, whose effects these are.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from switchboard.ports.engine import Effect
from switchboard.ports.tools import Risk


class ModuleTool(Struct, frozen=True):
    """A typed async function; its signature and docstring provide its schema and its help."""

    name: str
    """Begins with the name of the module: `calendar_query`."""
    call: Callable[..., Awaitable[Any]]
    effect: Effect
    risk: Risk = "low"


class ModuleManifest(Struct, frozen=True):
    """The description of a module that is not open yet. Raises `ValueError` for tools that are not named after it."""

    name: str
    tools: tuple[ModuleTool, ...]
    needs: tuple[str, ...] = ()
    """Other modules that must be open."""
    secrets: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if wrong := [tool.name for tool in self.tools if not tool.name.startswith(f"{self.name}_")]:
            raise ValueError(f"the names of tools of the module {self.name!r} begin with {self.name}_: not {wrong}")
