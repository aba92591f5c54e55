"""Butlers as they are today: what they have to do, what they cost, what they gave up, and what they may use.

The page calls `ButlerService`. In: the runtime; out: a `ButlerToday` for each member of a team. Cheap enough to be
looked at again and again: `Views.agents` counts all that was ever done. Next: `store/work/butlers.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec import Struct

from switchboard.app.models.process import butlers_of
from switchboard.app.remote_agents import ENGINE, shown_endpoint
from switchboard.app.runtime import Runtime
from switchboard.domain.remote_agents import RemoteAgent, self_description
from switchboard.domain.routing import Member, SystemId
from switchboard.modules.kernel.grants import grants_of
from switchboard.store.models import usage
from switchboard.store.models.usage import ButlerSpending
from switchboard.store.rules.remote_agents import list_remote_agents
from switchboard.store.work import butlers as store
from switchboard.store.work.butlers import ButlerFailures, ButlerWork

_LATELY: Final = timedelta(days=1)


class ButlerToday(Struct, frozen=True):
    """A member of a team. `models`: those that it may ask; `modules`: whose tools it may use.

    `work`, `spent` and `failures` are null if there is nothing of it; `remote` unless it is a remote butler.
    """

    member: Member
    description: str
    models: Sequence[str]
    modules: Sequence[str]
    work: ButlerWork | None
    spent: ButlerSpending | None
    failures: ButlerFailures | None
    remote: RemoteAgent | None
    endpoint: str | None


class ButlerService:
    """For operators only."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._database = runtime.database

    async def today(self) -> dict[SystemId, ButlerToday]:
        """All members of teams, by id: since midnight UTC what was spent, and of 24 hours what was given up."""
        now, members = datetime.now(UTC), self._runtime.rule_book.rules.members
        work = {one.system_id: one for one in await store.list_work(self._database)}
        spent = {one.system_id: one for one in await usage.spent_by_butlers(self._database, now.date())}
        failures = {one.system_id: one for one in await store.list_failures(self._database, now - _LATELY)}
        remote = await self._find_remote()
        asked = butlers_of(members.values(), self._runtime.settings)
        return {
            system_id: ButlerToday(
                member,
                self_description(member, remote.get(system_id))[0],
                [model for model, butlers in asked.items() if system_id in butlers],
                list(grants_of(member)),
                work.get(system_id),
                spent.get(system_id),
                failures.get(system_id),
                remote.get(system_id),
                shown_endpoint(member, remote.get(system_id)),
            )
            for system_id, member in members.items()
        }

    async def _find_remote(self) -> dict[SystemId, RemoteAgent]:
        """Nobody is asked for where no butler is remote."""
        if all(member.engine != ENGINE for member in self._runtime.rule_book.rules.members.values()):
            return {}
        found = await list_remote_agents(self._database, self._runtime.settings.liveness)
        return {one.system_id: one for one in found}
