"""Whether a remote butler counts as alive, by how long he has said nothing.

Called by `store/presence.py` with the seconds of silence by the database's clock. Pure. Next: `domain/remote.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from switchboard.domain.remote import Liveness


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds of silence after which he is stale, and after which he is quarantined."""

    stale_after: float = 300.0
    quarantine_after: float = 600.0

    @property
    def interval(self) -> int:
        """Every how many whole seconds he shall say that he lives: two may get lost before he is stale."""
        return max(1, int(self.stale_after / 3))


def liveness(silence: float, patience: Patience, *, promised: bool, quarantined: bool) -> Liveness:
    """`promised`: he says that he lives, or his file says so; `quarantined`: by an operator, whatever he says."""
    if quarantined:
        return "quarantined"
    if not promised:
        return "unwatched"
    if silence > patience.quarantine_after:
        return "quarantined"
    return "stale" if silence > patience.stale_after else "active"
