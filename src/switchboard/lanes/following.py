"""How a book of this process is kept up to date with the database: by notifications, and by looks of its own.

`journey/rulebook.py` and `journey/people_book.py` call `follow_topic` with what each does when it hears, or sees,
that something has changed. Next: `notifier.py`, `looks.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog
from msgspec import Struct

from switchboard.domain.errors import Unavailable
from switchboard.lanes.notifier import Notifier
from switchboard.store.work.lanes import Look
from switchboard.tasks import cancel_tasks

log = structlog.get_logger(__name__)


class Follower(Struct, frozen=True):
    """What follows a topic: `on_look` is given what a look has seen, `on_notification` is called after each one."""

    topic: str
    on_look: Callable[[Look], Awaitable[object]]
    on_notification: Callable[[], Awaitable[object]]


async def follow_topic(notifier: Notifier, follower: Follower, every: float) -> None:
    """Call the follower until cancelled; while the database is unavailable, that is logged.

    `every`: seconds between own looks, where no worker of this process looks.
    """
    told = asyncio.create_task(_follow_notifications(notifier, follower))
    try:
        while True:
            try:
                await follower.on_look(await notifier.looks.next(every))
            except Unavailable as error:
                _log_failure(follower, error)
    finally:
        await cancel_tasks(told)


async def _follow_notifications(notifier: Notifier, follower: Follower) -> None:
    changed = asyncio.Event()
    with notifier.subscribe(follower.topic, changed.set):
        while True:
            await changed.wait()
            changed.clear()
            try:
                await follower.on_notification()
            except Unavailable as error:
                _log_failure(follower, error)


def _log_failure(follower: Follower, error: Unavailable) -> None:
    log.warning(f"{follower.topic} not refreshed", reason=error.message)
