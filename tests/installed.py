"""Modules that a test writes, installed as packages of their own with the entry point that names them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from switchboard.domain.json_values import JsonMapping
from switchboard.domain.routing import Member
from switchboard.modules.kernel.manifests import find_manifest
from switchboard.modules.kernel.opened import Installation
from switchboard.modules.kernel.quarantine import NoQuarantine, Quarantine
from switchboard.modules.kernel.tables import read_table
from switchboard.transport.plug_ins import plug_ins
from tests.routing import member

DIARY: Final = '''
from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from switchboard.ports.module import ModuleManifest, typed_tool
from switchboard.ports.tools import ToolScope


class DiarySettings(Struct, frozen=True):
    owner: str = "Ann"
    most: Annotated[int, Meta(ge=1)] = 3


class DiaryGrants(Struct, frozen=True):
    days: tuple[str, ...] = ()


async def diary_read(diary: Diary, scope: ToolScope, day: str) -> str:
    """What is planned for a day."""
    days = scope.grant.days
    return f"{diary.settings.owner}: nothing on {day}" if not days or day in days else "that day is not for you"


async def diary_add(diary: Diary, day: str, what: str) -> str:
    """Plan something."""
    diary.planned.append((day, what))
    return f"planned: {what}"


class Diary:
    chores = ()

    def __init__(self, context) -> None:
        self.settings, self.secrets, self.needs = context.settings, context.secrets, context.needs
        self.planned = []
        self.closed = False

    async def aclose(self) -> None:
        self.closed = True


def open_diary(context):
    return Diary(context)


TOOLS = (
    typed_tool(diary_read, effect="idempotent", reach="inside"),
    typed_tool(diary_add, effect="effectful", core=False),
)
MANIFEST = ModuleManifest(
    "diary", TOOLS, "diary_module:open_diary", settings=DiarySettings, grants=DiaryGrants, secrets=("DIARY_KEY",)
)
'''
"""A module with a table in the settings, grants, and a tool that models must ask for."""
_NOTHING: Final = NoQuarantine()


def install(place: Path, patch: pytest.MonkeyPatch, sources: Mapping[str, str]) -> None:
    """Install modules for this process: the source of each, in a file `NAME_module.py` with a `MANIFEST`."""
    write_packages(place, sources)
    patch.syspath_prepend(str(place))
    forget(sources)


def write_packages(place: Path, sources: Mapping[str, str]) -> None:
    """The same for another process, which has `place` in its PYTHONPATH."""
    about = place / "some_modules-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: some-modules\nVersion: 1.0\n")
    points = "".join(f"{name} = {name}_module:MANIFEST\n" for name in sources)
    (about / "entry_points.txt").write_text(f"[switchboard.modules]\n{points}")
    for name, source in sources.items():
        (place / f"{name}_module.py").write_text(source)


def forget(names: Mapping[str, str]) -> None:
    """Nothing is known any more of these modules."""
    for name in names:
        sys.modules.pop(f"{name}_module", None)
    importlib.invalidate_caches()
    plug_ins.cache_clear()
    find_manifest.cache_clear()


def butler(modules: object, name: str = "System1/clerk") -> Member:
    """A butler whose option `modules` is this."""
    return member(name, modules=modules)


def installation(
    *members: Member, tables: Mapping[str, JsonMapping] | None = None, quarantine: Quarantine = _NOTHING
) -> Installation:
    """An installation that has these butlers, without tables of modules."""
    return Installation(
        lambda: members, lambda manifest: read_table(manifest, tables or {}), lambda _: {}, quarantine=quarantine
    )
