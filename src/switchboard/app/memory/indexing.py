"""Making facts searchable that are not: new ones by their meaning, and all when the languages or the model change.

`app/ops/periodic.py` has one worker run it. In: the settings, an embedder; out: what `store/memory/search.py` searches.
Next: `store/memory/fact_terms.py`, `store/memory/fact_vectors.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import Final

from switchboard.ports.embedder import Embedder, EmbeddingFailed
from switchboard.ports.maintenance import MaintenanceTask
from switchboard.store.database import Database
from switchboard.store.memory import fact_terms, fact_vectors

_EVERY_S: Final = 3.0
_ANEW_S: Final = 3600.0
"""So often the index is brought to what the settings say, besides when a worker starts."""
_AT_ONCE_S: Final = 2.0
"""For so long it goes on at once, so that the worker's other tasks have their turn."""
_READ: Final = 200
"""Facts whose words are read in one transaction: nobody keeps a fact meanwhile."""
_EMBEDDED: Final = 32
"""Facts that a model is given at once."""


def indexing_tasks(
    database: Database, languages: Sequence[str], embedder: Embedder | None
) -> tuple[MaintenanceTask, ...]:
    """What a worker runs from time to time. `has_work` of the store says whether facts wait to be indexed."""
    indexer = FactIndexer(database, languages, embedder)
    return (
        MaintenanceTask("index_facts", _EVERY_S, indexer.index_some),
        MaintenanceTask("prepare_index", _ANEW_S, indexer.prepare, local=True),
    )


class FactIndexer:
    """Indexes facts in the background, in one thread."""

    def __init__(self, database: Database, languages: Sequence[str], embedder: Embedder | None) -> None:
        self._database = database
        self._languages = tuple(languages)
        self._embedder = embedder
        self._model_id: int | None = None

    async def prepare(self) -> None:
        """Have facts wait that are not indexed by these languages and this model. Raises `Unavailable`."""
        await fact_terms.change_languages(self._database, self._languages)
        if self._embedder is not None:
            self._model_id = await fact_vectors.enter_model(self._database, self._embedder.model)

    async def index_some(self) -> int:
        """Index some of the facts that wait; returns how many. Raises `Unavailable`."""
        until, done = monotonic() + _AT_ONCE_S, 0
        while monotonic() < until and (some := await fact_terms.read_unread(self._database, _READ)):
            done += some
        while monotonic() < until and (some := await self._embed_some()):
            done += some
        return done

    async def _embed_some(self) -> int:
        """A server that does not answer is tried again the next time; whoever asks it has told of it."""
        if self._embedder is None:
            return 0
        if self._model_id is None or not await fact_vectors.is_entered(self._database, self._model_id):
            self._model_id = await fact_vectors.enter_model(self._database, self._embedder.model)
        try:
            done = await fact_vectors.embed_some(self._database, self._embedder, self._model_id, _EMBEDDED)
        except EmbeddingFailed:
            return 0
        if not done:
            await fact_vectors.make_index(self._database, self._model_id)
        return done
