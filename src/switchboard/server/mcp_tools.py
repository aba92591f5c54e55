"""The MCP tools on the official SDK: which there are, who sees them, and how a call is answered.

`mcp.py` imports it late. In: arguments as JSON, the caller in the request's state; out: the shapes of the HTTP API. An
error is a result marked as one, whose text is `{"error": {"code", "message", "field"?}}`. Next: `mcp_connectors.py`,
`mcp_agents.py`, `mcp_rules.py`, `mcp_letters.py`, `mcp_route.py`.
"""

from __future__ import annotations

from typing import Any, Final

import structlog
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
)

from switchboard import __version__
from switchboard.app.access import SCOPES
from switchboard.app.intake import refused
from switchboard.domain.errors import Forbidden, SwitchboardError
from switchboard.server.http.doors import Doors
from switchboard.server.mcp_agents import agent_offers
from switchboard.server.mcp_connectors import connector_offers
from switchboard.server.mcp_letters import letter_offers
from switchboard.server.mcp_offer import Call, Context, Offer, caller_of, result_of, state_of
from switchboard.server.mcp_route import route_offers
from switchboard.server.mcp_rules import rule_offers
from switchboard.server.mcp_shortcut import OWN_ERROR, Shortcut

log = structlog.get_logger(__name__)

_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")


class Tools:
    """The tools over the parts behind the doors."""

    def __init__(self, doors: Doors) -> None:
        self._access = doors.access
        self._offers: dict[str, Offer] = {offer.tool.name: offer for offer in _offers(doors)}

    async def list(self, context: Context, _: PaginatedRequestParams | None) -> ListToolsResult:
        """Only what this token may call."""
        caller = caller_of(context)
        seen = [o for o in self._offers.values() if caller.role in SCOPES[o.action] and o.shown(caller)]
        return ListToolsResult(tools=[offer.tool_for(caller) for offer in seen])

    def named(self, *names: str) -> dict[str, Offer]:
        """Some of them."""
        return {name: self._offers[name] for name in names}

    def input_schema(self, name: str) -> dict[str, Any] | None:
        """What the SDK holds a call's headers against; without it, it would list and encode all tools at every call."""
        offer = self._offers.get(name)
        return None if offer is None else offer.tool.input_schema

    async def call(self, context: Context, params: CallToolRequestParams) -> CallToolResult:
        """Run a tool. What goes wrong on purpose is a result marked as error; a defect is an error of the protocol."""
        offer = self._offers.get(params.name)
        caller = caller_of(context)
        if offer is None:
            raise MCPError(code=INVALID_PARAMS, message=f"unknown tool: {params.name[:100]}")
        try:
            await self._access.check(caller, offer.action)
        except Forbidden:
            raise MCPError(code=INVALID_PARAMS, message=f"unknown tool: {params.name[:100]}") from None
        try:
            return result_of(await offer.run(Call(caller, params.arguments or {}, state_of(context).gone)))
        except SwitchboardError as error:
            return result_of(refused(error), is_error=True)
        except Exception:  # the SDK would tell the caller what it says
            log.exception("unexpected error at the door", tool=params.name)
            raise MCPError(code=INTERNAL_ERROR, message=OWN_ERROR) from None


def _offers(doors: Doors) -> tuple[Offer, ...]:
    """Every tool there is; each family stands in a module of its own."""
    return (
        *connector_offers(doors),
        *agent_offers(doors),
        *rule_offers(doors),
        *letter_offers(doors),
        *route_offers(doors),
    )


def session_manager(doors: Doors) -> tuple[StreamableHTTPSessionManager, Shortcut]:
    """The SDK's server over our tools: stateless, JSON answers. `run` it, then serve its `asgi_app`.

    And the short way past it for calls that bring messages in."""
    tools = Tools(doors)
    settings = doors.switchboard.core.settings
    security = _security(settings.host)
    server = Server(
        "switchboard",
        version=__version__,
        get_tool_input_schema=tools.input_schema,
        on_list_tools=tools.list,
        on_call_tool=tools.call,
    )
    manager = StreamableHTTPSessionManager(
        app=server,
        json_response=True,
        stateless=True,
        security_settings=security,
        max_request_body_size=settings.accept.batch_bytes,
    )
    return manager, Shortcut(server, security, tools.named("ingest", "ingest_batch"))


def _security(host: str) -> TransportSecuritySettings:
    """On loopback a browser may be tricked into calling us by a stranger's name; elsewhere our names are not known."""
    if host not in {"127.0.0.1", "localhost", "::1"}:
        return TransportSecuritySettings(enable_dns_rebinding_protection=False)
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=[name for own in _LOOPBACK for name in (own, f"{own}:*")],
        allowed_origins=[f"http://{name}" for own in _LOOPBACK for name in (own, f"{own}:*")],
    )
