"""What a module says of itself."""

from __future__ import annotations

import pytest

from switchboard.domain.json_values import JsonMapping
from switchboard.ports.module import ModuleManifest, ModuleTool
from switchboard.ports.tools import ToolOutcome, ToolScope, ToolSpec


async def look_up(_: object, arguments: JsonMapping, scope: ToolScope) -> ToolOutcome:
    return ToolOutcome(f"{arguments} {scope.zone}")


def a_tool(name: str) -> ModuleTool:
    return ModuleTool(ToolSpec(name, "The appointments of a day.", {"type": "object"}, "idempotent"), look_up)


def test_tools_are_named_after_their_module() -> None:
    opens = "calendar_module:open_module"
    assert ModuleManifest("calendar", (a_tool("calendar_query"),), opens).name == "calendar"
    with pytest.raises(ValueError, match=r"begin with calendar_: not \['query', 'calendars_query'\]"):
        ModuleManifest("calendar", tuple(map(a_tool, ("query", "calendar_query", "calendars_query"))), opens)
