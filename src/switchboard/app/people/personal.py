"""What is kept of a person: handed out as lines of JSON, and erased. For operators; both are audited.

HTTP calls `PersonalDataService` with the caller's `Principal`. In: the id of a person; out: all that their handles have
left. Everything that keeps something is in `list_keepers`; a feature that keeps people's words adds its line there.
Next: `ports/people.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

from switchboard.app.access import Principal
from switchboard.app.people import files
from switchboard.app.people.files import WorkspacesOfPerson
from switchboard.app.runtime import Runtime
from switchboard.core.people.handle import Handle
from switchboard.domain.errors import NotFound
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.people import ErasedData, ErasedKind
from switchboard.lanes.faults import point
from switchboard.modules.kernel.manifests import GROUP, Unusable, find_manifest, find_manifests
from switchboard.ports.people import KeepsPersonal, PersonalScope
from switchboard.store.modules.personal import ModulePersonal
from switchboard.store.people import audit, erased_files, personal
from switchboard.store.people import people as store
from switchboard.store.people.personal_messages import count_open, count_turns_of_others
from switchboard.transport.plug_ins import plug_ins

OUT_OF_REACH: Final = (
    "backups that were made before: what they have comes back with them, but for facts; erase again after a restore",
    "what the platforms, mailboxes, providers of models, remote butlers and programs have received",
    "what programs that embed Switchboard keep in directories of their own, logs, and traces that were exported",
    "what others wrote or quoted, and what butlers have answered them, and events in quarantine",
    "what turns for others noted of facts that had been forgotten before",
    "accounts of address books and calendars: what is mirrored of them is fetched again by the next sync, until an "
    "operator removes the account from the settings",
    "files of messages in the database: removed within a day",
)
"""What is not erased at once, or not by Switchboard."""


def list_keepers(runtime: Runtime) -> tuple[KeepsPersonal, ...]:
    """Everything that keeps something of a person, in the order in which it is erased.

    It imports manifests. Modules first: what is due becomes messages, which are erased after.
    """
    manifests = find_manifests(plug_ins(GROUP).names).values()
    modules = [ModulePersonal(runtime.database, one, one.personal) for one in manifests if one.personal is not None]
    return (*modules, *personal.stored_personal(runtime.database, runtime.channels, _pass_batch))


def _pass_batch(kind: str) -> None:
    point("erased_batch", kind)


def _unusable_modules() -> list[str]:
    found = {name: find_manifest(name) for name in plug_ins(GROUP).names}
    return [f"what the module {name} keeps: {one.why}" for name, one in found.items() if isinstance(one, Unusable)]


class PersonalDataService:
    """For operators only."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._database = runtime.database

    async def export(self, caller: Principal, person_id: str) -> AsyncGenerator[JsonMapping, None]:
        """Everything that is kept, item by item; the last one says how many there were. Raises NotFound."""
        scope = await self._find_scope(person_id)
        await audit.append(self._database, caller.name, "people:exported", {"person_id": person_id})
        return self._export_items(scope)

    async def _export_items(self, scope: PersonalScope) -> AsyncGenerator[JsonMapping, None]:
        count = 0
        for keeper in await self._find_keepers():
            async for item in keeper.export(scope):
                count += 1
                yield {"kept_in": keeper.name, **item}
        yield {"exported": count}

    async def erase(self, caller: Principal, person_id: str, *, dry_run: bool) -> ErasedData:
        """Erase everything, or say how much there is. Raises NotFound.

        Messages that are still worked on, or wait as dead letters, stay, and are counted: erase again when they have
        ended. Stopped in between, it goes on where it was when it is called again: files on the disks of workers are
        ordered to go while there are still messages that say which these are.
        """
        scope = await self._find_scope(person_id)
        if not dry_run:
            await audit.append(self._database, caller.name, "people:erasing", {"person_id": person_id})
            point("erasure_begun")
        members = self._runtime.rule_book.rules.members.values()
        workspaces = await files.find_workspaces(self._database, members, scope)
        if not dry_run:
            await files.order_files(self._database, self._runtime.channels, scope, workspaces.alone)
            point("files_ordered")
        keepers = await self._find_keepers()
        erased = [ErasedKind(one.name, await _erase_kind(one, scope, dry_run=dry_run)) for one in keepers]
        left = (await count_open(self._database, scope)).open
        left += (await count_turns_of_others(self._database, scope)).open
        if not dry_run:
            await files.order_results(self._database, scope)
            counts = {one.kept_in: one.count for one in erased}
            await audit.append(self._database, caller.name, "people:erased", {"person_id": person_id, **counts})
        pending = await erased_files.list_pending(self._database)
        out_of_reach = (*OUT_OF_REACH, *_kept_workspaces(workspaces), *await asyncio.to_thread(_unusable_modules))
        return ErasedData(person_id, erased, left, workspaces.alone, pending, out_of_reach)

    async def _find_keepers(self) -> tuple[KeepsPersonal, ...]:
        return await asyncio.to_thread(list_keepers, self._runtime)  # which imports packages of others

    async def _find_scope(self, person_id: str) -> PersonalScope:
        if not await store.list_people(self._database, only=person_id):
            raise NotFound(f"there is no person {person_id!r}; see `switchboard people list`")
        found = await store.list_handles(self._database, [person_id])
        handles = [Handle(one.channel, one.realm, one.identity) for one in found]
        mail = {name for name, channel in self._runtime.channels.items() if channel.identity == "address"}
        return await personal.find_scope(self._database, person_id, handles, mail=mail)


async def _erase_kind(keeper: KeepsPersonal, scope: PersonalScope, *, dry_run: bool) -> int:
    if dry_run:
        return await keeper.count(scope)
    erased = await keeper.erase(scope)
    point("erased_kind", keeper.name)
    return erased


def _kept_workspaces(found: WorkspacesOfPerson) -> list[str]:
    kept = []
    if found.shared:
        kept.append(f"files that butlers wrote for others, too, into the workspaces of {', '.join(found.shared)}")
    if found.named:
        kept.append(f"files in directories that the option `workspace` of butlers names: {', '.join(found.named)}")
    return kept
