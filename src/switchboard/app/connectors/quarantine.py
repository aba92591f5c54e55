"""Events that could not be made into messages: connectors put them here, operators replay or discard them.

HTTP calls `QuarantineService` with the caller's `Principal`. Next: `store/connectors/quarantine.py`.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from switchboard.app.access import CONNECTOR, Access, Action, Principal, owns_endpoint
from switchboard.app.cursors import uuid_cursor
from switchboard.domain.errors import InvalidInput, NotFound, TooLarge
from switchboard.store.connectors import quarantine as store
from switchboard.store.connectors.quarantine import BadEvent, Put, Quarantined, QuarantineFilter
from switchboard.store.database import Database
from switchboard.store.people import audit

QUARANTINE: Final = Action("quarantine", CONNECTOR)

__all__ = [
    "MAX_EVENTS",
    "MAX_RAW",
    "BadEvent",
    "Put",
    "QuarantineFilter",
    "QuarantineService",
    "Quarantined",
    "QuarantinedDetail",
    "decode_event",
]

MAX_RAW: Final = 25 * 1024 * 1024
"""Maximum bytes of an event."""
MAX_EVENTS: Final = 1000
"""Maximum number of events of an account; beyond it the oldest are removed, as beyond `MAX_BYTES`."""
MAX_BYTES: Final = 1024 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class QuarantinedDetail(Quarantined):
    """An event in quarantine with its bytes in base64."""

    raw: str


class QuarantineService:
    """Connectors see the events of their endpoint, operators all."""

    def __init__(self, database: Database, access: Access) -> None:
        self._database = database
        self._access = access

    async def put(self, caller: Principal, event: BadEvent) -> Put:
        """Keep an event, once; it displaces the oldest ones of the account. Raises Forbidden."""
        account = event.channel, event.endpoint
        await self._access.check_endpoint(caller, QUARANTINE, *account)
        put = await store.put(self._database, event)
        gone = await store.forget_oldest(self._database, *account, events=MAX_EVENTS, size_bytes=MAX_BYTES)
        if gone:
            detail = {"channel": event.channel, "endpoint": event.endpoint, "event_ids": gone}
            await audit.append(self._database, caller.name, "quarantine:full", detail)
        return put

    async def list(
        self, caller: Principal, wanted: QuarantineFilter, *, limit: int, cursor: str | None
    ) -> tuple[list[Quarantined], str | None]:
        """A page, newest first, and the cursor of the next. Raises Forbidden, InvalidInput."""
        if caller.role == "connector":
            wanted = QuarantineFilter(
                wanted.channel or caller.channel, wanted.endpoint or caller.endpoint, wanted.replay
            )
            await self._access.check_endpoint(caller, QUARANTINE, wanted.channel or "", wanted.endpoint or "")
        before = uuid_cursor(cursor)
        page = await store.list_events(self._database, wanted, before=before, limit=limit)
        return page, str(page[-1].quarantine_id) if len(page) == limit else None

    async def get(self, caller: Principal, quarantine_id: UUID) -> QuarantinedDetail:
        """One event with its bytes. Raises NotFound."""
        await self._check(caller, quarantine_id)
        event = await store.get_event(self._database, quarantine_id)
        if event is None:
            raise _missing(quarantine_id)
        known = {name: getattr(event, name) for name in Quarantined.__slots__}
        return QuarantinedDetail(**known, raw=b64encode(event.raw).decode())

    async def replay(self, caller: Principal, quarantine_id: UUID) -> None:
        """Let the connector submit it again. Raises NotFound."""
        await self._check(caller, quarantine_id)
        if not await store.mark_for_replay(self._database, quarantine_id):
            raise _missing(quarantine_id)

    async def discard(self, caller: Principal, quarantine_id: UUID) -> None:
        """Remove it permanently, after a replay or as unwanted. Raises NotFound."""
        await self._check(caller, quarantine_id)
        event_id = await store.discard(self._database, quarantine_id)
        if event_id is None:
            raise _missing(quarantine_id)
        detail = {"quarantine_id": str(quarantine_id), "event_id": event_id}
        await audit.append(self._database, caller.name, "quarantine:discarded", detail)

    async def _check(self, caller: Principal, quarantine_id: UUID) -> None:
        account = await store.account_of(self._database, quarantine_id)
        if account is None:
            raise _missing(quarantine_id)
        if not owns_endpoint(caller, *account):
            raise await self._access.hide(caller, QUARANTINE, f"event {quarantine_id} in quarantine")


def decode_event(raw: str) -> bytes:
    """The bytes of an event from base64. Raises InvalidInput, TooLarge."""
    try:
        event = b64decode(raw, validate=True)
    except ValueError as error:
        raise InvalidInput(f"raw must be base64: {error}", code="invalid_value", field="raw") from None
    if len(event) > MAX_RAW:
        raise TooLarge(f"an event may have {MAX_RAW} bytes, this one has {len(event)}")
    return event


def _missing(quarantine_id: UUID) -> NotFound:
    return NotFound(f"there is no event {quarantine_id} in quarantine")
