"""The chores that one worker of all does now and then: leases that ran out, what dead letters need, what is forgotten.

`wiring.py` gives them to every worker. In: the database and settings; out: rows changed, and workers woken. Next:
`store/dead_letters.py`, `store/outbox.py`, `store/verdicts.py`.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Container
from datetime import timedelta
from typing import Final
from uuid import UUID

import structlog

from switchboard.app.originals import Original, whole_envelope
from switchboard.app.settings import DeadLetterSettings
from switchboard.core.policy.automatic import automatic_sign
from switchboard.core.uuid7 import next_uuid7
from switchboard.journey.reply import pool_of
from switchboard.lanes.bell import WORK, Bell, outbox_topic
from switchboard.lanes.worker import Upkeep
from switchboard.store import dead_letters, outbox, verdicts
from switchboard.store.database import Database
from switchboard.store.dead_letters import Untold
from switchboard.store.lanes import WORK_POOL

log = structlog.get_logger(__name__)

NOBODY_TEXT: Final = (
    "Nobody here could take your message. It is kept, and somebody will look at it; you need not send it again."
)
_TOLD_WITHIN_S: Final = 86_400
"""Who is told later than a day after he wrote is told nothing he can use."""
_AT_ONCE: Final = 500
_EMPTIED_AT_ONCE: Final = 1000
_SESSIONS_STAY: Final = timedelta(hours=1)
"""After a session has expired: nothing opens by it any more."""


def chores(
    database: Database, bell: Bell, settings: DeadLetterSettings, callbacks: Container[str]
) -> tuple[Upkeep, ...]:
    """All chores; `callbacks` are the `api` endpoints to which replies are posted."""
    letters = Letters(database, bell, callbacks)
    return (
        Upkeep("expire_leases", 1.0, lambda: outbox.expire_leases(database)),
        Upkeep("digest", 1.0, letters.digest),
        *((Upkeep("tell_senders", 5.0, letters.tell_senders),) if settings.tell_sender else ()),
        Upkeep("empty_letters", 3600.0, lambda: letters.empty(settings.keep_days)),
    )


def forgetting(database: Database, keep_days: int) -> tuple[Upkeep, ...]:
    """The chores by which what models leave behind is removed; what was corrected, and the account of days, stay."""
    old = Forgetting(database)
    return (
        Upkeep("forget_sessions", 600.0, old.sessions),
        Upkeep("forget_verdicts", 3600.0, lambda: old.verdicts(keep_days)),
    )


class Forgetting:
    """What is removed of routing by models, in bites, so that nobody waits for it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def sessions(self) -> int:
        """Sessions that expired an hour ago, what nobody settled, rests that are over; returns how many rows."""
        gone = await verdicts.forget_holds(self._database)
        return gone + await _all(lambda: verdicts.forget_sessions(self._database, _SESSIONS_STAY, _EMPTIED_AT_ONCE))

    async def verdicts(self, keep_days: int) -> int:
        """Attempts, calls and keys of longer ago, attempts that were corrected excepted; returns how many rows."""
        age = timedelta(days=keep_days)
        gone = await _all(lambda: verdicts.forget_verdicts(self._database, age, _EMPTIED_AT_ONCE))
        gone += await _all(lambda: verdicts.forget_calls(self._database, age, _EMPTIED_AT_ONCE))
        below = _id_at(time.time() - age.total_seconds())
        return gone + await _all(lambda: verdicts.forget_keys(self._database, below, _EMPTIED_AT_ONCE))


async def _all(bite: Callable[[], Awaitable[int]]) -> int:
    """Until nothing is left."""
    gone = 0
    while count := await bite():
        gone += count
    return gone


class Letters:
    """What is done about dead letters without anybody asking."""

    def __init__(self, database: Database, bell: Bell, callbacks: Container[str]) -> None:
        self._database = database
        self._bell = bell
        self._callbacks = callbacks

    async def digest(self) -> int:
        """Tell each System4 in a notice or two of the letters that wait for it; returns of how many."""
        told = 0
        for handler in await dead_letters.waiting_handlers(self._database):
            letters = 0
            while some := await dead_letters.digest(self._database, handler):
                letters += some
            log.info("dead letters told in a digest", system_id=handler, letters=letters)
            told += letters
        if told:
            self._bell.ring(WORK)
        return told

    async def tell_senders(self) -> int:
        """Tell senders of the last day, once per message, that nobody could take it; returns how many were told."""
        since = _id_at(time.time() - _TOLD_WITHIN_S)
        untold = await dead_letters.untold(self._database, since, _AT_ONCE)
        return sum([await self._tell(message) for message in untold])

    async def _tell(self, message: Untold) -> bool:
        original = Original(message.raw, message.media_type, message.envelope, message.received_at)
        envelope = whole_envelope(original)
        sign = "unreadable" if envelope is None else automatic_sign(envelope)
        if sign is not None:
            log.info("sender not told", request_id=str(message.request_id), sign=sign)
            await dead_letters.spare_sender(self._database, message.request_id)
            return False
        pool = pool_of(message.channel, message.endpoint, self._callbacks)
        told = await dead_letters.tell_sender(self._database, message.request_id, NOBODY_TEXT, pool)
        if told and pool is not None:
            self._bell.ring(WORK if pool == WORK_POOL else outbox_topic(pool))
        return told

    async def empty(self, keep_days: int) -> int:
        """Throw away payloads of letters that were handled longer ago; returns how many."""
        emptied = 0
        while count := await dead_letters.empty(self._database, keep_days=keep_days, limit=_EMPTIED_AT_ONCE):
            emptied += count
        return emptied


def _id_at(seconds: float) -> UUID:
    """The lowest id of that moment: ids begin with their time."""
    return next_uuid7(None, int(seconds * 1000), 0)
