"""Which tools of MCP servers may be offered: their accepted and their present definitions.

`app/wiring.py` gives `StoredPins` to the servers of a worker; operators look and accept by the functions below. Next:
`sql/functions/mcp_tools.sql`, which handles changed tools.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct

from switchboard.core.text.storable import storable_text, to_storable_json
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.shown import McpToolState, ShownMcpServer
from switchboard.ports.mcp import ListedTool, PinnedTool
from switchboard.store.database import Database, decode_json, query, rows_as

_MOST_WHY: Final = 1000


class StoredPins(Struct, frozen=True):
    """`Pins` in PostgreSQL."""

    database: Database

    async def known(self, servers: Sequence[str]) -> Mapping[str, Sequence[PinnedTool]]:
        """As in the port."""
        found: dict[str, list[PinnedTool]] = {}
        for row in await self.database.rows(query("mcp_tools.known"), list(servers)):
            usable = found.setdefault(row["server"], [])
            if row["usable"]:
                tool = msgspec.convert(decode_json(row["accepted"]), ListedTool)
                usable.append(PinnedTool(tool, row["accepted_mark"]))
        return found

    async def seen(self, server: str, tools: Sequence[PinnedTool]) -> None:
        """As in the port. Of several tools with one name the last one counts."""
        named = {one.tool.name: {"tool": one.tool.name, "said": one.tool, "mark": one.mark} for one in tools}
        await self.database.value(query("mcp_tools.see"), server, to_storable_json(list(named.values())))

    async def failed(self, server: str, why: str) -> None:
        """As in the port."""
        await self.database.run(query("mcp_tools.failed"), server, storable_text(why)[:_MOST_WHY])


async def list_servers(database: Database) -> list[ShownMcpServer]:
    """All servers ever started, by name."""
    return rows_as(ShownMcpServer, await database.rows(query("mcp_tools.servers")))


class KeptTool(Struct, frozen=True):
    """A tool of a server, as accepted and as last seen; null: never, or not at the moment."""

    tool: str
    state: McpToolState
    accepted: JsonMapping | None
    accepted_mark: str | None
    accepted_at: datetime | None
    accepted_by: str | None
    seen: JsonMapping | None
    seen_mark: str | None
    seen_at: datetime


async def list_tools(database: Database, server: str) -> list[KeptTool]:
    """The tools of a server, by name, including disabled and vanished ones."""
    return rows_as(KeptTool, await database.rows(query("mcp_tools.tools"), server))


async def accept(database: Database, server: str, tool: str, mark: str, by: str) -> bool:
    """Accept a tool as seen. False: it does not exist, or has changed."""
    return await database.change_rows(query("mcp_tools.accept"), server, tool, mark, by) == 1
