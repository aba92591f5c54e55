"""What the instances of a connector agree on: which of them serves the account, and how far it has received.

HTTP calls `AccountService` with the caller's `Principal`. Next: `store/connectors/accounts.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from switchboard.app.access import Access, Principal
from switchboard.app.messages.blobs import OUTBOX
from switchboard.store.connectors import accounts as store
from switchboard.store.connectors.accounts import AccountLease, Holder
from switchboard.store.database import Database
from switchboard.store.people import strangers

__all__ = ["AccountId", "AccountLease", "AccountService", "Holder", "LeaseQuery"]


class AccountId(Struct, frozen=True):
    """An account of a channel, by the platform's own id of it."""

    channel: str
    endpoint: str


class LeaseQuery(Struct, frozen=True):
    """What a lease is to tell: where butlers work on an answer, and the replies of so many seconds."""

    answering: bool = False
    recent_s: float | None = None


class AccountService:
    """Serves the connectors of an account; an operator may stand in for any of them. All raise Forbidden."""

    def __init__(self, database: Database, access: Access, look: Callable[[], None]) -> None:
        """`look` at what accounts say of strangers: every process that may receive for one comes here first."""
        self._database = database
        self._access = access
        self._look = look

    async def lease(self, caller: Principal, account: AccountId, holder: Holder, wanted: LeaseQuery) -> AccountLease:
        """Lease the account or renew its lease. Raises AccountHeld if another instance has it."""
        await self._check(caller, account)
        self._look()
        place = (self._database, account.channel, account.endpoint)
        lease = await store.lease_account(*place, holder)
        if wanted.answering:
            lease = replace(lease, answering=await store.answering(*place))
        if wanted.recent_s is not None:
            since = datetime.now(UTC) - timedelta(seconds=wanted.recent_s)
            lease = replace(lease, recent=await store.recent(*place, since))
        return lease

    async def release(self, caller: Principal, account: AccountId, lease: int) -> None:
        """End the lease, so that a standby takes over at once. Raises Conflict."""
        await self._check(caller, account)
        await store.release_account(self._database, account.channel, account.endpoint, lease)

    async def save_cursor(self, caller: Principal, account: AccountId, lease: int, cursor: str) -> None:
        """Keep the cursor. Raises Conflict if the lease has ended."""
        await self._check(caller, account)
        await store.save_cursor(self._database, account.channel, account.endpoint, lease, cursor)

    async def move(self, caller: Principal, account: AccountId, lease: int, old: str, new: str) -> None:
        """A conversation continues under another id, and what is known of it counts there. Raises Conflict."""
        await self._check(caller, account)
        async with self._database.transaction() as one:
            await store.move(one, account.channel, account.endpoint, lease, old, new)
            await strangers.move(one, account.channel, account.endpoint, old, new)

    async def _check(self, caller: Principal, account: AccountId) -> None:
        await self._access.check_endpoint(caller, OUTBOX, account.channel, account.endpoint)
