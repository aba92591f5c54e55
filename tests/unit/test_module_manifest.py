"""What a module says of itself."""

from __future__ import annotations

import pytest

from switchboard.ports.module import ModuleManifest, ModuleTool


async def look_up(day: str) -> str:
    """The appointments of a day."""
    return day


def a_tool(name: str) -> ModuleTool:
    return ModuleTool(name, look_up, "idempotent")


def test_tools_are_named_after_their_module() -> None:
    assert ModuleManifest("calendar", (a_tool("calendar_query"),), needs=("contacts",)).needs == ("contacts",)
    with pytest.raises(ValueError, match=r"begin with calendar_: not \['query', 'calendars_query'\]"):
        ModuleManifest("calendar", tuple(map(a_tool, ("query", "calendar_query", "calendars_query"))))
