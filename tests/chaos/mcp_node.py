"""A worker whose butler uses two MCP servers, a calm one and a wild one. It works until it is killed, or all is done.

    python -m tests.chaos.mcp_node DATABASE LLM DIRECTORY [last]

The trace says `ready PID` when it begins to work. The last one works until nothing is left to do, and then tells how
many descriptors it has open, before its first turn and after its last: `descriptors BEFORE AFTER`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from switchboard.domain.routing import Team
from switchboard.journey.turn import TurnLimits
from switchboard.store.mcp_tools import StoredPins
from switchboard.tools.mcp_servers import McpServers
from switchboard.tools.mcp_spec import DeclaredTool
from tests.asking import spec
from tests.chaos.node import Trace
from tests.hands import at_work, settled
from tests.lab import ROOT, butler, lab
from tests.mcp_servers import OPEN, Rogue
from tests.turning import Asked, model_engine
from tests.waiting import eventually

CONVERSATIONS: Final = 20
TEAM: Final = Team(ROOT, None, members=(butler("clerk", "model", owners=[f"api:s{n}" for n in range(CONVERSATIONS)]),))
LIMITS: Final = TurnLimits(attempts=5, timeout=60, backoff_base=0.05, backoff_cap=0.5)
LOOK: Final = DeclaredTool(effect="idempotent", risk="low")
WILD: Final = ("die", "freeze", "silent", "orphan", "large", "line", "flood", "deaf", "babble")
"""What the wild server does to its worker."""


def servers(directory: Path) -> tuple[Rogue, Rogue]:
    return Rogue(directory, "calm"), Rogue(directory, "wild")


async def work(url: str, llm: str, directory: Path, *, last: bool) -> None:
    trace = Trace(directory / "trace")
    calm, wild = servers(directory)
    specs = [calm.spec(idle=1.0, tools={"look": LOOK}), wild.spec(idle=0.5, timeout=1.5)]
    models = Asked([spec("openai", llm, "m", timeout=30.0, concurrency=CONVERSATIONS)])
    async with lab(url, [TEAM], []) as parts:
        toolset = McpServers(specs, StoredPins(parts.database))
        engine = model_engine(models, (), workspaces=directory, toolset=toolset)
        try:
            async with at_work(parts.worker({"model": engine}, limits=LIMITS)):
                before = descriptors()
                trace.write("ready", str(os.getpid()))
                if last:
                    await eventually(lambda: settled(parts), within=120)
                else:
                    await asyncio.Event().wait()
        finally:
            await toolset.aclose()
            await models.aclose()
        trace.write("descriptors", str(before), str(descriptors()))


def descriptors() -> int:
    """Those that are open, but for the connections to the database and to the model."""
    return sum("socket:" not in f"{one.readlink()}" for one in OPEN.iterdir() if one.exists() or one.is_symlink())


def main(arguments: Sequence[str]) -> None:
    """Work until killed, or with `last` until all is done."""
    database, llm, directory, *last = arguments
    asyncio.run(work(database, llm, Path(directory), last=last == ["last"]))


if __name__ == "__main__":
    main(sys.argv[1:])
