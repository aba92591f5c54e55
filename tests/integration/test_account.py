"""One account for all that models are asked: its limits hold for every purpose, and it tells what each cost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from switchboard.agents.trio.planner import ASKER as PLAN
from switchboard.agents.trio.planner import ModelPlanner
from switchboard.app.models.classifier import ASKER as CLASSIFICATION
from switchboard.app.models.dispatcher import open_models
from switchboard.app.settings import Settings
from switchboard.domain.llm import ChatMessage, ModelFailure, Request
from switchboard.journey.compaction import ASKER as COMPACTION
from switchboard.llm.dispatch import RequestTerms
from switchboard.llm.models import OpenModels
from switchboard.ports.models import Asking
from switchboard.store.database import Database
from switchboard.store.models import usage as model_usage
from switchboard.store.models.usage import UsagePeriod
from switchboard.testing.scripted_llm import Reply, ScriptedLlm, Usage
from tests.integration.test_planner import form, question

ANSWER: Final = form({"action": "respond", "confidence": 0.9})
ASKED: Final = Request((ChatMessage("user", "hello"),), max_tokens=100, deadline=20.0)
Use = Callable[[OpenModels], Awaitable[str]]


async def by_classification(models: OpenModels) -> str:
    report = await models.dispatcher.run(ASKED, RequestTerms(asker=CLASSIFICATION))
    return report.attempts[-1].outcome


async def by_a_turn(models: OpenModels) -> str:
    report = await models.ask(ASKED, Asking(("router",), butler="System1/clerk"))
    return report.attempts[-1].outcome


async def by_compaction(models: OpenModels) -> str:
    report = await models.ask(ASKED, Asking(("router",), COMPACTION, butler="System1/clerk"))
    return report.attempts[-1].outcome


async def by_a_plan(models: OpenModels) -> str:
    try:
        await ModelPlanner(models).plan(question(butler="System1/trio"))
    except ModelFailure as failure:
        return "budget" if "of a day" in failure.message else failure.kind
    return "answered"


USES: Final[dict[str, Use]] = {
    CLASSIFICATION: by_classification,
    "turn": by_a_turn,
    COMPACTION: by_compaction,
    PLAN: by_a_plan,
}


@asynccontextmanager
async def models(database: Database, database_url: str, **spending: Any) -> AsyncIterator[OpenModels]:
    reply = Reply(ANSWER, usage=Usage(5_000, 500))
    async with ScriptedLlm(lambda _: reply, strict="local") as llm:
        router: dict[str, Any] = {
            "name": "router",
            "kind": "openai",
            "model": "m",
            "base_url": f"{llm.url}/v1",
            "profile": "local",
        }
        router |= {"price_in": 100.0, "price_out": 100.0}
        given = {"database_url": database_url, "models": [router], "spending": spending}
        opened = open_models(Settings.model_validate(given), database)
        try:
            yield opened
        finally:
            await opened.aclose()


async def spent(database: Database, by: model_usage.By) -> dict[str | None, tuple[int, int, float | None]]:
    now = datetime.now(UTC)
    rows = await model_usage.usage(database, by, UsagePeriod(now - timedelta(days=1), now + timedelta(days=1)), 50)
    return {row.key: (row.attempts, row.tokens_in + row.tokens_out, row.cost_usd) for row in rows}


async def test_what_was_spent_tells_for_what_and_for_whom(database: Database, database_url: str) -> None:
    async with models(database, database_url, tokens_per_day=100_000) as one:
        assert [await use(one) for use in USES.values()] == ["answered"] * 4
    each = (1, 5_500, 0.55)
    assert await spent(database, "asker") == dict.fromkeys(USES, each)
    assert await spent(database, "butler") == {"System1/clerk": (2, 11_000, 1.1), "System1/trio": each}
    day = await model_usage.spending_of(database, datetime.now(UTC).date())
    assert (day.tokens, day.micros, day.held_tokens) == (22_000, 2_200_000, 0)


@pytest.mark.parametrize("first", USES)
@pytest.mark.parametrize("cap", [{"tokens_per_day": 5_550}, {"cost_per_day": 0.555}], ids=["tokens", "money"])
async def test_the_limit_of_the_day_holds_for_every_purpose_whoever_used_it_up(
    database: Database, database_url: str, first: str, cap: dict[str, Any]
) -> None:
    async with models(database, database_url, **cap) as one:
        assert await USES[first](one) == "answered"
        assert {name: await use(one) for name, use in USES.items()} == dict.fromkeys(USES, "budget")
    day = await model_usage.spending_of(database, datetime.now(UTC).date())
    assert (day.tokens, day.refused) == (5_500, 4)
