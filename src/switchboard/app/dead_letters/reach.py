"""Which dead letters a caller may see: an operator all, a System4 and a System3 those of their teams.

Called by `service.py` and `reroute.py`. A `Principal` enters; filters, cases and rows leave, or NotFound for what is
out of reach, so that nothing is learned from asking. Next: `core/routing/scope.py`.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from msgspec.structs import replace

from switchboard.app.access import AGENT, Access, Action, Principal
from switchboard.app.runtime import Runtime
from switchboard.core.routing.scope import handled_by
from switchboard.domain.errors import Forbidden, NotFound
from switchboard.domain.routing import SystemId, TeamId
from switchboard.domain.shown import ShownDeadLetter
from switchboard.store.messages import dead_letters as store
from switchboard.store.messages.dead_letters import DeadLetterCase, DeadLetterFilter

DEAD_LETTERS: Final = Action("dead_letters", AGENT)


class HandlerReach:
    """Roles are checked by the interface (`Access.check`), teams here."""

    def __init__(self, runtime: Runtime, access: Access) -> None:
        self._runtime = runtime
        self._database = runtime.database
        self._access = access

    def own_teams(self, caller: Principal) -> frozenset[TeamId]:
        """The teams whose dead letters this caller may see and handle."""
        system_id = None if caller.system_id is None else SystemId(caller.system_id)
        rules = self._runtime.rule_book.rules
        return handled_by(rules.teams, rules.members, system_id)

    async def within(self, caller: Principal, wanted: DeadLetterFilter) -> DeadLetterFilter:
        """The filter, restricted to what the caller may see. Raises Forbidden."""
        if caller.role == "operator":
            return wanted
        own = self.own_teams(caller)
        if not own or not own.issuperset(wanted.teams or ()):
            await self._access.record_refusal(caller, DEAD_LETTERS, {"team_id": list(wanted.teams or ())})
            raise Forbidden(
                "an agent may read the dead letters of its team as its System4, and of those below, too, as its System3"
            )
        return replace(wanted, teams=sorted(wanted.teams or own))

    def reader(self, caller: Principal) -> TeamId | None:
        """The team that may see only its part of a message; None: an operator sees all."""
        if caller.role == "operator":
            return None
        member = self._runtime.rule_book.rules.members.get(SystemId(caller.system_id or ""))
        return TeamId("") if member is None else member.team_id

    async def check_team(self, caller: Principal, dead_letter_id: UUID, team_id: TeamId) -> None:
        """Raise NotFound for a dead letter of another team."""
        if caller.role != "operator" and team_id not in self.own_teams(caller):
            raise await self._access.hide(caller, DEAD_LETTERS, f"dead letter {dead_letter_id}")

    async def case(self, caller: Principal, dead_letter_id: UUID) -> DeadLetterCase:
        """The data for a decision about it. Raises NotFound."""
        case = await store.get_case(self._database, dead_letter_id)
        if case is None:
            raise NotFound(f"there is no dead letter {dead_letter_id}")
        await self.check_team(caller, dead_letter_id, case.team_id)
        return case

    async def shown(self, caller: Principal, case: DeadLetterCase) -> ShownDeadLetter:
        """Its present state; dead letters are never removed."""
        found = await store.dead_letters_of(self._database, case.request_id, self.reader(caller))
        return next(one for one in found if one.dead_letter_id == case.dead_letter_id)
