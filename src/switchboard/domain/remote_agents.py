"""A remote butler: whether it is alive, and what it announces.

`store/rules/remote_agents.py` reads it; `core/policy/liveness.py` judges it. Next: `core/remote_agents.py`, its
requests and responses.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import Struct

from switchboard.domain.routing import Member, SystemId

Liveness = Literal["unwatched", "active", "stale", "quarantined"]
"""`unwatched`: it never promised heartbeats, so its silence says nothing."""


class RemoteAgent(Struct, frozen=True):
    """A remote butler as last heard from. What it announced fills in what its team file leaves open.

    `why` says why it is quarantined, `by` which operator did it; `by` is empty if the cause was silence. `endpoint` was
    set at run time and takes precedence over the file's; `own_endpoint` was set by the butler itself, and counts only
    while the file allows it.
    """

    system_id: SystemId
    liveness: Liveness
    last_seen_at: datetime | None = None
    description: str = ""
    capabilities: tuple[str, ...] = ()
    endpoint: str | None = None
    own_endpoint: bool = False
    why: str = ""
    by: str = ""

    @property
    def away(self) -> bool:
        """Whether no model may choose it."""
        return self.liveness == "quarantined"


def self_description(member: Member, remote_agent: RemoteAgent | None) -> tuple[str, tuple[str, ...]]:
    """Description and capabilities of a member: those of its file, or the announced ones where the file has none."""
    if remote_agent is None:
        return member.description, member.capabilities
    return member.description or remote_agent.description, member.capabilities or remote_agent.capabilities
