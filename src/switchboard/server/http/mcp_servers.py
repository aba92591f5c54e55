"""`/v1/mcp-servers`: programs whose tools butlers use, and acceptance of what changes. Next: `app/mcp_servers.py`."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Depends, Response

from switchboard.app.access import Principal
from switchboard.app.mcp_servers import MCP_SERVERS, McpServerService
from switchboard.server.contracts.base import Word
from switchboard.server.contracts.mcp_servers import AcceptedMcpTools, McpAcceptance, McpServers, McpTools
from switchboard.server.http.parameters import router_of
from switchboard.server.http.services import Parts, answer, needs, operation
from switchboard.server.services import ServiceFactory

router = router_of("mcp servers", prefix="/v1/mcp-servers")
_SERVICE: Final = ServiceFactory(
    lambda services: McpServerService(services.runtime.database, services.runtime.settings.servers)
)

Operator = Annotated[Principal, Depends(needs(MCP_SERVERS))]


@router.get("", **operation("get_mcp_servers", "Get the MCP servers", McpServers))
async def list_servers(_: Operator, parts: Parts) -> Response:
    """Those of the settings, and those that workers have started, as they found them last."""
    return answer({"servers": await parts.of(_SERVICE).servers()})


@router.get("/{server}", **operation("get_mcp_server", "Get the tools of an MCP server", McpTools, 404))
async def get_server(_: Operator, parts: Parts, server: Word) -> Response:
    """Each as it was accepted and as it was listed last, which are the words of the server: data."""
    return answer({"server": server, "tools": await parts.of(_SERVICE).tools(server)})


@router.post(
    "/{server}/accept",
    **operation("accept_mcp_tools", "Accept tools of an MCP server", AcceptedMcpTools, 400, 409, 415),
)
async def accept(caller: Operator, parts: Parts, server: Word, body: McpAcceptance) -> Response:
    """As they were listed last. 409, and those before it are accepted, if one has changed again meanwhile."""
    accepted = await parts.of(_SERVICE).accept(caller, server, body.tools)
    return answer({"server": server, "accepted": accepted})
