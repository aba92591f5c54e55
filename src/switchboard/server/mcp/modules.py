"""The MCP tools of modules, and calls_get.

`tools.py` offers them to the tokens of butlers: those that the butler may use for whom the token is. They are known by
the manifests of modules, none of which is open here. In: the arguments of a tool; out: a `ShownCall`, as in the HTTP
API. Next: `app/calls.py`.
"""

from __future__ import annotations

from typing import Final

from switchboard.app.access import Principal
from switchboard.app.calls import MODULES
from switchboard.core.calls import WantedCall
from switchboard.domain.json_values import JsonObject
from switchboard.domain.routing import SystemId
from switchboard.ports.tools import ToolSpec
from switchboard.server.contracts.modules import WhichCall
from switchboard.server.http.modules import CALL_SERVICE
from switchboard.server.mcp.tool_spec import McpCall, McpToolSpec, make_tool, result_of, tool_of
from switchboard.server.services import Services

_GET: Final = "Show a call of a tool that was `pending`: its result, or what it waits for. `wait_s`: wait for its end."


def module_tools(services: Services) -> tuple[McpToolSpec, ...]:
    """The tools over the calls."""
    calls = services.of(CALL_SERVICE)

    async def get(call: McpCall, body: WhichCall) -> object:
        return await calls.get(call.caller, body.call_id, call.gone, body.wait_s)

    def may_call(caller: Principal) -> bool:
        if caller.role == "operator":
            return True
        member = services.runtime.rule_book.rules.members.get(SystemId(caller.system_id or ""))
        return member is not None and member.number == 1

    return (tool_of("calls_get", _GET, WhichCall, MODULES, get, may_call),)


class ModuleTools:
    """The tools of modules, which differ between callers."""

    def __init__(self, services: Services) -> None:
        self._calls = services.of(CALL_SERVICE)
        self._schemas: dict[str, JsonObject] = {}
        """Of the tools that were listed: a manifest does not change while it is loaded."""

    async def list_for(self, caller: Principal) -> list[McpToolSpec]:
        """The tools that this caller may call."""
        if caller.role != "agent":
            return []
        found = [self._spec_of(tool.spec) for tool in await self._calls.offered_tools(caller)]
        self._schemas |= {one.tool.name: one.tool.input_schema for one in found}
        return found

    async def find(self, caller: Principal, name: str) -> McpToolSpec | None:
        """One of them."""
        return next((one for one in await self.list_for(caller) if one.tool.name == name), None)

    def schema_of(self, name: str) -> JsonObject | None:
        """The schema of the arguments of a tool that was listed before."""
        return self._schemas.get(name)

    def _spec_of(self, tool: ToolSpec) -> McpToolSpec:
        async def run(call: McpCall) -> object:
            wanted = WantedCall(tool.name, dict(call.arguments), key=call.key)
            made = await self._calls.call(call.caller, wanted, call.gone)
            return result_of(made, is_error=made.state == "failed")

        return McpToolSpec(make_tool(tool.name, tool.description, dict(tool.parameters)), MODULES, run)
