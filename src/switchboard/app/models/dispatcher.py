"""The models of a process: one dispatcher over those of the settings, for turns, compaction and classification alike.

It pulls in the providers' SDKs, so `app/models/process.py` imports it when the first model is needed. Shared state
(spending, slots, cooldowns) is in the database. Next: `llm/dispatch.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from types import MappingProxyType
from typing import Final
from uuid import UUID

import structlog

from switchboard.app.settings import Settings
from switchboard.core.policy.budget import Amount, BudgetRefusal, Cap, Share
from switchboard.domain.errors import Unavailable
from switchboard.domain.llm import Bill
from switchboard.llm.build import Sessions, flaw
from switchboard.llm.dispatch import Dispatcher, DispatchLimits
from switchboard.llm.models import OpenModels
from switchboard.llm.slots import NoSlot, SlotLease, SlotRequest
from switchboard.llm.spec import ModelSpec
from switchboard.llm.spending import Reserved
from switchboard.store.database import Database
from switchboard.store.ids import new_uuid7
from switchboard.store.models import classification as store
from switchboard.store.models import usage as model_usage
from switchboard.store.models.classification import Reservation
from switchboard.store.models.usage import SlotWanted

log = structlog.get_logger(__name__)

RESERVED_FOR: Final = timedelta(minutes=10)
"""For as long a reservation counts that is not settled, because its process died."""
HearLimit = Callable[[str, int, float], None]
"""Told of a model, the tokens that it can read, and the seconds for which that counts."""
_NO_CAP: Final = Cap()
_SLOT_TTL_S: Final = 2.0
"""Short: the slots of a killed worker stay taken for this long, and renewing costs one statement."""


class StoredSpending:
    """The day's account in the database: one for all processes. Days are those of UTC."""

    def __init__(self, database: Database, today: Callable[[], date] = lambda: datetime.now(UTC).date()) -> None:
        self._database = database
        self._today = today

    async def reserve(self, wanted: Amount, cap: Cap, share: Share | None = None) -> Reserved | BudgetRefusal:
        """Reserve `wanted`, or say why not. Without a limit it always succeeds, and nothing waits."""
        asked = Reservation(new_uuid7(), self._today(), wanted)
        if cap == _NO_CAP and share is None:
            return _reserved_of(asked)
        made = await store.reserve_day(self._database, asked, cap, RESERVED_FOR, share)
        return made if isinstance(made, BudgetRefusal) else _reserved_of(made)

    async def settle(self, reserved: Reserved, bill: Bill | None) -> None:
        """Release the reservation and book the actual cost, on the day of the reservation."""
        await store.settle_day(self._database, _reservation_of(reserved), bill)


def _reserved_of(made: Reservation) -> Reserved:
    return Reserved(made.amount, f"{made.day.isoformat()} {made.reservation_id} {made.flow or ''}")


def _reservation_of(reserved: Reserved) -> Reservation:
    day, reservation_id, flow = reserved.key.split(" ")
    return Reservation(UUID(reservation_id), date.fromisoformat(day), reserved.amount, int(flow) if flow else None)


class StoredSlots:
    """The slots of models in the database: one set for all processes.

    An unrenewed slot is free after `ttl` seconds; a task renews those of this process while it has any.
    """

    def __init__(
        self,
        database: Database,
        ttl: float,
        key_hashes: Mapping[str, str] = MappingProxyType({}),
        hear: HearLimit | None = None,
    ) -> None:
        """`hear` is told what other processes have learned about how much a model can read."""
        self._database, self._ttl, self._key_hashes, self._hear = database, ttl, key_hashes, hear
        self._process = new_uuid7()
        self._known: set[str] = set()
        """The models that were asked for before."""
        self._asked: set[UUID] = set()
        self._held: set[UUID] = set()
        self._freeing: set[asyncio.Task[None]] = set()
        self._renewing: asyncio.Task[None] | None = None

    async def take(self, wanted: SlotRequest) -> SlotLease | NoSlot:
        """A slot, or why there is none."""
        await asyncio.gather(*self._freeing)  # the next request of a turn must not find its own slot taken
        self._asked.add(wanted.ticket)
        key_hash, fresh = self._key_hashes.get(wanted.model, ""), wanted.model not in self._known
        slot = SlotWanted(wanted.model, wanted.slot, wanted.most, self._ttl, wanted.rank, key_hash, fresh)
        found = await model_usage.take_slot(self._database, wanted.ticket, self._process, slot)
        self._known.add(wanted.model)
        if found.context is not None and self._hear is not None:
            self._hear(wanted.model, found.context, found.context_s)
        if not found.taken:
            return NoSlot(found.paused_s, found.refused or "")
        self._held.add(wanted.ticket)
        if self._renewing is None:
            self._renewing = asyncio.create_task(self._renew_steadily())
        return SlotLease(wanted.ticket)

    async def refuse(self, model: str, why: str) -> None:
        """Pause a model for all processes with the same key, and tell the operator, once."""
        with suppress(Unavailable):
            if await model_usage.refuse_key(self._database, model, self._key_hashes.get(model, ""), why):
                remedy = f"renew its key and restart the workers; if it is valid again: switchboard models test {model}"
                log.error("a provider refuses the key of a model, which is paused", model=model, why=why, remedy=remedy)

    def free(self, ticket: UUID) -> None:
        """Give it back without waiting; if the database is unavailable, it expires."""
        if ticket not in self._asked:
            return
        self._asked.discard(ticket)
        self._held.discard(ticket)
        if not self._held and self._renewing is not None:
            self._renewing.cancel()
            self._renewing = None
        task = asyncio.create_task(self._free_slot(ticket))
        self._freeing.add(task)
        task.add_done_callback(self._freeing.discard)

    async def _free_slot(self, ticket: UUID) -> None:
        with suppress(Unavailable):
            await model_usage.free_slot(self._database, ticket)

    async def pause(self, model: str, seconds: float, why: str, *, for_all: bool) -> None:
        """Record a cooldown."""
        with suppress(Unavailable):  # an existing answer is worth more than this note
            await model_usage.cooldown(self._database, self._process, model, seconds, why, for_all=for_all)

    async def limit(self, model: str, tokens: int, seconds: float) -> None:
        """Record how much a model can read."""
        with suppress(Unavailable):
            await model_usage.limit_context(self._database, self._process, model, tokens, seconds)

    async def _renew_steadily(self) -> None:
        while True:
            await asyncio.sleep(self._ttl / 3)
            with suppress(Unavailable):
                await model_usage.renew_slots(self._database, list(self._held), self._ttl)


def flaw_of(model: ModelSpec) -> str | None:
    """What prevents asking a model from this machine, as far as known without asking; None: nothing."""
    return flaw(model)


def open_models(settings: Settings, database: Database) -> OpenModels:
    """Those that can be asked from here. Raises ConfigurationError."""
    sessions = Sessions(model for model in settings.models if flaw(model) is None)
    limits = DispatchLimits(settings.spending.cap, sender_tokens=settings.turn.sender_tokens_per_day)
    specs, contexts = {spec.name: spec for spec, _ in sessions.models}, sessions.contexts

    def hear(model: str, tokens: int, seconds: float) -> None:
        contexts.learn(specs[model], tokens, seconds)

    slots = StoredSlots(database, _SLOT_TTL_S, sessions.key_hashes, hear)
    spending = StoredSpending(database)
    return OpenModels(sessions, Dispatcher(sessions.models, spending, limits, slots=slots, context=contexts))
