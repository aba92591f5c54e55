"""Where the account is: what it has heard, and the threads that it knows. Called by `channel.py`; no I/O.

A thread is known by its channel and the time of the message with which it began. The history of a channel lacks what is
said in threads, so the latest ones are kept, to be asked after an outage.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from switchboard.ports.raw import at, child, integer, word

_MOST: Final = 300
DAY_S: Final = 86_400.0
_KEPT_S: Final = 7 * DAY_S

ThreadKey = tuple[str, str]
"""Channel, and time of the first message."""


@dataclass(slots=True)
class SlackThread:
    """A thread. `last`: when somebody last wrote there; `ours`: we have written there.

    `told`: the message that carries the one with which the thread began, as the first that was said to us.
    """

    last: float
    ours: bool = False
    told: str = ""


@dataclass(slots=True)
class SlackPlace:
    """What a cursor says. `posted`: the last kept event; `heard`: the time of the latest one, in seconds since 1970.

    `heard` None: nothing was heard yet.
    """

    posted: int = 0
    heard: float | None = None
    threads: dict[ThreadKey, SlackThread] = field(default_factory=dict)

    @classmethod
    def read(cls, cursor: str | None) -> Self:
        """Parse a cursor; an invalid one is the beginning."""
        try:
            found = child(json.loads(cursor or "{}"))
        except (ValueError, RecursionError):
            found = {}
        heard = found.get("heard")
        threads = {
            (channel, ts): SlackThread(float(word(at(one, 0)) or 0), at(one, 1) == 1, word(at(one, 2)) or "")
            for channel, some in child(found, "threads").items()
            for ts, one in child(some).items()
        }
        posted = int(integer(found.get("posted")) or 0)
        return cls(posted, float(heard) if isinstance(heard, int | float) else None, threads)

    def __str__(self) -> str:
        threads = dict[str, dict[str, list[object]]]()
        for (channel, ts), one in self.threads.items():
            threads.setdefault(channel, {})[ts] = [int(one.last), int(one.ours), one.told]
        return json.dumps({"posted": self.posted, "heard": self.heard, "threads": threads}, separators=(",", ":"))

    def note_time(self, at_: float) -> None:
        """Everything was heard that happened before this time."""
        if at_ > 0.0:
            self.heard = max(self.heard or 0.0, at_)

    def mend_time(self, latest: float) -> None:
        """A time after the latest that is possible is of a clock that was ahead: nobody knows what was heard."""
        if self.heard is not None and self.heard > latest:
            self.heard = None

    def note_thread(self, key: ThreadKey, when: float, *, ours: bool = False) -> SlackThread:
        """Somebody has written in a thread, which becomes the latest one."""
        known = self.threads.pop(key, None) or SlackThread(when)
        known.last, known.ours = max(known.last, when), known.ours or ours
        self.threads[key] = known
        if len(self.threads) > _MOST:
            del self.threads[min(self.threads, key=lambda one: self.threads[one].last)]
        return known

    def follows(self, key: ThreadKey) -> bool:
        """Whether we have written in a thread."""
        known = self.threads.get(key)
        return known is not None and known.ours

    def latest_threads(self, channel: str, now: float) -> Mapping[str, SlackThread]:
        """The threads of a channel in which somebody has written within seven days."""
        return {ts: one for (place, ts), one in self.threads.items() if place == channel and now - one.last <= _KEPT_S}
