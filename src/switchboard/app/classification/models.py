"""What classification asks models with, from the settings; everything that knows the SDKs of providers hangs on this.

`app/wiring.py` imports it late, for a worker that classifies. Settings enter; a `Classifier` leaves, its clients closed
at the end. Next: `journey/ask.py`, which is given the dispatcher of `llm/`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final
from uuid import UUID

from switchboard.app.channels import known_channels
from switchboard.app.settings import ModelSettings, Settings
from switchboard.core.policy.budget import Account, Amount, Cap, Refusal, SenderCaps, reserve
from switchboard.domain.errors import ConfigurationError, Unavailable
from switchboard.domain.llm import Attempt, Bill, Report, Request
from switchboard.journey.ask import AskModels, ModelClassifier, RoutingTask
from switchboard.llm.build import Sessions, flaw
from switchboard.llm.dispatch import Dispatcher, Limits, Terms
from switchboard.llm.slots import Lease, Taken
from switchboard.llm.spending import Reserved
from switchboard.ports.models import NO_CONTEXT
from switchboard.ports.models import Asking as Asked
from switchboard.store import classification as store
from switchboard.store import model_usage
from switchboard.store.classification import Reservation
from switchboard.store.database import Database
from switchboard.store.ids import new_uuid7

ASKER: Final = "classification"
"""What models are asked for, in the rows of usage."""
_REACHED: Final = {
    "sender_per_minute": "too many messages of this sender need a model within a minute",
    "sender_tokens_per_day": "models have used for this sender what they may use for one in a day",
    "newcomer_tokens_per_day": "models have used for new senders what they may use for all of them in a day",
}
_RESERVED_FOR: Final = timedelta(minutes=10)
_NO_CAP: Final = Cap()
_NO_SENDER_CAPS: Final = SenderCaps()


@dataclass(frozen=True, slots=True)
class Asking:
    """How models are asked: the most that one message may cost, seconds for all of them, where our MCP server is.

    `senders`: what the sender of a message may use; `model`: the one that would be asked first.
    """

    cap: Cap = _NO_CAP
    timeout: float = 120.0
    mcp_url: str | None = None
    senders: SenderCaps = _NO_SENDER_CAPS
    model: str = ""


class StoredSpending:
    """The day's account in the database: one for all processes. Days are those of UTC."""

    def __init__(self, database: Database, today: Callable[[], date] = lambda: datetime.now(UTC).date()) -> None:
        self._database = database
        self._today = today

    async def reserve(self, wanted: Amount, cap: Cap) -> Reserved | Refusal:
        """Set `wanted` aside, or say why not. Without a limit there is nothing to keep within, and nothing waits."""
        if cap == _NO_CAP:
            return Reserved(wanted, f"{self._today().isoformat()} {new_uuid7()}")
        made = await store.reserve_day(self._database, self._today(), wanted, cap, _RESERVED_FOR)
        return made if isinstance(made, Refusal) else Reserved(wanted, f"{made.day.isoformat()} {made.reservation_id}")

    async def settle(self, reserved: Reserved, bill: Bill | None) -> None:
        """Free what was reserved and book what it really cost, on the day when it was made."""
        day, _, reservation_id = reserved.key.partition(" ")
        reservation = Reservation(UUID(reservation_id), date.fromisoformat(day), reserved.amount)
        await store.settle_day(self._database, reservation, bill)


_SLOT_TTL_S: Final = 2.0
"""Short: the slots of a killed worker stay taken for this long, and renewing costs one statement."""


class StoredSlots:
    """The slots of models in the database: one set for all processes. A slot that is not renewed is free after `ttl`
    seconds; a task renews those of this process while it has any.
    """

    def __init__(self, database: Database, ttl: float) -> None:
        self._database, self._ttl = database, ttl
        self._process = new_uuid7()
        self._held: set[UUID] = set()
        self._renewing: asyncio.Task[None] | None = None

    async def take(self, model: str, most: int) -> Lease | Taken:
        """One of `most` slots of a model, or why there is none."""
        lease = new_uuid7()
        paused = await model_usage.take_slot(self._database, lease, model, most, self._process, self._ttl)
        if paused is not None:
            return Taken(paused)
        self._held.add(lease)
        if self._renewing is None:
            self._renewing = asyncio.create_task(self._renew())
        return Lease(str(lease))

    async def free(self, lease: Lease) -> None:
        """Give it back; if the database is away, its time does."""
        self._held.discard(UUID(lease.key))
        if not self._held and self._renewing is not None:
            self._renewing.cancel()
            self._renewing = None
        with suppress(Unavailable):
            await model_usage.free_slot(self._database, UUID(lease.key))

    async def pause(self, model: str, seconds: float, why: str, *, for_all: bool) -> None:
        """Record a cooldown."""
        with suppress(Unavailable):  # an answer that is there is worth more than this note
            await model_usage.cooldown(self._database, self._process, model, seconds, why, for_all=for_all)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._ttl / 3)
            with suppress(Unavailable):
                await model_usage.renew_slots(self._database, list(self._held), self._ttl)


def check_models(settings: Settings) -> None:
    """Raise ConfigurationError with all that is missing here to ask the models of `classify.models`."""
    flaws = ((model.name, flaw(model.spec)) for model in settings.models if model.name in settings.classify.models)
    if found := [f"models: {name}: {why}" for name, why in flaws if why is not None]:
        raise ConfigurationError("\n".join(found))


