"""Installed modules for operators: who has them, what is wrong with them, and what they do by themselves.

HTTP calls `ModuleService`. In: names; out: `ShownModule`s. No module is opened here, only manifests are read. Next:
`modules/kernel/manifests.py`, `store/modules/chores.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from pydantic import ValidationError

from switchboard.app.access import OPERATOR, Action, Principal
from switchboard.app.runtime import Runtime
from switchboard.core.channels.email import NAME as EMAIL
from switchboard.core.text.words import offer
from switchboard.domain.errors import Conflict, NotFound
from switchboard.domain.modules import ModuleAccount, ModuleSync, OpeningFailure, ShownChore, ShownModule
from switchboard.modules.accounts.settings import DavAccount
from switchboard.modules.calendar.settings import CalendarSettings
from switchboard.modules.email.settings import MailAccount
from switchboard.modules.kernel.grants import grants_of
from switchboard.modules.kernel.manifests import GROUP, Unusable, find_manifest
from switchboard.modules.kernel.tables import read_table
from switchboard.store.messages.mails import accounts_of
from switchboard.store.models import module_quarantine
from switchboard.store.modules import chores
from switchboard.store.people import audit
from switchboard.transport.plug_ins import plug_ins

MODULES_EDIT: Final = Action("modules_edit", OPERATOR)
_INVITES: Final = {
    "server": "its server, to attendees",
    "mail": "Switchboard, by mail to attendees",
    "nobody": "nobody",
}


class ModuleService:
    """For operators only."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._database = runtime.database

    async def list_modules(self) -> list[ShownModule]:
        """All that are installed, and those that butlers name without that, by name."""
        butlers = self._butlers_by_module()
        planned: dict[str, list[ShownChore]] = {}
        for module, chore in await chores.list_chores(self._database):
            planned.setdefault(module, []).append(chore)
        held = {one.module: one.why for one in await module_quarantine.list_quarantined(self._database)}
        failures = await module_quarantine.list_failures(self._database)
        senders = await self._find_senders()
        found = []
        for name in sorted({*plug_ins(GROUP).names, *butlers}):
            shown = await _read_module(name, butlers.get(name, ()))
            failed = [OpeningFailure(one.host, one.why) for one in failures if one.module == name]
            accounts = await asyncio.to_thread(self._accounts_of, name, senders)
            shown = replace(shown, failures=failed, chores=planned.get(name, ()), accounts=accounts)
            found.append(replace(shown, state="quarantined", why=held[name]) if name in held else shown)
        return found

    async def sync(self, caller: Principal, module: str) -> ModuleSync:
        """Make all chores of a module due now. Raises NotFound, and Conflict if it has none that a worker does."""
        names = plug_ins(GROUP).names
        if module not in names:
            raise NotFound(f"there is no module {module!r}{offer(module, sorted(names))}")
        async with self._database.transaction() as one:
            due = await chores.make_due(one, module)
            if not due:
                raise Conflict(
                    f"there is nothing that the module {module!r} does by itself, or it is being done; "
                    "workers know a new account once they are restarted"
                )
            await audit.append(one, caller.name, "modules:synced", {"module": module, "chores": due})
        return ModuleSync(module, due)

    async def _find_senders(self) -> frozenset[str]:
        """The addresses from which a connector sends mails, in lower case."""
        if not self._runtime.settings.modules.get(EMAIL):
            return frozenset()
        return frozenset(one.lower() for one in await accounts_of(self._database, EMAIL))

    def _accounts_of(self, module: str, senders: frozenset[str]) -> Sequence[ModuleAccount]:
        """Those in the settings of this process; what is wrong with these is told by whoever opens the module."""
        manifest, tables = find_manifest(module), self._runtime.settings.modules
        if isinstance(manifest, Unusable) or not tables.get(module):
            return ()
        try:
            table = read_table(manifest, tables)
        except ValidationError:
            return ()
        accounts = getattr(table, "accounts", {})
        invites = isinstance(table, CalendarSettings)
        return [_show_account(name, one, senders, invites=invites) for name, one in sorted(accounts.items())]

    def _butlers_by_module(self) -> Mapping[str, Sequence[str]]:
        found: dict[str, list[str]] = {}
        members = self._runtime.rule_book.rules.members
        for system_id in sorted(members):
            for name in grants_of(members[system_id]) if members[system_id].active else ():
                found.setdefault(name, []).append(system_id)
        return found


def _show_account(name: str, account: object, senders: frozenset[str], *, invites: bool) -> ModuleAccount:
    person, group = getattr(account, "person", ""), getattr(account, "group", "")
    owner = f"person:{person}" if person else f"group:{group}" if group else ""
    if isinstance(account, MailAccount):
        sending = [one for one in account.sends_as if one in senders]
        sends = (
            ", ".join(f"the account email/{one}" for one in sending)
            or "nobody, as no e-mail account of a channel has its address"
        )
        return ModuleAccount(name, owner, sends)
    return ModuleAccount(name, owner, _INVITES[account.sends] if invites and isinstance(account, DavAccount) else "")


async def _read_module(name: str, butlers: Sequence[str]) -> ShownModule:
    """What is known of a module by its manifest, and who has it."""
    manifest = await asyncio.to_thread(find_manifest, name)  # which imports it
    if isinstance(manifest, Unusable):
        return ShownModule(name, "unusable", manifest.why, (), butlers)
    tools = [tool.spec.name for tool in manifest.tools]
    return ShownModule(name, "in use" if butlers else "unused", "", tools, butlers)
