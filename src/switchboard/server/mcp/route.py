"""The MCP tool of routing sessions: `route_to_butler`, and nothing else.

`tools.py` offers it only to the role `session`: for all others it does not exist, and a session can use nothing else,
at this interface or any other. In: the arguments that a model wrote; out: whether the call was accepted. Next:
`journey/route_call.py`.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from switchboard.app.access import SESSION, Action, Principal
from switchboard.core.classification.prompt import ROUTE_TOOL, ROUTE_TOOL_DESCRIPTION, route_schema, route_tool_schema
from switchboard.domain.errors import Forbidden, InvalidInput
from switchboard.domain.json_values import JsonObject
from switchboard.journey.route_call import take
from switchboard.server.mcp.tool_spec import McpCall, McpToolSpec, make_tool
from switchboard.server.services import Services

ROUTE: Final = Action("route", SESSION)

_SCHEMA: Final = route_schema({"type": "string", "description": "The exact name of a candidate."})


def route_tools(services: Services) -> tuple[McpToolSpec, ...]:
    """The tool over the services."""
    tool = make_tool(ROUTE_TOOL, ROUTE_TOOL_DESCRIPTION, _SCHEMA)
    return (McpToolSpec(tool, ROUTE, partial(_record_route, services), schema_for=_schema_for),)


def _schema_for(caller: Principal) -> JsonObject | None:
    """The schema with the session's candidates: many models choose better from a list, and add no names."""
    session = caller.session
    return None if session is None or not session.candidates else route_tool_schema(session.candidates)


async def _record_route(services: Services, call: McpCall) -> object:
    """Record the call. An unknown name is answered as an error, with the existing names."""
    session = call.caller.session
    if session is None:
        raise Forbidden("this tool is for routing sessions")
    try:
        result = await take(services.switchboard.runtime.database, session, call.arguments)
    except Forbidden:
        await services.access.record_refusal(call.caller, ROUTE, {"request_id": str(session.request_id)})
        raise
    if result["status"] != "accepted":
        raise InvalidInput(str(result["error"]), field="butler")
    return result
