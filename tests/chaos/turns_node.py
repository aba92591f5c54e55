"""A worker whose butler has a model, and tools that go wrong in every way. It works until it is killed.

    python -m tests.chaos.turns_node DATABASE LLM DIRECTORY

Its three models, each of another kind, are those of one scripted provider. The trace says `ready PID` when it begins
to work, and `pay KEY` for every call that has an effect.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from switchboard.core.channels.registry import CHANNELS
from switchboard.core.policy.retry import OutagePolicy
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.routing import Rule
from switchboard.journey.turn import TurnLimits
from switchboard.llm.port import ApiKind
from switchboard.ports.tools import ToolOutcome, ToolScope
from switchboard.store.memory.history import StoredHistory, StoredReaders
from tests.asking import spec
from tests.chaos.node import Trace
from tests.hands import at_work
from tests.lab import butler, lab, rule, team_of
from tests.turning import Asked, Noting, model_engine

CONVERSATIONS: Final = 60
OWNERS: Final = [f"api:s{n}" for n in range(CONVERSATIONS)]
TRUSTED: Final = ["look", "ping", "pong", "pay", "raises", "hangs", "huge"]
"""Nobody is asked here before the tool pays."""
TEAM: Final = team_of(butler("clerk", "model", owners=OWNERS, own=TRUSTED, tool_timeout=0.5))
RULES: Final[tuple[Rule, ...]] = (rule("System1/clerk"),)
KINDS: Final[dict[str, ApiKind]] = {"chat": "openai", "messages": "anthropic", "responses": "openai-responses"}
OUTAGE: Final = OutagePolicy(least=0.2, most=1.0, told=30.0, given_up=600.0)
LIMITS: Final = TurnLimits(attempts=5, timeout=60, backoff_base=0.05, backoff_cap=0.5, outage=OUTAGE)
HUGE: Final = 50 * 1000**2


async def _raises(_: JsonMapping, __: ToolScope) -> ToolOutcome:
    raise RuntimeError("a defect of the tool")


async def _hangs(_: JsonMapping, __: ToolScope) -> ToolOutcome:
    await asyncio.Event().wait()
    raise AssertionError


async def _huge(_: JsonMapping, __: ToolScope) -> ToolOutcome:
    return ToolOutcome("x" * HUGE)


def tools(trace: Trace) -> list[Noting]:
    """Those that work, and those that do not."""

    async def pay(_: JsonMapping, scope: ToolScope) -> ToolOutcome:
        trace.write("pay", scope.key)
        return ToolOutcome("paid")

    broken = [Noting("raises", act=_raises), Noting("hangs", act=_hangs), Noting("huge", act=_huge)]
    return [Noting("look"), Noting("ping"), Noting("pong"), Noting("pay", "effectful", pay), *broken]


async def work(url: str, llm: str, directory: Path) -> None:
    """A worker, until it is killed."""
    async with lab(url, [TEAM], RULES) as parts:
        specs = [spec(kind, llm, name, timeout=1.5, concurrency=8) for name, kind in KINDS.items()]
        models = Asked(specs, parts.database)
        history = StoredHistory(parts.database, StoredReaders(parts.database, CHANNELS))
        trace = Trace(directory / "trace")
        engine = model_engine(models, tools(trace), history=history, workspaces=directory / "workspaces")
        async with at_work(parts.worker({"model": engine}, limits=LIMITS)):
            trace.write("ready", os.getpid())
            await asyncio.Event().wait()


def main(arguments: Sequence[str]) -> None:
    """Work until killed."""
    database, llm, directory = arguments
    asyncio.run(work(database, llm, Path(directory)))


if __name__ == "__main__":
    main(sys.argv[1:])
