"""The MCP tools on the official SDK: the list, its visibility, and the handling of calls.

`mcp.py` imports it late. In: arguments as JSON, the caller in the request's state; out: the shapes of the HTTP API. An
error is a result marked as one, whose text is `{"error": {"code", "message", "field"?}}`. Next: `connectors.py`,
`messages.py`, `agents.py`, `rules.py`, `dead_letters.py`, `approvals.py`, `route.py`.
"""

from __future__ import annotations

import asyncio
from typing import Final

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
from switchboard.app.access import Principal
from switchboard.app.messages.intake import refusal_from_error
from switchboard.app.settings import Settings
from switchboard.domain.errors import Forbidden, SwitchboardError
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.server.contracts.modules import KEY, MAX_KEY
from switchboard.server.fastpath.mcp_ingest import OWN_ERROR, FastIngest, Run
from switchboard.server.http.hosts import ANY, names_of
from switchboard.server.mcp.agents import agent_tools
from switchboard.server.mcp.approvals import approval_tools
from switchboard.server.mcp.connectors import connector_tools
from switchboard.server.mcp.dead_letters import dead_letter_tools
from switchboard.server.mcp.messages import message_tools
from switchboard.server.mcp.modules import ModuleTools, module_tools
from switchboard.server.mcp.route import route_tools
from switchboard.server.mcp.rule_sets import rule_set_tools
from switchboard.server.mcp.rules import rule_tools
from switchboard.server.mcp.tool_spec import Context, McpCall, McpToolSpec, caller_of, result_of, state_of
from switchboard.server.services import Services

log = structlog.get_logger(__name__)

_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")


class Tools:
    """The tools over the services."""

    def __init__(self, services: Services) -> None:
        self._access = services.access
        self._module_tools = ModuleTools(services)
        self._tool_specs: dict[str, McpToolSpec] = {spec.tool.name: spec for spec in _tool_specs(services)}

    async def list(self, context: Context, _: PaginatedRequestParams | None) -> ListToolsResult:
        """The tools that this token may call."""
        caller = caller_of(context)
        seen = [o for o in self._tool_specs.values() if caller.role in o.action.roles and o.shown(caller)]
        seen += [one for one in await self._module_tools.list_for(caller) if one.tool.name not in self._tool_specs]
        return ListToolsResult(tools=[spec.tool_for(caller) for spec in seen])

    def run_of(self, name: str) -> Run:
        """The implementation of a tool, for a caller that waits for the answer."""

        async def run(caller: Principal, arguments: JsonMapping) -> object:
            return await self._tool_specs[name].run(McpCall(caller, arguments, asyncio.Event()))

        return run

    def input_schema(self, name: str) -> JsonObject | None:
        """The schema for checking a call's headers; without it, the SDK would encode all tools for every call."""
        spec = self._tool_specs.get(name)
        return self._module_tools.schema_of(name) if spec is None else spec.tool.input_schema

    async def call(self, context: Context, params: CallToolRequestParams) -> CallToolResult:
        """Run a tool. Expected errors are results marked as errors; a defect is an error of the protocol."""
        caller = caller_of(context)
        spec = self._tool_specs.get(params.name) or await self._module_tools.find(caller, params.name)
        if spec is None:
            raise MCPError(code=INVALID_PARAMS, message=f"unknown tool: {params.name[:100]}")
        try:
            await self._access.check(caller, spec.action)
        except Forbidden:
            raise MCPError(code=INVALID_PARAMS, message=f"unknown tool: {params.name[:100]}") from None
        try:
            call = McpCall(caller, params.arguments or {}, state_of(context).gone, _key_of(params))
            found = await spec.run(call)
            return found if isinstance(found, CallToolResult) else result_of(found)
        except SwitchboardError as error:
            return result_of(refusal_from_error(error), is_error=True)
        except Exception:  # the SDK would tell the caller its text
            log.exception("unexpected error in a request", tool=params.name)
            raise MCPError(code=INTERNAL_ERROR, message=OWN_ERROR) from None


def _key_of(params: CallToolRequestParams) -> str | None:
    """The idempotency key in the `_meta` of a call; anything else there means none."""
    key = (params.meta or {}).get(KEY)
    return key if isinstance(key, str) and 0 < len(key) <= MAX_KEY else None


def _tool_specs(services: Services) -> tuple[McpToolSpec, ...]:
    """All existing tools; each family is in its own module."""
    return (
        *connector_tools(services),
        *message_tools(services),
        *agent_tools(services),
        *rule_tools(services),
        *rule_set_tools(services),
        *dead_letter_tools(services),
        *approval_tools(services),
        *module_tools(services),
        *route_tools(services),
    )


def session_manager(services: Services) -> tuple[StreamableHTTPSessionManager, FastIngest]:
    """The SDK's server over our tools: stateless, JSON answers. `run` it, then serve its `asgi_app`.

    And the fast path past it, for calls that bring messages in."""
    tools = Tools(services)
    settings = services.switchboard.runtime.settings
    security = _security_settings(settings)
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
    return manager, FastIngest(server, security, {name: tools.run_of(name) for name in ("ingest", "ingest_batch")})


def _security_settings(settings: Settings) -> TransportSecuritySettings:
    """On loopback, only pages of our own names may call; elsewhere, others may be meant to."""
    names = names_of(settings)
    if settings.host not in {"127.0.0.1", "localhost", "::1"} or ANY in names:
        return TransportSecuritySettings(enable_dns_rebinding_protection=False)
    hosts = [name for own in sorted({*_LOOPBACK, *names}) for name in (own, f"{own}:*")]
    origins = [f"{scheme}://{host}" for scheme in ("http", "https") for host in hosts]
    return TransportSecuritySettings(enable_dns_rebinding_protection=True, allowed_hosts=hosts, allowed_origins=origins)
