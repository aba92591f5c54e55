"""Admission control: messages that are too large or too many are refused before anything else is done.

`accept.py` calls `check` for every submission. In: its size, envelope and submitter; out: nothing, or an error that
says when to try again. Next: `core/policy/rates.py`.
"""

from __future__ import annotations

import contextlib
import math
from typing import Final

from switchboard.core.policy.rates import AcceptLimits, RateLimiter
from switchboard.domain.envelope import Envelope
from switchboard.domain.errors import Overloaded, SenderOverRate, TooLarge, Unavailable
from switchboard.lanes.looks import Looks
from switchboard.store.database import Database
from switchboard.store.messages import inbox as store
from switchboard.store.work.lanes import Look

_ROOM: Final = {"operator": 1.0, "high_priority": 0.95}
"""The share of the backlog that each may fill."""
_ROOM_OF_OTHERS: Final = 0.9
_ROOM_OF_AN_ENDPOINT: Final = 0.5
_RETRY_AFTER_S: Final = 5.0


class Admission:
    """The last measured backlog, the messages counted since, and the rates of senders in this process."""

    def __init__(self, database: Database, limits: AcceptLimits) -> None:
        self._database = database
        self._limits = limits
        self._rates = RateLimiter(limits.sender_per_minute)
        self._backlog = 0
        self._since = 0
        self._crowded: frozenset[tuple[str, str]] = frozenset()

    def check_size(self, size: int) -> None:
        """Raise TooLarge for a message whose `size` (bytes) exceeds the limit."""
        if size > self._limits.message_bytes:
            raise TooLarge(f"the message has {size} bytes; at most {self._limits.message_bytes} are taken")

    def check(self, envelope: Envelope, *, by_operator: bool, now: float) -> None:
        """Count a message as accepted, or raise Overloaded or SenderOverRate."""
        waiting = self._backlog + self._since
        if waiting >= self._limits.backlog * self._room(envelope, by_operator=by_operator):
            raise self._overload_error(f"{waiting} messages are waiting, the limit is {self._limits.backlog}")
        if not by_operator:
            self._check_sender(envelope, now)
        self._since += 1

    def give_back(self, envelope: Envelope, *, by_operator: bool) -> None:
        """Do not count a message after all, because nothing of it was stored."""
        if not by_operator:
            self._rates.give_back(_flow(envelope))

    def _check_sender(self, envelope: Envelope, now: float) -> None:
        flow = _flow(envelope)
        if flow[:2] in self._crowded:
            raise self._overload_error(
                f"half of the {self._limits.backlog} messages that may wait are of this endpoint"
            )
        if wait := self._rates.take(flow, now):
            raise SenderOverRate(self._limits.sender_per_minute, math.ceil(wait))

    def _room(self, envelope: Envelope, *, by_operator: bool) -> float:
        return _ROOM.get("operator" if by_operator else envelope.control.policy_tier, _ROOM_OF_OTHERS)

    def _overload_error(self, why: str) -> Overloaded:
        return Overloaded(f"{why}; nothing was stored", retry_after=_RETRY_AFTER_S)

    async def take(self, look: Look) -> None:
        """Take the backlog from a look at the database, and find the endpoints that fill half of it."""
        most = self._limits.backlog * _ROOM_OF_AN_ENDPOINT
        self._backlog, self._since = look.backlog, 0  # the few that came during the look count again with the next
        crowded = await store.crowded_endpoints(self._database, most) if self._backlog >= most else ()
        self._crowded = frozenset(crowded)

    async def watch(self, looks: Looks, every: float) -> None:
        """Measure by the looks of this process; its own are `every` seconds apart. Runs until cancelled."""
        while True:
            with contextlib.suppress(Unavailable):  # the next submission reports it
                await self.take(await looks.next(every))


def _flow(envelope: Envelope) -> tuple[str, str, str]:
    return envelope.source.channel, envelope.source.endpoint_identity, envelope.sender.identity
