"""The port of pins: the tools of MCP servers that may be offered, as they were when an operator accepted them.

`store/models/mcp_tools.py` implements it; `tools/mcp_server.py` reports what a server lists, and offers what is
returned. A tool that differs from the accepted one is not offered, and its server is not called for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from switchboard.domain.json_values import JsonMapping


class ListedTool(Struct, frozen=True):
    """A tool as its server lists it. Other claims of servers about their tools, such as being harmless, are ignored."""

    name: str
    description: str
    parameters: JsonMapping
    """The JSON Schema of its arguments."""


class PinnedTool(Struct, frozen=True):
    """A tool as it was accepted; `mark` is the hash of everything that models see of it."""

    tool: ListedTool
    mark: str


class Pins(Protocol):
    """What was accepted, for all workers."""

    async def known(self, servers: Sequence[str]) -> Mapping[str, Sequence[PinnedTool]]:
        """The usable tools of each server, by its name; a server that has never listed any is missing.

        Raises `Unavailable`.
        """
        ...

    async def seen(self, server: str, tools: Sequence[PinnedTool]) -> None:
        """Report what a server lists now. The first list is accepted; later, new or changed tools are disabled.

        Raises `Unavailable`.
        """
        ...

    async def failed(self, server: str, why: str) -> None:
        """Report that a server could not be started. Raises `Unavailable`."""
        ...
