"""What makes the vectors of memory in this process: chosen by the settings, opened when it is first used.

`app/wiring.py` makes one `ProcessEmbedder` for all that searches and fills. In: settings; out: an `Embedder` of the
port, or None where memory is searched by words alone. What asks or computes is loaded for the first text. Next:
`llm/local_embedder.py`, `app/models/embedder.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Protocol, TypeVar

import structlog

from switchboard.app.settings import Settings
from switchboard.core.memory.settings import LOCAL, NONE, EmbedderChoice, EmbedderSpec
from switchboard.distribution import install_command
from switchboard.domain.errors import ConfigurationError
from switchboard.llm.local_embedder import local_model, missing_package, open_local_embedder
from switchboard.ports.embedder import Embedder, EmbeddingFailed, EmbeddingModel, Vector
from switchboard.store.database import Database

log = structlog.get_logger(__name__)

_T = TypeVar("_T")


class ClosableEmbedder(Embedder, Protocol):
    """One that has been opened."""

    async def aclose(self) -> None: ...


class ProcessEmbedder:
    """Implements `switchboard.ports.embedder.Embedder`; opened by the first text. Close it at the end.

    That it cannot be opened, or does not answer, is told in the log once, until it answers again: whoever searches goes
    on by words alone.
    """

    def __init__(self, model: EmbeddingModel, open_it: Callable[[], Awaitable[ClosableEmbedder]]) -> None:
        self._model = model
        self._open_it = open_it
        self._opening = asyncio.Lock()
        self._opened: ClosableEmbedder | None = None
        self._unusable = ""
        self._told = False

    @property
    def model(self) -> EmbeddingModel:
        """As in the port. It is known before the model is opened."""
        return self._model

    async def embed_query(self, text: str) -> Vector:
        """As in the port."""
        return await self._ask_opened(lambda embedder: embedder.embed_query(text))

    async def embed_passages(self, texts: Sequence[str]) -> Sequence[Vector]:
        """As in the port."""
        return await self._ask_opened(lambda embedder: embedder.embed_passages(texts))

    async def aclose(self) -> None:
        """Close what was opened."""
        if self._opened is not None:
            await self._opened.aclose()

    async def _ask_opened(self, ask: Callable[[Embedder], Awaitable[_T]]) -> _T:
        try:
            found = await ask(await self._open_once())
        except EmbeddingFailed as failure:
            if failure.away and not self._told:
                self._told = True
                log.warning("memory is searched by words alone", embedder=self._model.name, why=failure.reason)
            raise
        self._told = False
        return found

    async def _open_once(self) -> Embedder:
        """What does not open once does not open at all: packages, weights and keys are those of the process."""
        async with self._opening:
            if self._unusable:
                raise EmbeddingFailed(self._unusable, away=True)
            if self._opened is None:
                try:
                    self._opened = await self._open_it()
                except ConfigurationError as error:
                    self._unusable = error.message
                    raise EmbeddingFailed(error.message, away=True) from error
            return self._opened


def embedder_of(settings: Settings, database: Database, closing: AsyncExitStack) -> Embedder | None:
    """The embedder that the settings name, not opened yet; `closing` closes it. None: by words alone."""
    made = _make_embedder(choose_embedder(settings), settings, database)
    if made is not None:
        closing.push_async_callback(made.aclose)
    return made


def choose_embedder(settings: Settings) -> EmbedderSpec | EmbedderChoice:
    """The one that is named; if none is, the local one where it is installed."""
    name = settings.memory.embedder
    if name is None:
        return LOCAL if missing_package() is None else NONE
    return next((one for one in settings.embedders if one.name == name), NONE if name == NONE else LOCAL)


def _make_embedder(
    chosen: EmbedderSpec | EmbedderChoice, settings: Settings, database: Database
) -> ProcessEmbedder | None:
    if isinstance(chosen, EmbedderSpec):
        return ProcessEmbedder(chosen.as_model, lambda: _open_remote(chosen, settings, database))
    if chosen == NONE:
        return None
    if missing := missing_package():
        log.warning("memory is searched by words alone", why=f"{missing} is missing", remedy=install_command("memory"))
        return None
    return ProcessEmbedder(local_model(), open_local_embedder)


async def _open_remote(spec: EmbedderSpec, settings: Settings, database: Database) -> ClosableEmbedder:
    from switchboard.app.models.embedder import open_remote_embedder

    return open_remote_embedder(spec, database, settings.spending.cap)
