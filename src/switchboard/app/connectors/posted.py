"""Events that platforms post for a connector, or push to it: stored at once, and handed to it in order.

`hooks.py` puts them here, HTTP those that a connector was pushed; HTTP hands them out to the connector of their
account. Next: `store/connectors/posted.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from switchboard.app.access import Access, Principal
from switchboard.app.connectors.accounts import AccountId
from switchboard.app.messages.blobs import OUTBOX
from switchboard.domain.errors import Overloaded
from switchboard.lanes.notifier import Notifier, posted_topic
from switchboard.store.connectors import posted as store
from switchboard.store.connectors.posted import PostedEvent
from switchboard.store.database import Database
from switchboard.tasks import cancel_tasks

__all__ = ["MOST_WAITING", "PostedEvent", "PostedService"]

MOST_WAITING: Final = 10_000
"""Events of an account that may wait for its connector; beyond it the platform keeps them."""
_PAGE: Final = 100
_PAGE_BYTES: Final = 8_000_000
_LOOK_EVERY_S: Final = 5.0
"""A notification may be lost; then it takes that long."""
_AGAIN_S: Final = 30.0


class PostedService:
    """Connectors receive the events of their endpoint. All methods except `put` raise Forbidden."""

    def __init__(self, database: Database, access: Access, notifier: Notifier) -> None:
        self._database = database
        self._access = access
        self._notifier = notifier

    async def put(self, account: AccountId, raw: bytes) -> None:
        """Store a verified event. Raises Overloaded if too many wait."""
        await self._store_event(account, raw, None)

    async def keep(self, caller: Principal, account: AccountId, raw: bytes, mark: str) -> None:
        """Store an event that the connector was pushed, unless one with the same mark waits. Raises Overloaded."""
        await self._access.check_endpoint(caller, OUTBOX, account.channel, account.endpoint)
        await self._store_event(account, raw, mark)

    async def _store_event(self, account: AccountId, raw: bytes, mark: str | None) -> None:
        kept = await store.put(self._database, account.channel, account.endpoint, raw, most=MOST_WAITING, mark=mark)
        if kept is None:
            raise Overloaded(f"{MOST_WAITING} events wait for the connector of this account", retry_after=_AGAIN_S)
        self._notifier.notify(posted_topic(account.channel, account.endpoint))

    async def next(
        self, caller: Principal, account: AccountId, after: int, wait_s: float, gone: asyncio.Event
    ) -> Sequence[PostedEvent]:
        """The events after that number; waits up to `wait_s` s for the first, until `gone` is set."""
        await self._access.check_endpoint(caller, OUTBOX, account.channel, account.endpoint)
        ring = asyncio.Event()
        end = asyncio.get_running_loop().time() + wait_s
        with self._notifier.subscribe(posted_topic(account.channel, account.endpoint), ring.set):
            while not (found := await self._page(account, after)) and not gone.is_set():
                left = end - asyncio.get_running_loop().time()
                if left <= 0:
                    break
                await _either(ring, gone, min(left, _LOOK_EVERY_S))
                ring.clear()
            return found

    async def settle(self, caller: Principal, account: AccountId, lease: int, upto: int) -> None:
        """The connector has processed the events. Raises Conflict if its lease has ended."""
        await self._access.check_endpoint(caller, OUTBOX, account.channel, account.endpoint)
        await store.settle(self._database, account.channel, account.endpoint, lease, upto)

    async def _page(self, account: AccountId, after: int) -> Sequence[PostedEvent]:
        return await store.next_events(
            self._database, account.channel, account.endpoint, after, limit=_PAGE, size_bytes=_PAGE_BYTES
        )


async def _either(one: asyncio.Event, other: asyncio.Event, seconds: float) -> None:
    """Wait until one of the two is set, or the time is over."""
    waiting = [asyncio.create_task(event.wait()) for event in (one, other)]
    try:
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel_tasks(*waiting)
