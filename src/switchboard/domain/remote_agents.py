"""A remote butler: whether it is alive, and what it announces.

`store/rules/remote_agents.py` reads it; `core/policy/liveness.py` judges it. Next: `core/remote_agents.py`, its
requests and responses.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from switchboard.domain.routing import Member, SystemId

Liveness = Literal["unwatched", "active", "stale", "quarantined"]
"""`unwatched`: it never promised heartbeats, so its silence says nothing."""


@dataclass(frozen=True, slots=True)
class RemoteState:
    """How a remote butler is doing, and where it is called. `why` says why it is quarantined."""

    system_id: SystemId
    liveness: Liveness
    why: str
    last_seen_at: datetime | None
    endpoint: str | None


@dataclass(frozen=True, slots=True)
class RemoteAgent(RemoteState):
    """A remote butler as last heard from. What it announced fills in what its team file leaves open.

    `by`: which operator quarantined it; empty if the cause was silence. `endpoint` was set at run time and takes
    precedence over the file's; `own_endpoint` was set by the butler itself, and counts only while the file allows it.
    """

    description: str = ""
    capabilities: tuple[str, ...] = ()
    own_endpoint: bool = False
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