def flaw_of(model: ModelSettings) -> str | None:
    """What is missing on this machine to ask a model, as far as is known without asking; None: nothing."""
    return flaw(model.spec)


def open_classifier(settings: Settings, database: Database, closing: AsyncExitStack) -> ModelClassifier:
    """The models of the settings, in the order in which they are asked. Raises ConfigurationError."""
    classify = settings.classify
    known = {model.name: model.spec for model in settings.models}
    sessions = Sessions(known[name] for name in classify.models)
    closing.push_async_callback(sessions.aclose)
    dispatcher = _dispatcher(database, sessions, Limits(classify.day_cap))
    asking = Asking(
        cap=Cap(classify.tokens_per_message),
        timeout=classify.timeout,
        mcp_url=mcp_url(settings),
        senders=classify.sender_caps,
        model=classify.models[0],
    )
    return ModelClassifier(
        database, by_dispatcher(dispatcher, database, asking), classify.attempts, known_channels(settings)
    )


class OpenModels:
    """All models of the settings, for the turns of butlers. A turn limits itself; its cost is booked on its day."""

    def __init__(self, sessions: Sessions, dispatcher: Dispatcher) -> None:
        self._sessions = sessions
        self._dispatcher = dispatcher
        self._names = [spec.name for spec, _ in sessions.models]

    async def ask(self, request: Request, asking: Asked) -> Report:
        """Ask one after the other until one has answered; all, if none of the wanted ones is there any more."""
        models = [name for name in asking.models if name in self._names] or self._names
        terms = Terms(asking.asker, models=models, shorter=asking.shorter)
        return await self._dispatcher.run(request, terms, asking.on_delta)

    async def context(self, name: str) -> int:
        """How many tokens a model can read; of one that cannot be asked from here what is assumed."""
        spec = next((spec for spec, _ in self._sessions.models if spec.name == name), None)
        return NO_CONTEXT if spec is None else await self._sessions.contexts.of(spec)

    async def aclose(self) -> None:
        """Close the clients."""
        await self._sessions.aclose()


def open_models(settings: Settings, database: Database) -> OpenModels:
    """Those that can be asked from here. Raises ConfigurationError."""
    sessions = Sessions(model.spec for model in settings.models if flaw(model.spec) is None)
    return OpenModels(sessions, _dispatcher(database, sessions, Limits()))


def _dispatcher(database: Database, sessions: Sessions, limits: Limits) -> Dispatcher:
    """Over these sessions, with what all processes share: spending, slots and cooldowns."""
    return Dispatcher(
        sessions.models,
        StoredSpending(database),
        limits,
        slots=StoredSlots(database, _SLOT_TTL_S),
    )


def by_dispatcher(dispatcher: Dispatcher, database: Database, asking: Asking) -> AskModels:
    """Sessions of classification run by a dispatcher. What a message has cost before counts, for all its teams."""

    async def ask(task: RoutingTask) -> Report:
        request_id = UUID(task.request_id)
        terms = Terms(
            ASKER,
            cap=asking.cap,
            spent=await _spent(database, request_id),
            unfit=task.unfit,
            taken=task.taken,
            shorter=task.shorter,
        )
        request = task.request(asking.mcp_url, asking.timeout)
        spent_up = isinstance(reserve(Account(spent=terms.spent), Amount(1), asking.cap), Refusal)
        if spent_up or asking.senders == _NO_SENDER_CAPS:
            # What is spent up is refused for good by the dispatcher, so the limits of its sender do not matter.
            return await dispatcher.run(request, terms)
        wanted = dispatcher.estimate(request)
        return await _for_sender(database, request_id, asking, wanted, lambda: dispatcher.run(request, terms))

    return ask


async def _for_sender(
    database: Database, request_id: UUID, asking: Asking, wanted: Amount, run: Callable[[], Awaitable[Report]]
) -> Report:
    """Run a session if the sender of the message has not used up their share; reserve `wanted` of it, book the cost."""
    reserved = Reservation(new_uuid7(), datetime.now(UTC).date(), wanted)
    sender = await model_usage.admit(database, request_id, reserved, _RESERVED_FOR, asking.senders)
    if sender.reached is not None:
        return Report(None, (_refused(asking, sender.reached, sender.wait_s),))
    used = wanted.tokens  # unless it ends with a report, which knows better
    try:
        report = await run()
        used = sum(attempt.usage.tokens for attempt in report.attempts)
        return report
    finally:
        if sender.flow is not None:
            await asyncio.shield(model_usage.settle(database, sender.flow, reserved, used))


def _refused(asking: Asking, reached: str, wait: float | None) -> Attempt:
    return Attempt(asking.model, "budget", f"{_REACHED[reached]} (classify.{reached})", retry_after=wait)


async def _spent(database: Database, request_id: UUID) -> Amount:
    rows = await store.attempts(database, request_id)
    return Amount(
        sum(row.tokens_in + row.tokens_out for row in rows), sum(round((row.cost_usd or 0) * 1_000_000) for row in rows)
    )


def mcp_url(settings: Settings) -> str:
    """Where command lines find our MCP server: as the settings say, else on this machine."""
    if settings.classify.mcp_url is not None:
        return settings.classify.mcp_url
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}/mcp"
