"""The port of pins: which tools of MCP servers may be offered, as they were when an operator accepted them.

`store/mcp_tools.py` implements it; `tools/mcp_server.py` tells it what a server lists, and offers what it returns. A
tool that is another than was accepted is not offered, and its server is not called for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from switchboard.domain.json_values import JsonMapping


class ListedTool(Struct, frozen=True):
    """A tool as its server lists it. What else servers say of their tools, as that they are harmless, is not read."""

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
        """The tools of each that may be used, by name; a server that has never listed any is not in it.

        Raises `Unavailable`.
        """
        ...

    async def seen(self, server: str, tools: Sequence[PinnedTool]) -> None:
        """What a server lists now. The first time that is accepted; later, what is new or different is disabled.

        Raises `Unavailable`.
        """
        ...

    async def failed(self, server: str, why: str) -> None:
        """A server could not be started. Raises `Unavailable`."""
        ...
