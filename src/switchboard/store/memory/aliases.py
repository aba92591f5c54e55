"""Other names of entities, by butler: since when and by whom. One that ended is kept with its end, and names nobody.

`StoredFacts` reads and writes them for the tools of memory. Next: `core/memory/entities.py`.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from switchboard.core.memory.settling import same_value
from switchboard.core.text.storable import storable_text
from switchboard.domain.routing import SystemId
from switchboard.ports.facts import EntityAlias
from switchboard.store.database import Database, query, rows_as


class Naming(Struct, frozen=True):
    """An entity by its name, and another name for it."""

    name: str
    alias: str


class PersonalAlias(EntityAlias, frozen=True):
    """One that is erased with a person."""

    system_id: SystemId
    until: datetime | None
    linked_by: str


async def list_aliases(database: Database, system_id: SystemId) -> list[EntityAlias]:
    """Those that hold now, the oldest first."""
    return rows_as(EntityAlias, await database.rows(query("aliases.list"), system_id))


async def link(database: Database, system_id: SystemId, naming: Naming, by: str) -> bool:
    """Whether it is new."""
    given = storable_text(naming.name), storable_text(naming.alias), *_keys_of(naming), by
    return bool(await database.value(query("aliases.link"), system_id, *given))


async def unlink(database: Database, system_id: SystemId, naming: Naming) -> bool:
    """Whether it held until now."""
    return bool(await database.value(query("aliases.unlink"), system_id, *_keys_of(naming)))


def _keys_of(naming: Naming) -> tuple[str, str]:
    return same_value(storable_text(naming.name)), same_value(storable_text(naming.alias))
