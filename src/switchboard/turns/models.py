"""Models that a program calls itself. `open_models` makes them for `open_turns`. Next: `llm/dispatch.py`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime

from switchboard.llm.build import Sessions
from switchboard.llm.dispatch import Dispatcher
from switchboard.llm.models import OpenModels
from switchboard.llm.spec import ModelSpec
from switchboard.llm.spending import DayBook


@asynccontextmanager
async def open_models(specs: Sequence[ModelSpec]) -> AsyncIterator[OpenModels]:
    """The models of a program, with their own slots and no spending limit.

    Raises ConfigurationError that names the model and the fix.
    """
    sessions = Sessions(specs)
    book = DayBook(lambda: datetime.now(UTC).date())
    async with aclosing(OpenModels(sessions, Dispatcher(sessions.models, book, context=sessions.contexts))) as models:
        yield models
