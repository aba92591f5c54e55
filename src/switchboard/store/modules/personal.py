"""What modules keep of a person: handed out and erased by the queries that their manifests name.

`app/people/personal.py` adds those of the installed modules to what keeps something itself. No module is opened for
it: its tables are enough. Next: `stores.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from msgspec import Struct, to_builtins

from switchboard.domain.errors import Unavailable
from switchboard.domain.json_values import JsonMapping
from switchboard.ports.module import ModuleManifest, PersonalQueries
from switchboard.ports.module_store import ModuleStore
from switchboard.ports.people import PersonalScope
from switchboard.store.database import Database, query
from switchboard.store.modules.opening import ModuleRooms
from switchboard.store.modules.rooms import schema_of


class ModulePersonal(Struct, frozen=True):
    """`KeepsPersonal` of one module, which has tables in this database or not."""

    database: Database
    manifest: ModuleManifest
    queries: PersonalQueries

    @property
    def name(self) -> str:
        """As in the port."""
        return self.manifest.name

    async def count(self, scope: PersonalScope) -> int:
        """As in the port."""
        return sum(
            [len(await store.rows(self.queries.export, _keys_of(scope))) for store in await self._stores_of_accounts()]
        )

    async def export(self, scope: PersonalScope) -> AsyncIterator[JsonMapping]:
        """As in the port."""
        for store in await self._stores_of_accounts():
            for row in await store.rows(self.queries.export, _keys_of(scope)):
                yield to_builtins({name: _as_text(value) for name, value in row.items()})

    async def erase(self, scope: PersonalScope) -> int:
        """As in the port; what is erased of each account is a transaction."""
        return sum([await self._erase_in(store, scope) for store in await self._stores_of_accounts()])

    async def _erase_in(self, store: ModuleStore, scope: PersonalScope) -> int:
        async with store.transaction() as one:
            return [await one.run(name, _keys_of(scope)) for name in self.queries.erase][-1]

    async def _stores_of_accounts(self) -> list[ModuleStore]:
        """That of each account; none before the module was opened for the first time."""
        if not await self.database.value(query("modules.is_kept"), schema_of(self.manifest.name)):
            return []
        rooms = ModuleRooms(self.database)
        if why := (await rooms.migrate([self.manifest])).get(self.manifest.name):
            raise Unavailable(f"what the module {self.manifest.name} keeps cannot be reached: {why}")
        accounts = await self.database.rows(query("chores.accounts"), self.manifest.name)
        return [rooms.stores(self.manifest)(account) for account in ("", *(row["account"] for row in accounts))]


def _as_text(value: object) -> object:
    """Objects of others' servers are bytes: as what they say, and those that say nothing as `\\xff`."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def _keys_of(scope: PersonalScope) -> list[str]:
    """As `PersonalQueries` says; no key of a sender has a colon."""
    return [f"person:{scope.person_id}", *scope.keys]
