"""WhatsApp's limits: messages of a number in a second, and to one person in a while."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from switchboard.testing.whatsapp.errors import GraphError

_NUMBER: Final = (80, 1.0)
_PAIR: Final = (10, 60.0)
"""Meta documents one message in six seconds to a person, and bursts that are paid for later."""


class MessageLimits:
    """Counts messages; `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._done: dict[str, deque[float]] = {}

    def spend(self, number_id: str, to: str) -> None:
        """Count a message. If there are too many, it is not counted: raises GraphError."""
        known = ((number_id, *_NUMBER, 130429), (f"{number_id} {to}", *_PAIR, 131056))
        for name, most, window, code in known:
            if len(self._recent_of(name, window)) >= most:
                raise GraphError(code, "Message failed to send because there were too many messages in a short time")
        for name, *_ in known:
            self._done[name].append(self._clock())

    def _recent_of(self, name: str, window: float) -> deque[float]:
        done = self._done.setdefault(name, deque())
        while done and done[0] <= self._clock() - window:
            done.popleft()
        return done
