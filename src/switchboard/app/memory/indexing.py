"""Making facts searchable that are not: those of an older release, and all when the languages change.

`app/ops/periodic.py` has one worker run it. In: the settings; out: what `store/memory/search.py` searches. Next:
`store/memory/fact_terms.py`.
"""

from __future__ import annotations

from typing import Final

from switchboard.store.database import Database
from switchboard.store.memory import fact_terms

_BATCH: Final = 200
"""Facts in one transaction: nobody keeps a fact meanwhile."""


class FactIndexer:
    """Reads facts in the background."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def index_some(self) -> int:
        """Make some facts searchable; returns how many. Raises `Unavailable`."""
        return await fact_terms.read_unread(self._database, _BATCH)
