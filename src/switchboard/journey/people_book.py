"""The persons known in this process: loaded, and kept up to date with the database.

`decide.py` asks it who wrote a message, so that accepting one asks no table. It holds what rules may match on; what a
butler may reveal or do is decided by the database. Next: `core/people/known.py`.
"""

from __future__ import annotations

import asyncio

import structlog

from switchboard.core.people.known import NOBODY, KnownPeople
from switchboard.lanes.following import Follower, follow_topic
from switchboard.lanes.notifier import PEOPLE, Notifier
from switchboard.store.database import Database
from switchboard.store.people import people as store
from switchboard.store.work.lanes import Look

log = structlog.get_logger(__name__)


class PeopleBook:
    """The persons in this process: nobody until the first `refresh`; `follow` keeps them at most a second old."""

    def __init__(self, database: Database, notifier: Notifier) -> None:
        self._database = database
        self._notifier = notifier
        self._one_at_a_time = asyncio.Lock()
        self.people: KnownPeople = NOBODY

    async def refresh(self) -> bool:
        """Catch up with the database; returns whether anything changed."""
        async with self._one_at_a_time:
            if await store.read_version(self._database) == self.people.version:
                return False
            self.people = await store.load(self._database)
            log.info("persons in force", version=self.people.version, persons=len(self.people.persons))
            return True

    async def follow(self, every: float = 0.5) -> None:
        """Refresh on a notification about persons, and periodically. Runs until cancelled.

        `every`: seconds between own looks, where no worker of this process looks.
        """
        await follow_topic(self._notifier, Follower(PEOPLE, self._refresh_if_changed, self.refresh), every)

    async def _refresh_if_changed(self, look: Look) -> None:
        if look.people != self.people.version:
            await self.refresh()
