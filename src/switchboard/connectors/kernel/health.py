"""How an account is: the state that heartbeats report, why and since when, and what was counted.

Kept by `receiving.py` and `sending.py`; `runner.py` reports it. Alive means receiving: a connection that is open and
silent is not healthy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from switchboard.connectors.kernel.api import ConnectorState


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(slots=True)
class Health:
    """`clock` gives seconds that only go forward; `heard` is when the platform last ended a round trip."""

    clock: Callable[[], float]
    state: ConnectorState = "starting"
    why: str = ""
    since: datetime = field(default_factory=_now)
    heard: float = 0.0
    paused: bool = False
    """We do not ask the platform, as the switchboard takes nothing."""
    counters: Counter[str] = field(default_factory=Counter)
    _troubles: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.heard = self.clock()

    def round_trip(self) -> None:
        """The platform answered, with or without events."""
        self.heard = self.clock()
        self.well("receiving")

    def trouble(self, part: str, why: str) -> None:
        """A part of the work does not succeed at present."""
        self._troubles[part] = why
        self._become("degraded", "; ".join(self._troubles.values()))

    def well(self, part: str) -> None:
        """It succeeds again."""
        self._troubles.pop(part, None)
        if self._troubles:
            self._become("degraded", "; ".join(self._troubles.values()))
        elif part == "receiving" or self.state != "starting":
            self._become("healthy", "")

    def failed(self, why: str) -> None:
        """Nothing goes on without a person."""
        self._become("failed", why)

    def silent_s(self) -> float:
        """Seconds since the platform last answered; 0 while we do not ask it."""
        return 0.0 if self.paused else self.clock() - self.heard

    def told(self) -> str | None:
        """What a heartbeat says beside the state."""
        return f"{self.why} (since {self.since:%Y-%m-%d %H:%M:%S} UTC)" if self.why else None

    def _become(self, state: ConnectorState, why: str) -> None:
        if state != self.state:
            self.since = _now()
        self.state, self.why = state, why
