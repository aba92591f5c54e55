"""How fast parts may be sent: per account, conversation and group, and what the platform itself asked for.

Pure: the time is given, in seconds of any clock that only goes forward.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from switchboard.ports.connector import Capabilities

_REMEMBERED: Final = 10_000


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
class Brake:
    """Slows replies to one sender: `most` within `seconds`. Two programs that answer each other get no faster."""

    most: int
    seconds: float
    _replies: dict[str, deque[float]] = field(default_factory=dict)

    def wait(self, sender: str, now: float) -> float:
        """Seconds until the next reply to this sender may go; 0: now."""
        replies = self._replies.get(sender)
        if replies is None or len(replies) < self.most:
            return 0.0
        return max(replies[0] + self.seconds - now, 0.0)

    def replied(self, sender: str, now: float) -> None:
        """A reply goes to this sender now."""
        self._replies.setdefault(sender, deque(maxlen=self.most)).append(now)
        if len(self._replies) > _REMEMBERED:
            self._replies = {who: some for who, some in self._replies.items() if some[-1] > now - self.seconds}
