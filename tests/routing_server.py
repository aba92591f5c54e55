"""An MCP server with the one tool of a routing session, behind one bearer token: what a command line is pointed at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import uvicorn
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import AnyHttpUrl

from switchboard.server.listener import bind

TOKEN: Final = "token-of-this-session"


@dataclass(frozen=True, slots=True)
class Call:
    """A call that was taken, and the session that its client said it belongs to."""

    butler: str
    segment: str
    session: str


@dataclass(frozen=True, slots=True)
class RoutingServer:
    """Where it is, and what came."""

    url: str
    calls: list[Call] = field(default_factory=list)

    @property
    def butlers(self) -> list[str]:
        """Who got something, in order."""
        return [call.butler for call in self.calls]


class Tokens:
    """There is one session, and this is its token."""

    async def verify_token(self, token: str) -> AccessToken | None:
        return AccessToken(token=token, client_id="session", scopes=[]) if token == TOKEN else None


class AnnouncedServer(uvicorn.Server):
    """Says when it is up."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.up.set()


@asynccontextmanager
async def routing_server(butlers: Sequence[str], tool: str = "route_to_butler") -> AsyncIterator[RoutingServer]:
    """On a free port of loopback; `tool` may be another one than a session looks for."""
    listener = bind("127.0.0.1", 0)
    server = RoutingServer(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp")
    auth = AuthSettings(issuer_url=AnyHttpUrl(server.url), resource_server_url=None)
    mcp = MCPServer("switchboard", version="1", log_level="WARNING", auth=auth, token_verifier=Tokens())

    @mcp.tool(name=tool)
    async def route(ctx: Context, butler: str, segment: str = "", reason: str = "") -> dict[str, str]:
        """Hand the message to a butler."""
        if butler not in butlers:
            raise ToolError(f"there is no butler {butler!r}; choose one of {', '.join(butlers)} ({reason})")
        request: Any = ctx.request_context.request
        server.calls.append(Call(butler, segment, request.headers.get("x-session-id", "")))
        return {"status": "accepted", "butler": butler}

    app = mcp.streamable_http_app(stateless_http=True, json_response=True)
    serving = AnnouncedServer(uvicorn.Config(app, log_config=None, access_log=False))
    task = asyncio.create_task(serving.serve(sockets=[listener]))
    await serving.up.wait()
    try:
        yield server
    finally:
        serving.should_exit = True
        await task
