"""The databases of modules for one process: migrated, checked, and then handed out.

`app` makes a `ModuleRooms` for the kernel of modules, which calls `migrate` with the manifests of those that it is
about to open, and then `stores` for each. Next: `migrations.py`, `stores.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from switchboard.domain.errors import ConfigurationError, Unavailable
from switchboard.ports.module import ModuleManifest
from switchboard.store.database import Database
from switchboard.store.modules.migrations import is_migrated, migrate_modules
from switchboard.store.modules.stores import ModuleStores, StoreLimits, open_stores


class ModuleRooms:
    """What the modules of this process keep."""

    def __init__(self, database: Database, limits: StoreLimits | None = None) -> None:
        self._database = database
        self._limits = limits or StoreLimits()
        self._open: dict[str, ModuleStores] = {}

    async def migrate(self, manifests: Iterable[ModuleManifest]) -> Mapping[str, str]:
        """Make the tables of modules and check their queries; returns by the names of those that failed, why.

        It may be repeated for one that has failed. Raises Unavailable.
        """
        asked = [*manifests]
        failures = {**await migrate_modules(self._database, asked)}
        for manifest in asked:
            if manifest.name not in failures:
                try:
                    self._open[manifest.name] = await open_stores(self._database, manifest, self._limits)
                except ConfigurationError as error:
                    failures[manifest.name] = error.message
        return failures

    async def find(self, manifest: ModuleManifest) -> ModuleStores | None:
        """The stores of a module whose tables some process has made; None as long as none has. Changes nothing.

        Raises Unavailable, also if the tables are of another version.
        """
        if manifest.name not in self._open:
            try:
                if not await is_migrated(self._database, manifest):
                    return None
                self._open[manifest.name] = await open_stores(self._database, manifest, self._limits)
            except ConfigurationError as error:
                raise Unavailable(error.message) from error
        return self._open[manifest.name]

    def stores(self, manifest: ModuleManifest) -> ModuleStores:
        """The stores of a module that `migrate` did not fail for. Raises LookupError for another."""
        return self._open[manifest.name]
