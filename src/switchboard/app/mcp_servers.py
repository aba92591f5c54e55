"""Operators' view of MCP servers' tools, and acceptance of tools, which is audited.

HTTP calls `McpServerService`, doctor `check_servers`. In: names of servers; out: their tools, and what has changed.
Next: `store/models/mcp_tools.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct, field

from switchboard.app.access import OPERATOR, Action, Principal
from switchboard.core.mcp_tools import MOST_SCHEMAS, pin_tool, size_of, tool_name, unusable
from switchboard.core.text.words import offer, or_list
from switchboard.domain.errors import ConfigurationError, Conflict, NotFound
from switchboard.domain.routing import Team
from switchboard.domain.shown import ShownMcpServer, ShownMcpTool
from switchboard.ports.checks import MOST, CheckResult, count_of, error, ok, warning
from switchboard.ports.mcp import ListedTool
from switchboard.store.database import Database
from switchboard.store.models import mcp_tools
from switchboard.store.models.mcp_tools import KeptTool
from switchboard.store.people import audit
from switchboard.store.rules.teams import TeamsOnce
from switchboard.tools.mcp_server import tools_of
from switchboard.tools.mcp_spec import ALL, DeclaredTool, ServerSpec
from switchboard.transport.mcp_call import ServerFailure

MCP_SERVERS: Final = Action("mcp_servers", OPERATOR)


class McpServerService:
    """For operators only."""

    def __init__(self, database: Database, specs: Sequence[ServerSpec]) -> None:
        self._database = database
        self._specs = {spec.name: spec for spec in specs}

    async def servers(self) -> list[ShownMcpServer]:
        """Servers started by workers, and those of the settings, by name."""
        found = {one.server: one for one in await mcp_tools.list_servers(self._database)}
        return [found.get(name) or ShownMcpServer(name) for name in sorted({*found, *self._specs})]

    async def tools(self, server: str) -> list[ShownMcpTool]:
        """Everything known about its tools. Raises NotFound."""
        kept = await mcp_tools.list_tools(self._database, server)
        if not kept and server not in self._specs:
            raise NotFound(f"there is no MCP server {server!r}: `switchboard mcp list` shows those that exist")
        spec = self._specs.get(server) or ServerSpec(server, ())
        wrong = left_out(spec, [_listed_tool(one) for one in kept if one.state == "accepted"])
        return [_show_tool(spec, one, wrong.get(one.tool)) for one in kept]

    async def accept(self, caller: Principal, server: str, marks: Mapping[str, str]) -> int:
        """Accept tools, all or none, by the marks of the reviewed versions; returns how many. Raises Conflict."""
        async with self._database.transaction() as one:
            for tool, mark in marks.items():
                if not await mcp_tools.accept(one, server, tool, mark, caller.name):
                    raise Conflict(
                        f"{tool!r} of the MCP server {server!r} is not there, or has changed again: check it once more"
                    )
                await audit.append(one, caller.name, "mcp:accepted", {"server": server, "tool": tool, "mark": mark})
        return len(marks)


def unknown_names(specs: Iterable[ServerSpec], teams: Iterable[Team]) -> Iterator[str]:
    """The butlers and teams that MCP servers are for, and that do not exist, each in a sentence."""
    known = list(teams)
    there: dict[str, set[str]] = {
        "butlers": {one.system_id for team in known for one in team.members},
        "teams": {team.team_id for team in known},
    }
    for spec in specs:
        for setting, named in (("butlers", spec.butlers), ("teams", spec.teams)):
            for name in sorted({*named} - there[setting] - {ALL}):
                nobody = f"there is no {setting[:-1]} {name!r}{_find_butler(name, there[setting])}"
                yield f"mcp_servers: {spec.name}: {setting}: {nobody}"


def _find_butler(name: str, known: Collection[str]) -> str:
    """The full name of a butler that was named by its last part, otherwise what is like it."""
    whole = [one for one in known if one.partition("/")[2] == name]
    return f"; did you mean {or_list(whole)}?" if whole else offer(name, known)


class McpServerCheck(Struct, frozen=True):
    """A server as found on this machine: its number of `tools`, with the bytes of their schemas (`size`).

    `problem`: why it cannot be used; `waiting`: tools that must be accepted.
    """

    server: str
    problem: str | None = None
    tools: int = 0
    size: int = 0
    waiting: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)


def _to_accept(listed: Sequence[ListedTool], kept: Sequence[mcp_tools.KeptTool]) -> set[str]:
    """The tools that are new, or changed since they were accepted."""
    good = {one.tool: one.accepted_mark for one in kept if one.state in {"accepted", "gone"}}
    other = {one.name for one in listed if kept and good.get(one.name) != pin_tool(one).mark}
    return other | {one.tool for one in kept if one.state in {"new", "changed"}}


async def looked_at(database: Database, spec: ServerSpec) -> McpServerCheck:
    """Start a server once, and compare its tools with the accepted ones; nothing is written."""
    try:
        listed = await tools_of(spec)
    except (ServerFailure, ConfigurationError) as failure:
        written = spec.redact_output(failure.errors)[-300:] if isinstance(failure, ServerFailure) else ""
        return McpServerCheck(spec.name, f"{failure}: {written}" if written else f"{failure}")
    waiting = _to_accept(listed, await mcp_tools.list_tools(database, spec.name))
    wrong = left_out(spec, listed)
    size = sum(size_of(one) for one in listed if one.name not in wrong)
    return McpServerCheck(spec.name, None, len(listed), size, tuple(sorted(waiting)), wrong)


async def check_servers(database: Database, specs: Sequence[ServerSpec], teams: TeamsOnce) -> list[CheckResult]:
    """Start each once, here; workers may find them different elsewhere."""
    if not specs:
        return []
    nobody = list(unknown_names(specs, await teams.read()))
    found = [error("MCP servers", one, "correct it in [[mcp_servers]], and restart") for one in nobody[:MOST]]
    looks = await asyncio.gather(*(looked_at(database, spec) for spec in specs))
    found += [finding for look in looks for finding in _server_findings(look)]
    if (size := sum(look.size for look in looks)) > MOST_SCHEMAS:
        detail = f"the tools of all together have {size} bytes of schemas, but a turn has room for {MOST_SCHEMAS}"
        remedy = "name those that a butler needs in its option tools, or set off = true"
        found.append(warning("MCP servers", detail, remedy))
    return found


def _server_findings(look: McpServerCheck) -> Iterator[CheckResult]:
    name = f"MCP server {look.server}"
    if look.problem is not None:
        remedy = "correct it in [[mcp_servers]]; butlers answer without its tools"
        yield warning(name, look.problem, remedy)
        return
    yield ok(name, f"{count_of(look.tools, 'tool')}")
    if look.waiting:
        detail = f"new or changed, and not offered: {', '.join(look.waiting[:MOST])}"
        remedy = f"switchboard mcp show {look.server}, then switchboard mcp accept {look.server}"
        yield warning(name, detail, remedy)
    for tool, why in list(look.left_out.items())[:MOST]:
        yield warning(name, f"{tool} is not offered: {why}", "see docs/tools.md")


def left_out(spec: ServerSpec, tools: Sequence[ListedTool]) -> dict[str, str]:
    """The tools that are not offered to models, each with the reason."""
    off = {name for name, said in spec.tools.items() if said.off}
    wrong = unusable(spec.name, [one for one in tools if one.name not in off], spec.renamed)
    return wrong | {one.name: "the settings say `off`" for one in tools if one.name in off}


def _listed_tool(one: KeptTool) -> ListedTool:
    kept = one.accepted or {}
    return ListedTool(one.tool, str(kept.get("description", "")), kept.get("parameters", {}))


def _show_tool(spec: ServerSpec, one: KeptTool, why: str | None) -> ShownMcpTool:
    declared = spec.tools.get(one.tool, DeclaredTool())
    return ShownMcpTool(
        one.tool,
        one.state,
        tool_name(spec.name, declared.name or one.tool),
        declared.effect,
        declared.risk,
        why,
        one.accepted,
        one.accepted_at,
        one.accepted_by,
        one.seen,
        one.seen_mark,
        one.seen_at,
    )
