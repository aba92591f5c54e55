"""The periodic tasks that one of all workers runs: expired leases, work on dead letters, retention.

`wiring.py` gives them to every worker. In: the database and settings; out: rows changed, and workers woken. Next:
`store/messages/dead_letters.py`, `store/messages/outbox.py`, `store/models/classification_log.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final
from uuid import UUID

import structlog

from switchboard.app.dead_letters.telling import DeadLetterWebhook
from switchboard.app.settings import DeadLetterSettings
from switchboard.core.channels.registry import CHANNELS, Channels
from switchboard.core.originals import Original, whole_envelope
from switchboard.core.uuid7 import first_uuid7
from switchboard.journey.reply import pool_of
from switchboard.lanes.kinds import WORK_POOL
from switchboard.lanes.notifier import WORK, Notifier, outbox_topic
from switchboard.ports.maintenance import MaintenanceTask
from switchboard.store import books, partitions
from switchboard.store.connectors import accounts, posted
from switchboard.store.database import Database
from switchboard.store.memory import compaction, history
from switchboard.store.messages import blobs, dead_letters, outbox
from switchboard.store.messages.dead_letters import DeadLetterReport, UntoldMessage
from switchboard.store.models import classification_log, usage
from switchboard.store.people import strangers
from switchboard.store.work import deltas, steps

log = structlog.get_logger(__name__)

NOBODY_TEXT: Final = (
    "Your message could not be delivered. It has been kept and will be looked at; there is no need to send it again."
)
_A_DAY_S: Final = 86_400.0
_TOLD_WITHIN: Final = timedelta(days=1)
"""A sender who is notified more than a day later cannot use it any more."""
_AT_ONCE: Final = 500
_EMPTIED_AT_ONCE: Final = 1000
_HISTORIES_AT_ONCE: Final = 50
_SESSIONS_STAY: Final = timedelta(hours=1)
"""After a session has expired: nothing opens by it any more."""
_DELTAS_STAY: Final = timedelta(hours=1)
"""What a worker that crashed has told of a reply; any other removes its own."""
_HELD_STAY: Final = timedelta(days=30)
"""Messages of strangers that nobody has decided about."""
ACCOUNTS_STAY: Final = timedelta(days=30)
"""How far an account had received that was removed."""
_POSTED_STAY: Final = timedelta(days=30)
"""Events that were posted for a connector which never fetched them."""
_BLOBS_STAY: Final = timedelta(days=1)
"""Without a message: by then a connector has submitted the one for which it uploaded them."""
_BLOBS_AT_ONCE: Final = 20
_EVENTS_STAY: Final = timedelta(days=30)
"""After their message came: a second decision is answered with the first, not with an unknown key."""


def maintenance_tasks(
    database: Database,
    notifier: Notifier,
    settings: DeadLetterSettings,
    callbacks: Container[str],
    channels: Channels = CHANNELS,
) -> tuple[MaintenanceTask, ...]:
    """All tasks; `callbacks` are the `api` endpoints to which replies are posted."""
    dead_letter_tasks = DeadLetterMaintenance(database, notifier, callbacks, channels)
    webhooks = () if settings.tell is None else (DeadLetterWebhook(database, settings.tell),)
    return (
        MaintenanceTask("expire_leases", 1.0, lambda: outbox.expire_leases(database)),
        MaintenanceTask("digest", 1.0, dead_letter_tasks.digest),
        MaintenanceTask("log_dead_letters", 1.0, dead_letter_tasks.log),
        *(MaintenanceTask("tell", 5.0, webhook.post_due) for webhook in webhooks),
        *((MaintenanceTask("tell_senders", 5.0, dead_letter_tasks.tell_senders),) if settings.tell_sender else ()),
        MaintenanceTask("empty_dead_letters", 3600.0, lambda: dead_letter_tasks.empty(settings.keep_days)),
        MaintenanceTask("balance_books", 60.0, lambda: books.balance_books(database)),
        MaintenanceTask("make_partitions", _A_DAY_S, lambda: partitions.make_partitions(database)),
    )


def retention_tasks(database: Database, keep_days: int, memory_days: int) -> tuple[MaintenanceTask, ...]:
    """The tasks that remove old data; corrections, facts, and daily spending stay."""
    old = Retention(database)
    return (
        MaintenanceTask("forget_sessions", 600.0, old.sessions),
        MaintenanceTask("forget_classifications", 3600.0, lambda: old.classifications(keep_days)),
        MaintenanceTask("forget_events", 3600.0, old.events),
        MaintenanceTask("forget_strangers", 3600.0, old.strangers),
        MaintenanceTask("forget_accounts", 3600.0, lambda: accounts.forget(database, ACCOUNTS_STAY)),
        MaintenanceTask("forget_posted", 3600.0, lambda: posted.forget(database, _POSTED_STAY)),
        MaintenanceTask("forget_late_failures", 3600.0, lambda: outbox.forget_late_failures(database)),
        MaintenanceTask("forget_blobs", 3600.0, old.blobs),
        MaintenanceTask("forget_deltas", 3600.0, lambda: deltas.forget(database, _DELTAS_STAY)),
        MaintenanceTask("erase_entries", 3600.0, lambda: old.entries(memory_days)),
    )


class Retention:
    """Removes old routing and waiting data in small batches, so that nobody waits for it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def sessions(self) -> int:
        """Sessions that expired an hour ago, unsettled reservations, past cooldowns; returns how many rows."""
        gone = await usage.forget_expired(self._database)
        return gone + await _repeat_bites(
            lambda: classification_log.forget_sessions(self._database, _SESSIONS_STAY, _EMPTIED_AT_ONCE)
        )

    async def events(self) -> int:
        """Events of items that have ended, once their messages are old; returns how many rows."""
        below = _first_id(_EVENTS_STAY)
        return await _repeat_bites(lambda: steps.forget_events(self._database, below, _EMPTIED_AT_ONCE))

    async def strangers(self) -> int:
        """Messages held for 30 days, and strangers without held messages; returns how many of both."""
        return await _repeat_bites(lambda: strangers.forget(self._database, _HELD_STAY))

    async def blobs(self) -> int:
        """Files without a message; returns how many."""
        return await _repeat_bites(lambda: blobs.forget(self._database, _BLOBS_STAY, _BLOBS_AT_ONCE))

    async def entries(self, keep_days: int) -> int:
        """Entries replaced by a summary for 30 days, and older histories and summaries; returns how many of all."""
        gone = await _repeat_bites(lambda: compaction.erase(self._database, _EMPTIED_AT_ONCE))
        below = _first_id(timedelta(days=keep_days))
        gone += await _repeat_bites(lambda: history.erase(self._database, below, _HISTORIES_AT_ONCE))
        return gone + await _repeat_bites(lambda: compaction.erase_summaries(self._database, below, _EMPTIED_AT_ONCE))

    async def classifications(self, keep_days: int) -> int:
        """Old attempts, calls and keys, except corrected attempts; returns how many rows."""
        age = timedelta(days=keep_days)
        gone = await _repeat_bites(
            lambda: classification_log.forget_classifications(self._database, age, _EMPTIED_AT_ONCE)
        )
        gone += await _repeat_bites(lambda: classification_log.forget_calls(self._database, age, _EMPTIED_AT_ONCE))
        gone += await usage.forget_flows(self._database, keep_days)
        below = _first_id(age)
        return gone + await _repeat_bites(
            lambda: classification_log.forget_keys(self._database, below, _EMPTIED_AT_ONCE)
        )


