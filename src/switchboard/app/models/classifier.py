"""Builds the classifier from the settings.

`app/wiring.py` imports it late, for a worker that classifies. Settings and the dispatcher of the process enter; a
`Classifier` leaves. Next: `journey/ask.py`, which is given the dispatcher of `llm/`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from msgspec import Struct

from switchboard.app.channels import known_channels
from switchboard.app.models.dispatcher import RESERVED_FOR
from switchboard.app.settings import Settings
from switchboard.core.policy.budget import Amount, BudgetAccount, BudgetRefusal, Cap, SenderCaps, reserve
from switchboard.core.text.tokens import estimate_steps, is_estimated
from switchboard.domain.errors import ConfigurationError
from switchboard.domain.llm import ModelAttempt, Report
from switchboard.journey.ask import AskModels, ModelClassifier, RoutingTask
from switchboard.llm.build import flaw
from switchboard.llm.dispatch import Dispatcher, RequestTerms
from switchboard.store.database import Database
from switchboard.store.ids import new_uuid7
from switchboard.store.models import classification as store
from switchboard.store.models import usage as model_usage
from switchboard.store.models.classification import Reservation

ASKER: Final = "classification"
"""What models are asked for, in the rows of usage."""
_REACHED: Final = {
    "sender_per_minute": "too many messages of this sender need a model within a minute",
    "sender_tokens_per_day": "models have used for this sender what they may use for one in a day",
    "newcomer_tokens_per_day": "models have used for new senders what they may use for all of them in a day",
}
_PAUSE_S: Final = 0.001
_NO_CAP: Final = Cap()
_NO_SENDER_CAPS: Final = SenderCaps()


class AskingPolicy(Struct, frozen=True):
    """How to ask `models`, in this order: the maximum cost of one message, and the seconds for all of them.

    `mcp_url`: the address of our MCP server; `senders`: the limits per sender.
    """

    models: Sequence[str]
    cap: Cap = _NO_CAP
    timeout: float = 120.0
    mcp_url: str | None = None
    senders: SenderCaps = _NO_SENDER_CAPS


def check_models(settings: Settings) -> None:
    """Raise ConfigurationError with everything missing here to ask the models of `classify.models`."""
    flaws = ((model.name, flaw(model)) for model in settings.models if model.name in settings.classify.models)
    if found := [f"models: {name}: {why}" for name, why in flaws if why is not None]:
        raise ConfigurationError("\n".join(found))


def open_classifier(settings: Settings, database: Database, dispatcher: Dispatcher) -> ModelClassifier:
    """Asks the models of `classify.models`, in their order. Raises ConfigurationError."""
    check_models(settings)
    classify = settings.classify
    asking = AskingPolicy(
        classify.models,
        cap=Cap(classify.tokens_per_message),
        timeout=classify.timeout,
        mcp_url=mcp_url(settings),
        senders=classify.sender_caps,
    )
    return ModelClassifier(
        database, by_dispatcher(dispatcher, database, asking), classify.attempts, known_channels(settings)
    )


def by_dispatcher(dispatcher: Dispatcher, database: Database, asking: AskingPolicy) -> AskModels:
    """Runs classification sessions through a dispatcher. The earlier cost of a message counts, for all its teams."""

    weighing = asyncio.Lock()

    async def ask(task: RoutingTask) -> Report:
        request_id = UUID(task.request_id)
        async with weighing:
            await _weigh_text(task.text)
        terms = RequestTerms(
            asking.models,
            ASKER,
            cap=asking.cap,
            spent=await _amount_spent(database, request_id),
            unfit=task.unfit,
            taken=task.taken,
            shorter=task.shorter,
            name=f"{ASKER} {task.request_id}",
        )
        request = task.request(asking.mcp_url, asking.timeout)
        spent_up = isinstance(reserve(BudgetAccount(spent=terms.spent), Amount(1), asking.cap), BudgetRefusal)
        if spent_up or asking.senders == _NO_SENDER_CAPS:
            # When a budget is used up, the dispatcher refuses permanently, so the sender's limits do not matter.
            return await dispatcher.run(request, terms)
        wanted = dispatcher.estimate(request, asking.models)
        return await _for_sender(database, request_id, asking, wanted, lambda: dispatcher.run(request, terms))

    return ask


async def _weigh_text(text: str) -> None:
    """Estimate the tokens of a long text in small steps, at half of the time, so that it holds nobody up."""
    if is_estimated(text):
        return
    for _ in estimate_steps(text):
        await asyncio.sleep(_PAUSE_S)


async def _for_sender(
    database: Database, request_id: UUID, asking: AskingPolicy, wanted: Amount, run: Callable[[], Awaitable[Report]]
) -> Report:
    """Run a session if the message's sender has not used up their share; reserve `wanted` of it, book the cost."""
    reserved = Reservation(new_uuid7(), datetime.now(UTC).date(), wanted)
    sender = await model_usage.admit(database, request_id, reserved, RESERVED_FOR, asking.senders)
    if sender.reached is not None:
        return Report(None, (_refuse_attempt(asking, sender.reached, sender.wait_s),))
    used = wanted.tokens  # unless it ends with a report, which is more precise
    try:
        report = await run()
        used = sum(attempt.usage.tokens for attempt in report.attempts)
        return report
    finally:
        if sender.flow is not None:
            await asyncio.shield(model_usage.settle(database, sender.flow, reserved, used))


def _refuse_attempt(asking: AskingPolicy, reached: str, wait: float | None) -> ModelAttempt:
    return ModelAttempt(asking.models[0], "budget", f"{_REACHED[reached]} (classify.{reached})", retry_after=wait)


async def _amount_spent(database: Database, request_id: UUID) -> Amount:
    rows = await store.attempts(database, request_id)
    return Amount(
        sum(row.tokens_in + row.tokens_out for row in rows), sum(round((row.cost_usd or 0) * 1_000_000) for row in rows)
    )


def mcp_url(settings: Settings) -> str:
    """The address of our MCP server for command-line programs: from the settings, otherwise on this machine."""
    if settings.classify.mcp_url is not None:
        return settings.classify.mcp_url
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}/mcp"
