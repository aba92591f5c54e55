"""The health of an account: the state reported by heartbeats and its reason, its lag, and its counters.

Kept by `receiving.py` and `sending.py`; `runner.py` reports it. Alive means receiving: an open but silent connection is
not healthy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from switchboard.connectors.kernel.api import ReportedState


@dataclass(slots=True)
class Health:
    """`clock` returns monotonic seconds; `heard` is when the platform last ended a round trip, or was asked.

    `window_s`: longest duration of a round trip while the connection is alive.
    """

    clock: Callable[[], float]
    window_s: float = 60.0
    state: ReportedState = "starting"
    why: str = ""
    heard: float = 0.0
    arrived: float = 0.0
    """When it last ended one."""
    waiting_since: datetime | None = None
    """When the oldest event was sent that has arrived and is not settled."""
    paused: bool = False
    """We do not ask the platform, as the switchboard takes nothing."""
    counters: Counter[str] = field(default_factory=Counter)
    more_counters: Callable[[], Mapping[str, int]] = dict
    """Those of the session."""
    _troubles: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.heard = self.arrived = self.clock()

    def round_trip(self) -> None:
        """The platform answered, with or without events."""
        self.heard = self.arrived = self.clock()
        self.well("receiving")

    def trouble(self, part: str, why: str) -> None:
        """A part of the work currently fails."""
        self._troubles[part] = why
        self._become("degraded", "; ".join(self._troubles.values()))

    def well(self, part: str) -> None:
        """The part works again."""
        self._troubles.pop(part, None)
        if self._troubles:
            self._become("degraded", "; ".join(self._troubles.values()))
        elif part == "receiving" or self.state != "starting":
            self._become("healthy", "")

    def failed(self, why: str) -> None:
        """Nothing continues without a person."""
        self._become("failed", why)

    def asking(self) -> None:
        """We poll the platform again; the pause before does not count as silence."""
        if self.paused:
            self.paused, self.heard = False, self.clock()

    def silent_s(self) -> float:
        """Seconds since the platform last answered; 0 while we do not ask it."""
        return 0.0 if self.paused else self.clock() - self.heard

    def standing_by(self, why: str) -> None:
        """Another process serves the account."""
        self._troubles.clear()
        self._become("standby", why)

    def serving(self) -> None:
        """This process serves the account."""
        if self.state == "standby":
            self.heard = self.arrived = self.clock()
            self._become("starting", "")

    def mark_stopped(self) -> None:
        """The process ends."""
        self._become("stopped", self.why)

    def lag_s(self, now: datetime) -> float | None:
        """Seconds behind the platform, by waiting events or because it does not answer; None if not behind."""
        if self.state in {"standby", "stopped"}:
            return None
        behind = [(now - self.waiting_since).total_seconds()] if self.waiting_since else []
        silent = self.clock() - self.arrived
        return max([*behind, *([silent] if silent > self.window_s else [])], default=None)

    def _become(self, state: ReportedState, why: str) -> None:
        self.state, self.why = state, why