async def _repeat_bites(bite: Callable[[], Awaitable[int]]) -> int:
    """Repeat until nothing is left."""
    gone = 0
    while count := await bite():
        gone += count
    return gone


class DeadLetterMaintenance:
    """Automatic jobs about dead letters."""

    def __init__(
        self, database: Database, notifier: Notifier, callbacks: Container[str], channels: Channels = CHANNELS
    ) -> None:
        self._database = database
        self._notifier = notifier
        self._callbacks = callbacks
        self._channels = channels

    async def digest(self) -> int:
        """Notify each System4, in a notice or two, of the dead letters that wait for it; returns how many."""
        told = 0
        for handler in await dead_letters.waiting_handlers(self._database):
            count = await _repeat_bites(partial(dead_letters.digest, self._database, handler))
            log.info("dead letters reported in a digest", system_id=handler, dead_letters=count)
            told += count
        if told:
            self._notifier.notify(WORK)
        return told

    async def log(self) -> int:
        """Log a warning for each new dead letter, whichever process made it; returns how many."""
        return await _repeat_bites(lambda: dead_letters.log(self._database, _AT_ONCE, _log_report))

    async def tell_senders(self) -> int:
        """Tell the last day's senders, once per message, that it was undeliverable; returns how many were told."""
        since = _first_id(_TOLD_WITHIN)
        untold = await dead_letters.untold(self._database, since, _AT_ONCE)
        return sum([await self._tell_sender(message) for message in untold])

    async def _tell_sender(self, message: UntoldMessage) -> bool:
        envelope = whole_envelope(Original(message.raw, message.media_type, message.envelope))
        channel = self._channels[message.channel]
        sign = "unreadable" if envelope is None else channel.automatic(envelope)
        if sign is not None:
            log.info("sender not notified", request_id=str(message.request_id), sign=sign)
            await dead_letters.spare_sender(self._database, message.request_id)
            return False
        pool = pool_of(channel, message.endpoint, self._callbacks)
        told = await dead_letters.tell_sender(self._database, message.request_id, NOBODY_TEXT, pool)
        if told and pool is not None:
            self._notifier.notify(WORK if pool == WORK_POOL.name else outbox_topic(pool))
        return told

    async def empty(self, keep_days: int) -> int:
        """Empty the payloads of dead letters handled long ago; returns how many."""
        return await _repeat_bites(
            lambda: dead_letters.empty(self._database, keep_days=keep_days, limit=_EMPTIED_AT_ONCE)
        )


def _log_report(report: DeadLetterReport) -> None:
    ids = {"dead_letter_id": str(report.dead_letter_id), "request_id": str(report.request_id)}
    where = {"team_id": report.team_id, "channel": report.channel, "system_id": report.system_id}
    log.warning("dead letter", **ids, category=report.category, reason=report.reason, **where)


def _first_id(age: timedelta) -> UUID:
    """The lowest id that is not older than this."""
    return first_uuid7(datetime.now(UTC) - age)
