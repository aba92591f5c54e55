"""The port of a module's own tables, in a schema of its own that nothing else of the installation reads.

The store implements it; modules run by it the queries that their package brings. Next: `module.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol


class TakenOver(Exception):
    """Another worker does this chore by now: whoever sees it stops, and has changed nothing."""


class ModuleStore(Protocol):
    """A module's own tables, for one account, which is `$1` of every query.

    A query is a statement of a file in the package's `queries`, named like `events.in_range`. Everything runs as the
    module's own role, which sees the module's schema alone, for at most 10 seconds. All of it raises `Unavailable`, and
    `TakenOver` if this is the store of a chore that another worker has taken over.
    """

    async def rows(self, name: str, *args: object) -> Sequence[Mapping[str, Any]]:
        """The rows that a query returns."""
        ...

    async def run(self, name: str, *args: object) -> int:
        """How many rows a query has changed."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[ModuleStore]:
        """Several queries, all or none. It has no transaction within it."""
        ...
