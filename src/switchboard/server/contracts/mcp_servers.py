"""The shapes of requests and answers about MCP servers, for the OpenAPI. Next: `app/mcp_servers.py`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from switchboard.domain.shown import ShownMcpServer, ShownMcpTool
from switchboard.server.contracts.base import Body, ResponseBody, Word


class McpServers(ResponseBody):
    """By name."""

    servers: list[ShownMcpServer]


class McpTools(ResponseBody):
    """By name, including those that wait for an operator or no longer exist."""

    server: str
    tools: list[ShownMcpTool]


class McpAcceptance(Body):
    """Tools by name, each with the `seen_mark` of the version that was reviewed."""

    tools: Annotated[dict[Word, Word], Field(min_length=1, max_length=200)]


class AcceptedMcpTools(ResponseBody):
    """`accepted` counts the tools that may be used from now on."""

    server: str
    accepted: int
