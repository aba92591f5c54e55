"""Whose rules a caller may read: an operator all, an agent those of its own team and of the teams below.

HTTP and MCP make one with `reach_of` for every request; `rules/records.py`, `rules/replays.py` and `messages/views.py`
omit anything beyond it. Who may edit is decided in `rules/service.py`. Next: `core/routing/scope.py`.
"""

from __future__ import annotations

from msgspec import Struct

from switchboard.app.access import Principal
from switchboard.app.runtime import Runtime
from switchboard.core.routing.scope import readable
from switchboard.domain.routing import SystemId, TeamId


class Reach(Struct, frozen=True):
    """Teams; None: all."""

    teams: frozenset[TeamId] | None = None

    def __contains__(self, team_id: str) -> bool:
        return self.teams is None or team_id in self.teams


ALL = Reach()


def reach_of(runtime: Runtime, caller: Principal) -> Reach:
    """The teams whose rules the caller may read, by the tree as this process knows it."""
    if caller.role == "operator":
        return ALL
    rules = runtime.rule_book.rules
    return Reach(readable(rules.teams, rules.members, SystemId(caller.system_id or "")))
