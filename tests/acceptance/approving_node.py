"""A worker whose butler pays after approval only; the test kills it, or has it kill itself at a point.

Its arguments are DATABASE LLM TRACE: the tool writes a line per call into TRACE.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from switchboard.core.channels.registry import CHANNELS
from switchboard.store.memory.history import StoredHistory, StoredReaders
from switchboard.store.work.approvals import StoredApprovals
from tests.acceptance.model_node import Tracing
from tests.asking import spec
from tests.hands import at_work
from tests.lab import butler, lab, team_of
from tests.turning import Asked, model_engine

TEAM = team_of(butler("clerk", "model", owners=["api:x"], approve=["pay"]))


async def work(url: str, llm: str, trace: Path) -> None:
    models = Asked([spec("openai", llm, "m", timeout=30.0)])
    try:
        async with lab(url, [TEAM], []) as parts:
            context = {
                "history": StoredHistory(parts.database, StoredReaders(parts.database, CHANNELS)),
                "approvals": StoredApprovals(parts.database),
                "workspaces": trace.parent,
            }
            engine = model_engine(models, [Tracing("pay", "idempotent", trace, "")], **context)
            async with at_work(parts.worker({"model": engine})):
                await asyncio.Event().wait()
    finally:
        await models.aclose()


def main(arguments: Sequence[str]) -> None:
    """As the command line says."""
    url, llm, trace = arguments
    asyncio.run(work(url, llm, Path(trace)))
