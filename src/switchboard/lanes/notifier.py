"""Waking each other: within the process at once, between processes by a coalescing NOTIFY outside the hot transactions.

A NOTIFY inside a transaction locks the whole database at commit, which was measured to cost three quarters of the
throughput. A lost notification only costs time: every waiter also polls periodically.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Final
from uuid import uuid4

from switchboard.domain.errors import Unavailable
from switchboard.lanes.looks import Looks
from switchboard.store.database import Database
from switchboard.tasks import first_of

CHANNEL: Final = "switchboard"
_MOST: Final = 7000  # bytes of a payload; PostgreSQL accepts less than 8000
_PAUSE_S: Final = 0.5

WORK: Final = "work"
RULES: Final = "rules"
PEOPLE: Final = "people"


def outbox_topic(pool: str) -> str:
    """Notified when a reply waits for the connector of this pool."""
    return f"outbox:{pool}"


def posted_topic(channel: str, endpoint: str) -> str:
    """Notified when a platform has posted an event for the connector of this account."""
    return f"posted:{channel}/{endpoint}"


def settled_topic(request_id: object) -> str:
    """Notified when a delivery of this message is settled."""
    return f"settled:{request_id}"


def delta_topic(request_id: object) -> str:
    """Notified when more of a reply to this message has been written."""
    return f"delta:{request_id}"


class Notifier:
    """Topics that can be notified and waited for, here and in every other process on the same database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._hearers: dict[str, set[Callable[[], None]]] = defaultdict(set)
        self._unsent: set[str] = set()
        self._origin = f"@{uuid4()}"
        """Identifies our own notifications, which PostgreSQL also delivers to us."""
        self._sender: asyncio.Task[None] | None = None
        self._listeners = 0
        self.looks = Looks(database, self._ring_of)
        """What is looked at periodically, should a notification be lost."""
        self._alone, self._accompanied = asyncio.Event(), asyncio.Event()
        self._alone.set()

    def notify(self, topic: str) -> None:
        """Wake everything that waits for `topic`; never blocks, never fails."""
        self._ring_here(topic)
        self._unsent.add(topic)
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send())

    def handle_notification(self, payload: str) -> None:
        """Another process, or this one, has notified (called by the listener of the dedicated connection)."""
        origin, *topics = payload.split("\n")
        if origin == self._origin:
            return
        if not origin.startswith("@"):  # the previous release does not say who it is
            topics.append(origin)
        for topic in topics:
            self._ring_here(topic)

    async def listen(self) -> None:
        """Receive notifications of other processes. Runs until cancelled; reconnects.

        Over a connection of its own only while no worker of this process listens: each costs the database a process.
        """
        while True:
            await asyncio.sleep(_PAUSE_S)  # a worker that starts now listens by then
            await self._alone.wait()
            with contextlib.suppress(Unavailable):
                await self._listen_once()

    async def _listen_once(self) -> None:
        over = asyncio.Event()
        connection = await self._database.dedicated_connection()
        try:
            connection.add_termination_listener(lambda _: over.set())
            await self._database.listen(connection, CHANNEL, self.handle_notification)
            await first_of(over.wait(), self._accompanied.wait())
        finally:
            connection.terminate()

    @contextlib.contextmanager
    def heard_by_a_worker(self) -> Iterator[None]:
        """While this is open, `handle_notification` is called over a worker's connection, and ours is closed."""
        self._listeners += 1
        self._alone.clear()
        self._accompanied.set()
        try:
            yield
        finally:
            self._listeners -= 1
            if not self._listeners:
                self._accompanied.clear()
                self._alone.set()

    @contextlib.contextmanager
    def subscribe(self, topic: str, hearer: Callable[[], None]) -> Iterator[None]:
        """Call `hearer` on every notification."""
        self._hearers[topic].add(hearer)
        try:
            yield
        finally:
            self._hearers[topic].discard(hearer)
            if not self._hearers[topic]:
                del self._hearers[topic]

    def _ring_here(self, topic: str) -> None:
        for hearer in tuple(self._hearers.get(topic, ())):
            hearer()

    def _ring_of(self, pools: Iterable[str]) -> None:
        for pool in pools:
            self._ring_here(outbox_topic(pool))

    async def _send(self) -> None:
        while self._unsent:
            topics, self._unsent = self._unsent, set()
            try:
                for payload in _split_payloads(self._origin, topics):
                    await self._database.notify(CHANNEL, payload)
            except Unavailable:
                return  # the others poll


def _split_payloads(origin: str, topics: set[str]) -> Iterator[str]:
    """Lines: the notifying process, and the topics."""
    payload = origin
    for topic in sorted(topics):
        if len(payload.encode()) + len(topic.encode()) > _MOST:
            yield payload
            payload = origin
        payload = f"{payload}\n{topic}"
    yield payload
