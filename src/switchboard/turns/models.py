"""Models that a program asks itself. `open_models` makes them for `open_turns`. Next: `llm/dispatch.py`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from switchboard.domain.llm import Report, Request
from switchboard.llm.build import Sessions, flaw
from switchboard.llm.dispatch import Dispatcher, Terms
from switchboard.llm.spec import ModelSpec
from switchboard.llm.spending import DayBook
from switchboard.ports.models import Asking


class DirectModels:
    """Models that this program asks itself, as `switchboard.ports.models.Models`. Made by `open_models`."""

    def __init__(self, specs: Sequence[ModelSpec], sessions: Sessions) -> None:
        self._specs = {one.name: one for one in specs}
        self._contexts = sessions.contexts
        book = DayBook(lambda: datetime.now(UTC).date())
        self._dispatcher = Dispatcher(sessions.models, book, context=sessions.contexts.of)

    @property
    def names(self) -> Sequence[str]:
        """In the order in which they were given."""
        return tuple(self._specs)

    async def context(self, name: str) -> int:
        """Tokens of question and answer together: as the spec says, else as a local server says."""
        return await self._contexts.of(self._specs[name])

    def flaw(self, name: str) -> str | None:
        """What is missing on this machine to ask it."""
        return flaw(self._specs[name])

    async def ask(self, request: Request, asking: Asking) -> Report:
        """Ask one after the other until one has answered."""
        names = [name for name in asking.models if name in self._specs] or self.names
        terms = Terms(asking.asker, models=names, shorter=asking.shorter)
        return await self._dispatcher.run(request, terms, asking.on_delta)


@asynccontextmanager
async def open_models(specs: Sequence[ModelSpec]) -> AsyncIterator[DirectModels]:
    """The models of a program. Raises ConfigurationError that names the model and the fix."""
    sessions = Sessions(specs)
    try:
        yield DirectModels(specs, sessions)
    finally:
        await sessions.aclose()
