"""A worker whose butler is a command line; the test has it kill itself at a point.

Its arguments are DATABASE LLM PLACE KIND: its tools write a line per call into PLACE/trace, its runs are in
PLACE/scratch, and it ends when there is nothing left to do but what waits for people.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from switchboard.core.channels.registry import CHANNELS
from switchboard.domain.routing import Team
from switchboard.llm.port import CliKind
from switchboard.store.memory.history import StoredHistory, StoredReaders
from switchboard.store.work.approvals import StoredApprovals
from tests.acceptance.model_node import Tracing
from tests.asking import spec
from tests.hands import at_work, settled
from tests.lab import Lab, butler, lab, team_of
from tests.turning import Asked, model_engine
from tests.waiting import eventually


def team(*approve: str) -> Team:
    """The team; its butler asks before it calls these tools."""
    return team_of(butler("clerk", "model", owners=["api:x"], own=["look", "pay"], models=["m"], approve=[*approve]))


async def work(url: str, llm: str, place: Path, kind: CliKind, approve: Sequence[str]) -> None:
    models = Asked([spec(kind, llm, "m", timeout=60.0)])
    tools = [Tracing("look", "idempotent", place / "trace", ""), Tracing("pay", "effectful", place / "trace", "")]
    try:
        async with lab(url, [team(*approve)], []) as parts:
            history = StoredHistory(parts.database, StoredReaders(parts.database, CHANNELS))
            context = {"history": history, "approvals": StoredApprovals(parts.database), "workspaces": place}
            engine = model_engine(models, tools, **context)
            async with at_work(parts.worker({"model": engine})):
                await eventually(lambda: _done(parts), within=120)
    finally:
        await models.aclose()


async def _done(parts: Lab) -> bool:
    return await settled(parts) or bool(await parts.count("select count(*) from parked where decided_at is null"))


def main(arguments: Sequence[str]) -> None:
    """As the command line says."""
    url, llm, place, kind, *approve = arguments
    tempfile.tempdir = f"{place}/scratch"
    asyncio.run(work(url, llm, Path(place), cast(CliKind, kind), approve))
