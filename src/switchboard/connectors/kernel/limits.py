"""How fast parts may be sent: per account, conversation and group, and what the platform itself asked for.

Pure: the time is given, in seconds of any clock that only goes forward.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from switchboard.core.policy.retry import backoff
from switchboard.ports.connector import Capabilities

_REMEMBERED: Final = 10_000
_STRIKES: Final = 7
_LONGEST_PAUSE_S: Final = 30.0


@dataclass(slots=True)
class Limiter:
    """When the next part may be sent; told of each part that was, and of each "later" of the platform."""

    capabilities: Capabilities
    _account: float = 0.0
    _conversations: dict[str, float] = field(default_factory=dict)
    _windows: dict[str, deque[float]] = field(default_factory=dict)

    def wait(self, conversation: str, now: float, *, group: bool = False) -> float:
        """Seconds until a part may be sent there; 0: now."""
        due = max(self._account, self._conversations.get(conversation, 0.0), self._freed(conversation, group))
        return max(due - now, 0.0)

    def sent(self, conversation: str, now: float, *, group: bool = False) -> None:
        """A part is being sent now."""
        self._account = max(self._account, now + self.capabilities.per_account_s)
        self.later(conversation, self.capabilities.per_conversation_s, now)
        if group and self.capabilities.per_group:
            window = self._windows.setdefault(conversation, deque(maxlen=self.capabilities.per_group[0]))
            window.append(now)
        self._forget(now)

    def later(self, conversation: str, seconds: float, now: float) -> None:
        """The platform asked for a pause there; one of the whole account has the conversation ""."""
        if not conversation:
            self._account = max(self._account, now + seconds)
        self._conversations[conversation] = max(self._conversations.get(conversation, 0.0), now + seconds)

    def _freed(self, conversation: str, group: bool) -> float:
        limit = self.capabilities.per_group
        window = self._windows.get(conversation)
        if not group or limit is None or window is None or len(window) < limit[0]:
            return 0.0
        return window[0] + limit[1]

    def _forget(self, now: float) -> None:
        if len(self._conversations) > _REMEMBERED:
            self._conversations = {key: due for key, due in self._conversations.items() if due > now}
        if len(self._windows) > _REMEMBERED and self.capabilities.per_group:
            horizon = now - self.capabilities.per_group[1]
            self._windows = {key: window for key, window in self._windows.items() if window[-1] > horizon}


@dataclass(slots=True)
class _Replies:
    """When the last replies went, by their id, and how often the brake was not enough."""

    times: dict[str, float] = field(default_factory=dict)
    strikes: int = 0


@dataclass(slots=True)
class Brake:
    """Slows replies to one sender, or in one conversation: `most` within `seconds`, and within twice as long each time
    that somebody makes use of it all. So two programs that answer each other come to rest. A reply counts once,
    however often it is tried."""

    most: int
    seconds: float
    _known: dict[str, _Replies] = field(default_factory=dict)

    def wait(self, whom: str, reply: str, now: float) -> float:
        """Seconds until this reply may go there; 0: now."""
        known = self._known.get(whom)
        if known is None or reply in known.times or len(known.times) < self.most:
            return 0.0
        return max(_first(known) + self._span(known) - now, 0.0)

    def replied(self, whom: str, reply: str, now: float) -> None:
        """The reply goes there now."""
        known = self._known.setdefault(whom, _Replies())
        if reply in known.times:
            return
        if len(known.times) == self.most:
            in_use = now - _first(known) < 2 * self._span(known)
            known.strikes = min(known.strikes + 1, _STRIKES) if in_use else 0
            del known.times[next(iter(known.times))]
        known.times[reply] = now
        self._forget(now)

    def _span(self, known: _Replies) -> float:
        return self.seconds * 2.0**known.strikes

    def _forget(self, now: float) -> None:
        if len(self._known) > _REMEMBERED:
            self._known = {
                whom: some for whom, some in self._known.items() if max(some.times.values()) + self._span(some) > now
            }


def pause_after(failures: int, asked: float | None, jitter: float) -> float:
    """Seconds until the switchboard is asked again, after so many failures (from 1); `jitter` in [0, 1).

    As long as it `asked` for and up to a fifth more, or longer each time, 30 s at most.
    """
    return backoff(failures, cap=_LONGEST_PAUSE_S, jitter=jitter) if asked is None else asked * (1.0 + jitter / 5)


def _first(known: _Replies) -> float:
    return next(iter(known.times.values()))
