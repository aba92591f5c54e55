"""How fast parts may be sent: per account, conversation and group, and as the platform itself asks.

Pure: the time is an argument, in seconds of any monotonic clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

from msgspec import Struct

from switchboard.core.policy.retry import backoff
from switchboard.ports.connector import Capabilities

_REMEMBERED: Final = 10_000
_QUIET: Final = 6
_LONGEST_PAUSE_S: Final = 30.0


@dataclass(slots=True)
class Limiter:
    """When the next part may be sent; must be told of each part sent, and of each "later" from the platform."""

    capabilities: Capabilities
    _account: float = 0.0
    _paused: float = 0.0
    """Until when the platform takes nothing of the whole account."""
    _conversations: dict[str, float] = field(default_factory=dict)
    _windows: dict[str, deque[float]] = field(default_factory=dict)

    def wait(self, conversation: str, now: float, *, group: bool = False) -> float:
        """Seconds until a part may be sent there; 0: now."""
        due = max(
            *(self._account, self._paused, self._conversations.get(conversation, 0.0)),
            self._time_of_free_slot(conversation, group),
        )
        return max(due - now, 0.0)

    def paused_s(self, now: float) -> float:
        """Seconds until the account may send anything; also for what had its turn before the pause began."""
        return max(self._paused - now, 0.0)

    def sent(self, conversation: str, now: float, *, group: bool = False) -> None:
        """Register that a part is being sent now."""
        self._account = max(self._account, now + self.capabilities.per_account_s)
        self.later(conversation, self.capabilities.per_conversation_s, now)
        if group and self.capabilities.per_group:
            window = self._windows.setdefault(conversation, deque(maxlen=self.capabilities.per_group[0]))
            window.append(now)
        self._forget(now)

    def later(self, conversation: str, seconds: float, now: float) -> None:
        """Register a pause that the platform asked for."""
        self._conversations[conversation] = max(self._conversations.get(conversation, 0.0), now + seconds)

    def pause_account(self, seconds: float, now: float) -> None:
        """Register a pause that the platform asked for, of the whole account."""
        self._paused = max(self._paused, now + seconds)

    def _time_of_free_slot(self, conversation: str, group: bool) -> float:
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
    """When the last replies were sent, by id; whether the next one waits, and whether the first of these had to."""

    times: dict[str, float] = field(default_factory=dict)
    waiting: bool = False
    waited: bool = False


class Earlier(Struct, frozen=True):
    """A reply of an earlier process: its destination, when it was created and sent, and whether it has failed once."""

    reply: str
    to: Sequence[str]
    made: float
    sent: float | None
    failed: bool


@dataclass(slots=True)
class Brake:
    """Stops two programs that answer each other.

    After `most` replies to one sender, or in one conversation, within `seconds`, the next one waits until nothing was
    sent there for as long; then none are sent until it has been quiet for six times as long. A reply counts once,
    however often it is tried, and one that a person sends again passes.
    """

    most: int
    seconds: float
    _known: dict[str, _Replies] = field(default_factory=dict)
    _stopped: dict[str, None] = field(default_factory=dict)

    def wait(self, whom: str, reply: str, now: float) -> float:
        """Seconds until this reply may be sent there; 0: now, inf: only if a person sends it again."""
        known = self._known.get(whom)
        if known is None or reply in known.times or reply in self._stopped or self._quiet(known, now):
            return 0.0
        if known.waited:
            return inf
        if not known.waiting and (len(known.times) < self.most or now - _first(known) >= self.seconds):
            return 0.0
        known.waiting = True
        return _last(known) + self.seconds - now

    def note_sent_reply(self, whom: str, reply: str, now: float) -> None:
        """Register that the reply is being sent there."""
        known = self._known.setdefault(whom, _Replies())
        if reply in known.times:
            return
        if known.times and self._quiet(known, now):
            known = self._known[whom] = _Replies(waited=known.waiting)
        if len(known.times) == self.most:
            del known.times[next(iter(known.times))]
        known.times[reply] = now
        self._forget(now)

    def note_stopped_reply(self, reply: str) -> None:
        """The reply is left to a person; if it returns, a person has sent it again."""
        self._stopped[reply] = None
        if len(self._stopped) > _REMEMBERED:
            del self._stopped[next(iter(self._stopped))]

    @property
    def remembers_s(self) -> float:
        """For how many seconds a reply counts if it is sent at once."""
        return self.seconds * (_QUIET + 1)

    def count_earlier_replies(self, earlier: Iterable[Earlier]) -> None:
        """Count the replies of earlier processes as if this one had sent them."""
        made = [(one.made, 0, one) for one in earlier]
        sent = [(one.sent, 1, one) for _, _, one in made if one.sent is not None]
        for at, is_sent, one in sorted([*made, *sent], key=lambda some: some[:2]):
            for whom in one.to:
                if is_sent:
                    self.note_sent_reply(whom, one.reply, at)
                else:
                    self.wait(whom, one.reply, at)
            if one.failed:
                self.note_stopped_reply(one.reply)

    def _quiet(self, known: _Replies, now: float) -> bool:
        return now - _last(known) >= self.seconds * (_QUIET if known.waited else 1)

    def _forget(self, now: float) -> None:
        if len(self._known) > _REMEMBERED:
            self._known = {whom: some for whom, some in self._known.items() if not self._quiet(some, now)}


def pause_after(failures: int, asked: float | None, jitter: float) -> float:
    """Seconds until the next request to the switchboard after `failures` failures (from 1); `jitter` in [0, 1).

    The time that it `asked` for plus up to a fifth, otherwise growing with each failure, up to 30 s.
    """
    return backoff(failures, cap=_LONGEST_PAUSE_S, jitter=jitter) if asked is None else asked * (1.0 + jitter / 5)


def _first(known: _Replies) -> float:
    return next(iter(known.times.values()))


def _last(known: _Replies) -> float:
    return next(reversed(known.times.values()))
