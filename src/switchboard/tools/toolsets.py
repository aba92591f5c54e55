"""Several toolsets as one: MCP servers, and modules.

`app/wiring.py` gives one to the engines. Next: `mcp_servers.py`, and `modules/kernel/opened.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from switchboard.domain.routing import Member
from switchboard.ports.tools import TellsLacking, Tool, Toolset


class Toolsets:
    """See `switchboard.ports.tools.Toolset`. Of two tools with one name, the earlier set has the only one."""

    def __init__(self, *sets: Toolset) -> None:
        self._sets = sets

    def may_have(self, member: Member, name: str) -> bool:
        """As in the port."""
        return any(one.may_have(member, name) for one in self._sets)

    async def of(self, member: Member) -> Sequence[Tool]:
        """As in the port."""
        found: dict[str, Tool] = {}
        for tools in await asyncio.gather(*(one.of(member) for one in self._sets)):
            for tool in tools:
                found.setdefault(tool.spec.name, tool)
        return tuple(found.values())

    def lacking(self, member: Member) -> Mapping[str, str]:
        """As in `TellsLacking`."""
        told = [one.lacking(member) for one in self._sets if isinstance(one, TellsLacking)]
        return {name: why for lacking in told for name, why in lacking.items()}
