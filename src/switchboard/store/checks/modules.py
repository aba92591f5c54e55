"""Checks of what modules keep and do: failed chores, and cages that are open.

Called by `app/ops/checks.py`, with the manifests of the modules that butlers have. Next: `store/modules/chores.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

from switchboard.ports.checks import MOST, CheckResult, warning
from switchboard.ports.module import ModuleManifest
from switchboard.store.database import Database, query
from switchboard.store.modules.chores import failed_chores
from switchboard.store.modules.rooms import can_enter, room_statements, schema_of


async def check_chores(database: Database) -> list[CheckResult]:
    """Chores whose last run failed; each is tried again by itself."""
    remedy = "it is tried again by itself; look in the log of the workers for `a chore failed`"
    return [
        warning(
            "chore",
            f"{one.module} {one.name}{f' of {one.account}' if one.account else ''} failed at "
            f"{one.at:%Y-%m-%d %H:%M} UTC: {one.error}; again at {one.next_at:%H:%M}",
            remedy,
        )
        for one in (await failed_chores(database))[:MOST]
    ]


async def check_cages(database: Database, manifests: Iterable[ModuleManifest]) -> list[CheckResult]:
    """Modules that run as our own role, as we may make none for them: only their queries are checked then."""
    found = []
    for manifest in manifests:
        if not manifest.sql or not await database.value(query("modules.is_kept"), schema_of(manifest.name)):
            continue  # no worker has opened it yet
        async with database.connection() as connection:
            room = await room_statements(connection, manifest.name)
            if not await can_enter(connection, room):
                detail = f"{manifest.name} runs as our own role: if its checks were passed by, it could read our tables"
                remedy = f"let an administrator run: {room.make_role_for_us}; then restart the workers"
                found.append(warning("module role", detail, remedy))
    return found
