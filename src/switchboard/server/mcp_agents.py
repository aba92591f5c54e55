"""The MCP tool of remote butlers: butler_heartbeat.

`mcp_tools.py` offers it to agents that are remote butlers, and to operators. In: the body of the HTTP API; out: its
answer. Next: `app/registry.py`.
"""

from __future__ import annotations

from switchboard.server.http.agents import BeatBody, announcement
from switchboard.server.http.doors import Doors
from switchboard.server.mcp_offer import Call, Offer, make_tool, read, schema_of

_BEAT = "Say that this butler lives, and what is to be known of it. Come again after interval_s seconds."


def agent_offers(doors: Doors) -> tuple[Offer, ...]:
    """The tool over the register."""
    registry = doors.registry

    async def beat(call: Call) -> object:
        body = read(BeatBody, call.arguments)
        return await registry.beat(call.caller, body.system_id, announcement(body))

    return (Offer(make_tool("butler_heartbeat", _BEAT, schema_of(BeatBody)), "beat", beat, registry.is_remote),)
