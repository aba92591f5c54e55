"""The MCP tool of remote butlers: butler_heartbeat.

`tools.py` offers it to agents that are remote butlers, and to operators. In: the body of the HTTP API; out: its
answer. Next: `app/remote_agents.py`.
"""

from __future__ import annotations

from switchboard.app.remote_agents import BEAT
from switchboard.server.http.agents import REMOTE_AGENT_SERVICE, BeatBody, announcement
from switchboard.server.mcp.tool_spec import McpCall, McpToolSpec, tool_of
from switchboard.server.services import Services

_BEAT = "Report that this butler is alive, and what it can do. Repeat after interval_s seconds."


def agent_tools(services: Services) -> tuple[McpToolSpec, ...]:
    """The tool over the register."""
    remote_agents = services.of(REMOTE_AGENT_SERVICE)

    async def beat(call: McpCall, body: BeatBody) -> object:
        return await remote_agents.beat(call.caller, body.system_id, announcement(body))

    return (tool_of("butler_heartbeat", _BEAT, BeatBody, BEAT, beat, remote_agents.is_remote),)
