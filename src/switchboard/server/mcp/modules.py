"""The MCP tools of modules, and calls_get.

`tools.py` offers them to the tokens of butlers. In: the arguments of a tool; out: a `ShownCall`, as in the HTTP API.
Next: `app/calls.py`.
"""

from __future__ import annotations

from typing import Final

from switchboard.app.access import Principal
from switchboard.app.calls import MODULES
from switchboard.domain.routing import SystemId
from switchboard.server.contracts.modules import WhichCall
from switchboard.server.http.modules import CALL_SERVICE
from switchboard.server.mcp.tool_spec import McpCall, McpToolSpec, tool_of
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
