"""A worker whose butlers use MCP servers, a calm one and a wild one, commands, shells and programs.

    main([DATABASE, LLM, DIRECTORY])          it works until it is killed
    main([DATABASE, LLM, DIRECTORY, "last"])  … or until nothing is left to do

The trace says `ready PID` when it begins to work. The last one tells what it has open, and what is set aside for
models, before its first turn and after its last: `descriptors BEFORE AFTER`, `reserved BEFORE AFTER`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from switchboard.agents.command import CommandEngine
from switchboard.domain.routing import Team
from switchboard.journey.turn import TurnLimits
from switchboard.ports.engine import Engine
from switchboard.ports.sandbox import SandboxRules
from switchboard.sandbox.run import Sandbox
from switchboard.store.database import Database
from switchboard.store.models.mcp_tools import StoredPins
from switchboard.tools.bash import Bash
from switchboard.tools.execute_command import ExecuteCommand
from switchboard.tools.mcp_servers import McpServers
from switchboard.tools.mcp_spec import DeclaredTool
from switchboard.transport.programs import death_guard
from tests.asking import spec
from tests.chaos.node import Trace
from tests.hands import at_work, settled
from tests.lab import butler, lab, team_of
from tests.mcp_servers import OPEN, Rogue
from tests.turning import Asked, model_engine
from tests.waiting import eventually

CONVERSATIONS: Final = 20
LIMITS: Final = TurnLimits(attempts=9, timeout=60, backoff_base=0.05, backoff_cap=0.5)
LOOK: Final = DeclaredTool(effect="idempotent", risk="low")
WILD: Final = ("die", "freeze", "silent", "orphan", "large", "line", "flood", "deaf", "babble")
"""What the wild server does to its worker."""
_PROGRAM: Final = "cat >/dev/null; sleep 0.2; echo done"
_SHUT_IN: Final = "cat >/dev/null; setsid sleep {0} & sleep {0} & echo done"
"""It leaves behind what only its sandbox ends."""


def mark_of(directory: Path) -> str:
    """Seconds for which nothing sleeps that was not started in this run."""
    return f"86400.{int.from_bytes(directory.name[-6:].encode())}"


def team(directory: Path) -> Team:
    """Those of this directory."""
    owners = [f"api:s{n}" for n in range(CONVERSATIONS)]
    trusted = ["calm__look", "calm__pay", *(f"wild__{name}" for name in WILD)]
    program = ["/bin/sh", "-c", _PROGRAM, f"{directory}/program"]
    shut_in = ["/bin/sh", "-c", _SHUT_IN.format(mark_of(directory)), f"{directory}/program"]
    return team_of(
        butler("clerk", "model", owners=owners, own=trusted, tool_timeout=2.0),
        butler("program", "command", command=program, effect="idempotent"),
        butler("shut-in", "command", command=shut_in, sandbox=True, effect="idempotent"),
    )


def servers(directory: Path) -> tuple[Rogue, Rogue]:
    """The calm one and the wild one."""
    return Rogue(directory, "calm"), Rogue(directory, "wild")


async def work(url: str, llm: str, directory: Path, *, last: bool) -> None:
    """Until it is killed, or all is done."""
    trace = Trace(directory / "trace")
    calm, wild = servers(directory)
    specs = [calm.spec(idle=1.0, tools={"look": LOOK}), wild.spec(idle=0.5, timeout=1.5)]
    async with lab(url, [team(directory)], []) as parts:
        models = Asked([spec("openai", llm, "m", timeout=30.0, concurrency=CONVERSATIONS)], parts.database)
        toolset, sandbox = McpServers(specs, StoredPins(parts.database)), Sandbox(SandboxRules())
        shells = Bash(sandbox, patience=1.0)
        workspaces = directory / "workspaces"
        engine = model_engine(models, (ExecuteCommand(sandbox), shells), workspaces=workspaces, toolset=toolset)
        engines: dict[str, Engine] = {"model": engine, "command": CommandEngine(death_guard())}
        try:
            async with at_work(parts.worker(engines, limits=LIMITS)):
                before = (descriptors(), await reserved(parts.database))
                trace.write("ready", str(os.getpid()))
                if last:
                    await eventually(lambda: settled(parts), within=240)
                else:
                    await asyncio.Event().wait()
        finally:
            await shells.close()
            await toolset.aclose()
            await models.aclose()
        trace.write("descriptors", str(before[0]), str(descriptors()))
        trace.write("reserved", str(before[1]), str(await reserved(parts.database)))


def descriptors() -> int:
    """Those that are open, but for the connections to the database and to the model."""
    return sum("socket:" not in f"{one.readlink()}" for one in OPEN.iterdir() if one.exists() or one.is_symlink())


async def reserved(database: Database) -> int:
    """Slots of models that are taken, and tokens that are set aside, however many."""
    return int(
        await database.value(
            "select count(*) from (select until from model_lease union all select until from model_reservation) held"
            " where until > now()"
        )
    )


def main(arguments: Sequence[str]) -> None:
    url, llm, directory, *more = arguments
    asyncio.run(work(url, llm, Path(directory), last=more == ["last"]))
