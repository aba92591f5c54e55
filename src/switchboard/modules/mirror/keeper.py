"""The port of what a module makes of the objects that are mirrored for it: contacts keys, a calendar occurrences.

`kept.py` calls it in the transaction that keeps an object, so that both are there or neither. Tables of a module refer
to `object` with `on delete cascade`. Next: `kept.py`.
"""

from __future__ import annotations

from typing import Protocol

from switchboard.ports.module_store import ModuleStore


class MirrorKeeper(Protocol):
    """Of one account. All are called with the store of a transaction, and may run queries of the module in it."""

    async def on_kept(self, store: ModuleStore, collection: str, name: str, data: bytes) -> str:
        """An object is there, new or changed. Returns why it cannot be read, or nothing; what it was before is gone.

        It raises nothing for what is in an object, or the sync would never get past that.
        """
        ...

    async def on_gone(self, store: ModuleStore, collection: str, name: str) -> None:
        """An object is there no more, or nothing of it can be read any more."""
        ...

    async def on_erased(self, store: ModuleStore) -> None:
        """All that is kept of the account goes, since its name is that of another one now.

        The objects go after this, and with them what refers to them.
        """
        ...
