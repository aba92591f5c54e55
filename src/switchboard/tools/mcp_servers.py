"""The tools of all MCP servers of the settings, for the butlers that may use them.

`app/wiring.py` makes one `McpServers` for a worker; the engine `model` asks it for a butler's tools in each turn, and
calls them like its own. Next: `mcp_server.py`, one server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import structlog
from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.mcp_tools import describe_tool, server_of, tool_name, unusable
from switchboard.core.text.outside import FOLLOWS
from switchboard.domain.errors import Unavailable
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.routing import Member
from switchboard.ports.mcp import PinnedTool, Pins
from switchboard.ports.tools import Tool, ToolOutcome, ToolScope, ToolSpec
from switchboard.tools.mcp_server import McpServer
from switchboard.tools.mcp_spec import DeclaredTool, ServerSpec
from switchboard.tools.results import told_as_data
from switchboard.transport.mcp_call import ServerFailure

_log = structlog.get_logger(__name__)

_SAID = f"The answer of an MCP server{FOLLOWS}"
_UNDECLARED = DeclaredTool()


class McpTool(Struct, frozen=True):
    """A tool of a server, as it was accepted."""

    server: McpServer
    pinned: PinnedTool
    spec: ToolSpec

    async def call(self, arguments: JsonMapping, scope: ToolScope) -> ToolOutcome:
        """The server's result as JSON; or a sentence that says why there is none."""
        name = self.spec.name
        try:
            said = await self.server.call(self.pinned, arguments, scope.key)
        except ServerFailure as failure:
            doubt = failure.reached and self.spec.effect != "idempotent"
            more = "; whether the call had an effect is not known" if doubt else ""
            return ToolOutcome(f"{name} failed: {failure}{more}", ok=False)
        except Unavailable:
            return ToolOutcome(f"{name} was not called: what it may be cannot be looked up now; try again", ok=False)
        about = {"server": self.server.spec.name} | ({} if said.ok else {"failed": True})
        return ToolOutcome(await told_as_data(_SAID, about, said.text, scope, name), ok=said.ok)


class McpServers:
    """See `switchboard.ports.tools.Toolset`. Close it at the end. `starts`: whether to start servers to list them."""

    def __init__(self, specs: Iterable[ServerSpec], pins: Pins, *, starts: bool = True) -> None:
        self._pins = pins
        self._starts = starts
        self._servers = [McpServer(spec, pins) for spec in specs]
        self._left_out: set[tuple[str, str]] = set()

    def may_have(self, member: Member, name: str) -> bool:
        """As in the port."""
        return any(server.spec.name == server_of(name) for server in self._of(member))

    async def of(self, member: Member) -> Sequence[Tool]:
        """As in the port. A server that was never listed is started for this once in a while."""
        mine = self._of(member)
        if not mine:
            return ()
        names = [server.spec.name for server in mine]
        known = await self._pins.known(names)
        new = [server for server in mine if server.spec.name not in known]
        if new and self._starts:
            await asyncio.gather(*(server.look() for server in new))
            known = await self._pins.known(names)
        return tuple(tool for server in mine for tool in self._tools(server, known.get(server.spec.name, ())))

    async def aclose(self) -> None:
        """End all processes."""
        await asyncio.gather(*(server.aclose() for server in self._servers))

    def _of(self, member: Member) -> list[McpServer]:
        return [server for server in self._servers if server.spec.serves(member)]

    def _tools(self, server: McpServer, pins: Sequence[PinnedTool]) -> list[Tool]:
        spec = server.spec
        offered = [one for one in pins if not spec.tools.get(one.tool.name, _UNDECLARED).off]
        wrong = unusable(spec.name, [one.tool for one in offered], spec.renamed)
        for name, why in wrong.items():
            self._tell(spec.name, name, why)
        return [_tool(server, one) for one in offered if one.tool.name not in wrong]

    def _tell(self, server: str, tool: str, why: str) -> None:
        """Log this once per worker; doctor and `switchboard mcp show` always report it."""
        if (server, tool) not in self._left_out:
            self._left_out.add((server, tool))
            _log.warning("a tool of an MCP server is not offered", server=server, tool=tool, why=why)


def _tool(server: McpServer, one: PinnedTool) -> McpTool:
    declared = server.spec.tools.get(one.tool.name, _UNDECLARED)
    name = tool_name(server.spec.name, declared.name or one.tool.name)
    spec = ToolSpec(name, describe_tool(one.tool), one.tool.parameters, declared.effect, declared.risk)
    return McpTool(server, one, replace(spec, reach="harmless") if declared.risk == "low" else spec)
