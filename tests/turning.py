"""Turns of the engine `model` against a scripted model: its models, and tools that note what they do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final

from switchboard.agents.model.engine import ModelEngine
from switchboard.app.models.dispatcher import StoredSlots, StoredSpending
from switchboard.core.policy.breaker import BreakerPolicy
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.llm import Report, Request
from switchboard.llm.build import Sessions
from switchboard.llm.dispatch import Dispatcher, DispatchLimits
from switchboard.llm.models import OpenModels
from switchboard.llm.spec import ModelSpec
from switchboard.llm.spending import DayBook
from switchboard.ports.engine import Effect, EngineContext, Pending, Turn
from switchboard.ports.memos import FoundMemo, Memo
from switchboard.ports.models import Asking
from switchboard.ports.tools import Risk, Tool, ToolOutcome, ToolScope, ToolSpec
from switchboard.store.database import Database
from switchboard.testing.scripted_llm import ScriptedLlm
from tests.asking import spec
from tests.engines import Book

QUICK: Final = BreakerPolicy(wait=0.05, longest_wait=0.1, wait_alone=0.05, longest_alone=0.1)
AT_ONCE: Final = DispatchLimits(pauses=())
"""A turn whose models are unavailable ends at once, and is tried again by its lane."""
OWNER: Final = ["api:alice", "telegram:alice", "api:x"]
"""Option `owners` with which the senders of tests may use all tools."""


def _today() -> date:
    return datetime.now(UTC).date()


class NoMemos:
    """What this engine does not use."""

    async def file(self, memo: Memo) -> bool:
        raise NotImplementedError

    async def nearest(self, memo: Memo, limit: int) -> Sequence[FoundMemo]:
        raise NotImplementedError


class NoApprovals:
    """People can be asked, and nothing waits for them yet."""

    async def pending(self, turn: Turn, readers: str, limit: int) -> Sequence[Pending]:  # noqa: ARG002
        return ()

    async def count(self, turn: Turn) -> int:  # noqa: ARG002
        return 0


class Asked(OpenModels):
    """Models at given places, and what they were asked.

    With a database their slots, pauses and costs are those of all processes.
    """

    def __init__(
        self, specs: Sequence[ModelSpec], database: Database | None = None, limits: DispatchLimits = AT_ONCE
    ) -> None:
        sessions = Sessions(specs)
        spending = DayBook(_today) if database is None else StoredSpending(database)
        slots, context = None if database is None else StoredSlots(database, 2.0), sessions.contexts
        dispatcher = Dispatcher(sessions.models, spending, limits, policy=QUICK, slots=slots, context=context)
        super().__init__(sessions, dispatcher)
        self.requests: list[Request] = []
        self.askings: list[Asking] = []

    async def ask(self, request: Request, asking: Asking) -> Report:
        self.requests.append(request)
        self.askings.append(asking)
        return await super().ask(request, asking)


Act = Callable[[JsonMapping, ToolScope], Awaitable[ToolOutcome]]


@dataclass(slots=True)
class Noting:
    """A tool that notes its calls, with their keys. `act`: what it does; it says its arguments if nothing is given."""

    name: str
    effect: Effect = "idempotent"
    act: Act | None = None
    ordered: bool = False
    risk: Risk = "low"
    calls: list[tuple[str, JsonMapping]] = field(default_factory=list)
    title: str = ""
    """Of its schema."""

    @property
    def spec(self) -> ToolSpec:
        schema = {"type": "object", "properties": {"text": {"type": "string"}}}
        schema |= {"title": self.title} if self.title else {}
        return ToolSpec(self.name, f"does {self.name}", schema, self.effect, self.risk, self.ordered)

    async def call(self, arguments: JsonMapping, scope: ToolScope) -> ToolOutcome:
        self.calls.append((str(scope.key), dict(arguments)))
        return ToolOutcome(f"{self.name}: {dict(arguments)}") if self.act is None else await self.act(arguments, scope)


@asynccontextmanager
async def a_model_engine(
    llm: ScriptedLlm, tools: Sequence[Tool] = (), *, specs: Sequence[ModelSpec] = (), **context: Any
) -> AsyncIterator[tuple[ModelEngine, Asked]]:
    """The engine over the scripted model, or over these models."""
    models = Asked(specs or [spec("openai", llm.url, "m", timeout=20.0)])
    try:
        yield model_engine(models, tools, **context), models
    finally:
        await models.aclose()


def model_engine(models: Asked, tools: Sequence[Tool] = (), **context: Any) -> ModelEngine:
    """The engine over these models."""
    given = {"workspaces": Path("/nonexistent"), **context}
    return ModelEngine(EngineContext(NoMemos(), Book(), models=models, **given), tools)
