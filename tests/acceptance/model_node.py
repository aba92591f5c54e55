"""A process that runs turns with a model, and compacts their histories, until nothing is left to do.

The test kills it, or has it kill itself at a point.

Its arguments are DATABASE LLM TRACE VARIANT: its tools write a line per call into TRACE. VARIANT
is what an operator may have changed meanwhile: prompt, time zone, models, the schemas of the tools.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from switchboard.core.channels.registry import CHANNELS
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.routing import Team
from switchboard.journey.compaction import Compactor
from switchboard.ports.engine import Effect
from switchboard.ports.tools import ToolOutcome, ToolScope, ToolSpec
from switchboard.store.memory.history import StoredHistory, StoredReaders
from tests.asking import spec
from tests.hands import at_work, settled
from tests.lab import Lab, butler, lab, team_of
from tests.turning import Asked, model_engine
from tests.waiting import eventually

CONVERSATIONS = 10
MODELS = {"old": ("m", "n"), "new": ("n", "o", "m"), "newer": ("o", "m", "n")}
"""By variant, in the order in which they are asked."""


class Tracing:
    """A tool that writes down each call that it carries out."""

    def __init__(self, name: str, effect: Effect, trace: Path, variant: str) -> None:
        schema = {"type": "object", "properties": {"who": {"type": "string"}}, "title": variant}
        self.spec = ToolSpec(name, f"does {name}, {variant}", schema, effect)
        self._trace = trace

    async def call(self, arguments: JsonMapping, scope: ToolScope) -> ToolOutcome:
        with self._trace.open("a") as trace:
            trace.write(f"{self.spec.name} {arguments['who']} {scope.key}\n")
        return ToolOutcome(f"{self.spec.name} for {arguments['who']}")


def team(place: Path, variant: str) -> Team:
    """The team, as its operator has it at the moment."""
    zone = "Europe/Berlin" if variant == "old" else "Asia/Tokyo"
    (place / "prompt.md").write_text(f"This is the {variant} prompt.")
    owners = [f"api:c{n}" for n in range(CONVERSATIONS)]
    return team_of(
        butler("clerk", "model", owners=owners, own=["look", "pay"], zone=zone, prompt_file=f"{place}/prompt.md")
    )


async def work(url: str, llm: str, trace: Path, variant: str) -> None:
    specs = [spec("anthropic", llm, name, timeout=30.0, concurrency=CONVERSATIONS) for name in MODELS[variant]]
    models = Asked(specs)
    tools = [Tracing("look", "idempotent", trace, variant), Tracing("pay", "effectful", trace, variant)]
    try:
        async with lab(url, [team(trace.parent, variant)], []) as parts:
            history = StoredHistory(parts.database, StoredReaders(parts.database, CHANNELS))
            engine = model_engine(models, tools, history=history, workspaces=trace.parent)
            compactor = Compactor(parts.database, models, ["m"])
            async with at_work(parts.worker({"model": engine})):
                await eventually(lambda: _all_done(parts, compactor), within=120)
    finally:
        await models.aclose()


async def _all_done(parts: Lab, compactor: Compactor) -> bool:
    """Whether no turn is left, and no history that is due to be compacted; starts with those that are."""
    await compactor.start_due()
    return await settled(parts) and not await parts.count("select count(*) from compaction")


def main(arguments: Sequence[str]) -> None:
    """As the command line says."""
    url, llm, trace, variant = arguments
    asyncio.run(work(url, llm, Path(trace), variant))
