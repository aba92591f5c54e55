"""The MCP tool of routing sessions: `route_to_butler`, and nothing else.

`mcp_tools.py` offers it to the role `session` alone: to all others it is neither listed nor there, and a session finds
nothing else, at this door or any other. In: the arguments that a model wrote; out: whether the call was accepted. Next:
`journey/route_call.py`.
"""

from __future__ import annotations

from typing import Any, Final

from switchboard.app.access import Principal
from switchboard.core.pipeline.prompt import (
    MAX_REASON,
    MAX_SEGMENT,
    ROUTE_TOOL,
    ROUTE_TOOL_DESCRIPTION,
    route_tool_schema,
)
from switchboard.domain.errors import Forbidden, InvalidInput
from switchboard.journey.route_call import take
from switchboard.server.http.doors import Doors
from switchboard.server.mcp_offer import Call, Offer, make_tool

_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "butler": {"type": "string", "description": "The name of a candidate, letter by letter."},
        "segment": {
            "type": "string",
            "maxLength": MAX_SEGMENT,
            "description": "The part of the message for this butler, word by word; left out when it gets the whole.",
        },
        "reason": {"type": "string", "maxLength": MAX_REASON, "description": "Why, in one short sentence."},
    },
    "required": ["butler"],
    "additionalProperties": False,
}


def route_offers(doors: Doors) -> tuple[Offer, ...]:
    """The tool over the parts behind the doors."""
    tool = make_tool(ROUTE_TOOL, ROUTE_TOOL_DESCRIPTION, _SCHEMA)
    return (Offer(tool, "route", _RouteTool(doors).route, schema_for=_schema_for),)


def _schema_for(caller: Principal) -> dict[str, Any] | None:
    """With the names of the session's own candidates: many models choose better from a list, and can write no other."""
    session = caller.session
    return None if session is None or not session.candidates else route_tool_schema(session.candidates)


class _RouteTool:
    """What the tool does."""

    def __init__(self, doors: Doors) -> None:
        self._database = doors.switchboard.core.database
        self._access = doors.access

    async def route(self, call: Call) -> object:
        """Put the call on record. What names nobody is answered as an error, with the names that there are."""
        session = call.caller.session
        if session is None:
            raise Forbidden("this tool is for routing sessions")
        try:
            result = await take(self._database, session, call.arguments)
        except Forbidden:
            await self._access.refused(call.caller, "route", {"request_id": str(session.request_id)})
            raise
        if result["status"] != "accepted":
            raise InvalidInput(str(result["error"]), field="butler")
        return result
