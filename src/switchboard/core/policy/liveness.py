"""Whether a remote butler counts as alive, by how long it has been silent.

Called by `store/rules/remote_agents.py` with the seconds of silence by the database's clock. Pure. Next:
`domain/remote_agents.py`.
"""

from __future__ import annotations

from msgspec import Struct

from switchboard.domain.numbers import Positive
from switchboard.domain.remote_agents import Liveness


class LivenessPolicy(Struct, frozen=True):
    """`[liveness]`: seconds of silence after which a butler is stale, and after which it is quarantined."""

    stale_after: Positive = 300.0
    quarantine_after: Positive = 600.0

    def check(self) -> None:
        """Raises ValueError if they are in the wrong order."""
        if self.quarantine_after < self.stale_after:
            raise ValueError("quarantine_after must not be less than stale_after")

    @property
    def interval(self) -> int:
        """The interval of heartbeats in whole seconds: two may get lost before the butler is stale."""
        return max(1, int(self.stale_after / 3))


def liveness(silence: float, patience: LivenessPolicy, *, promised: bool, quarantined: bool) -> Liveness:
    """The state. `promised`: it sends heartbeats, or its file says so; `quarantined`: by an operator, despite any."""
    if quarantined:
        return "quarantined"
    if not promised:
        return "unwatched"
    if silence > patience.quarantine_after:
        return "quarantined"
    return "stale" if silence > patience.stale_after else "active"
