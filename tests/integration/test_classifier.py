"""From the settings to the butler: a worker as it is wired for real, against a scripted server of a provider."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import UUID

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from switchboard.app.access import Access, Principal
from switchboard.app.messages.explain import explain
from switchboard.app.models.classifier import mcp_url
from switchboard.app.models.dispatcher import StoredSpending
from switchboard.app.models.process import ProcessModels
from switchboard.app.runtime import Runtime, Switchboard
from switchboard.app.settings import Settings
from switchboard.app.wiring import make_classifier, make_worker, open_runtime, open_switchboard
from switchboard.core.policy.budget import Amount, BudgetRefusal, Cap
from switchboard.domain.errors import ConfigurationError
from switchboard.domain.llm import Bill, Usage
from switchboard.domain.routing import SystemId, Target
from switchboard.domain.shown import Logged
from switchboard.journey.classify import RouteLimits
from switchboard.server.listener import bind
from switchboard.server.serve import run_server
from switchboard.store.ids import new_uuid7
from switchboard.store.messages.inbox import get_message
from switchboard.store.models import classification
from switchboard.store.models.classification import Reservation
from switchboard.store.work import routing as store
from switchboard.testing.scripted_llm import Call, Reply, Request, Script, ScriptedLlm, Status
from switchboard.testing.scripted_llm import Usage as Told
from tests.hands import at_work
from tests.lab import ROOT, butler, envelope_json, lab, spent_on, submission, team_of
from tests.waiting import eventually

TEAM = {
    "team": {"name": "root"},
    "purpose": "the house",
    "classify": True,
    "systems": [
        {"name": "System1/health", "engine": "echo", "description": "Doctors and pills"},
        {"name": "System1/finance", "engine": "echo"},
        {"name": "System4/root", "engine": "echo"},
    ],
    "routing_rules": [{"name": "mail", "channel": "email", "targets": [{"system_id": "System1/finance"}]}],
}


def to(*butlers: str, **more: Any) -> Reply:
    """The model calls the tool for each."""
    return Reply(calls=tuple(Call("route_to_butler", {"butler": name, **more}) for name in butlers))


@dataclass(frozen=True)
class House:
    """Everything behind the interfaces, and a message in it."""

    runtime: Runtime
    switchboard: Switchboard

    async def message(self, text: str, **more: str) -> Any:
        accepted = await self.switchboard.accept.accept(submission(text, **more))
        assert accepted.decision is None, "it waits for a model"

        await eventually(lambda: self.over(accepted.request_id), within=30)
        return accepted.request_id

    async def over(self, request_id: UUID) -> bool:
        found = await get_message(self.runtime.database, request_id)
        return found is not None and found.state != "in_flight"

    async def deliveries(self, request_id: Any) -> list[tuple[str, str | None]]:
        rows = await self.runtime.database.rows(
            "select system_id, text from delivery where request_id = $1 order by system_id", request_id
        )
        return [(row["system_id"], row["text"]) for row in rows]

    async def dead_letters(self, request_id: Any) -> list[tuple[str, str]]:
        rows = await self.runtime.database.rows(
            "select category, reason from dead_letter where request_id = $1", request_id
        )
        return [(row["category"], row["reason"]) for row in rows]

    async def log(self, request_id: Any) -> list[Logged]:
        return await classification.attempts(self.runtime.database, request_id)


Open = Callable[..., AbstractAsyncContextManager[House]]


@pytest.fixture
def opened(database_url: str, tmp_path: Path) -> Open:
    @asynccontextmanager
    async def opened(
        llm: ScriptedLlm,
        models: Sequence[str] = ("first",),
        spending: Mapping[str, float] = MappingProxyType({}),
        **classify: Any,
    ) -> AsyncIterator[House]:
        known = [
            {"name": name, "kind": "openai", "model": name, "base_url": f"{llm.url}/v1", "price_in": 1.0}
            for name in models
        ]
        settings = Settings.model_validate(
            {
                "database_url": database_url,
                "data_dir": tmp_path,
                "teams": [TEAM],
                "worker": {"ttl": 60},  # where the machine stands still, nobody is to be taken for dead
                "models": known,
                "classify": {"models": list(models), "attempts": 2, **classify},
                "spending": dict(spending),
            }
        )
        async with (
            open_runtime(settings) as runtime,
            open_switchboard(runtime) as switchboard,
            at_work(make_worker(runtime)),
        ):
            yield House(runtime, switchboard)

    return opened


async def test_a_message_that_no_rule_decides_goes_where_the_model_says(opened: Open) -> None:
    async with ScriptedLlm([to("System1/health")]) as llm, opened(llm) as house:
        request_id = await house.message("my head hurts")
        assert await house.deliveries(request_id) == [("System1/health", None)]
        [row] = await house.log(request_id)
        assert (row.model, row.error, row.team_id) == ("first", None, "root")
        assert row.tokens_in > 100
        assert row.cost_usd is not None
        assert row.cost_usd * 1e6 >= row.tokens_in
        today = await spent_on(house.runtime.database, datetime.now(UTC).date())
        assert today == Amount(row.tokens_in + row.tokens_out, round(row.cost_usd * 1e6))
        assert "Doctors and pills" in llm.requests[0].prompt


@asynccontextmanager
async def connector_of(house: House) -> AsyncIterator[Client]:
    """A connector at the MCP server of this installation."""
    stop, at = asyncio.Event(), asyncio.get_running_loop().create_future()
    listener = bind("127.0.0.1", 0)
    serving = asyncio.create_task(
        run_server(house.switchboard, listener, stop, lambda host, port: at.set_result(f"http://{host}:{port}/mcp"))
    )
    url = await at
    operator = Principal("operator", "test")
    issued = await Access(house.runtime.database).issue(
        operator, Principal("connector", "bot", "telegram", "bot:house")
    )
    async with (
        httpx2.AsyncClient(headers={"authorization": f"Bearer {issued.secret}"}, timeout=30) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client
    stop.set()
    await serving


async def test_from_a_connector_over_mcp_to_the_butler(opened: Open) -> None:
    """The Switchboard makes the id, dedupes and asks; the pipeline is given all of that and makes none of it."""
    async with ScriptedLlm([to("health")]) as llm, opened(llm) as house, connector_of(house) as connector:
        sent = {"envelope": envelope_json("my head hurts", event="17")}
        [first, again] = [(await connector.call_tool("ingest", sent)).structured_content for _ in range(2)]
        assert (first["triage_decision"], again["duplicate"]) == ("pending", True)
        assert first["request_id"] == again["request_id"]
        request_id = UUID(first["request_id"])
        assert request_id.version == 7

        async def over() -> bool:
            return await house.deliveries(request_id) == [("System1/health", None)]

        await eventually(over)
        [row] = await house.log(request_id)
        assert row.request_id == request_id
        assert len(llm.requests) == 1
        assert await house.runtime.database.value("select count(*) from pipeline_key") == 0


async def test_what_a_rule_decides_is_shown_to_no_model(opened: Open) -> None:
    async with ScriptedLlm([]) as llm, opened(llm) as house:
        accepted = await house.switchboard.accept.accept(submission("pay the rent", channel="email"))
        assert accepted.decision is not None
        assert [one.system_id for one in accepted.decision.chosen] == ["System1/finance"]
        assert llm.requests == ()
        assert await house.log(accepted.request_id) == []


async def test_two_matters_are_two_deliveries_each_with_its_part(opened: Open) -> None:
    both = Reply(
        calls=(
            Call("route_to_butler", {"butler": "System1/health", "segment": "My head hurts."}),
            Call("route_to_butler", {"butler": "System1/finance", "segment": "Pay the rent."}),
        )
    )
    async with ScriptedLlm([both]) as llm, opened(llm) as house:
        request_id = await house.message("My head hurts. Pay the rent.")
        assert await house.deliveries(request_id) == [
            ("System1/finance", "Pay the rent."),
            ("System1/health", "My head hurts."),
        ]


async def test_the_next_model_is_asked_where_the_first_fails_and_both_are_logged(opened: Open) -> None:
    def brain(request: Request) -> Reply:
        return Reply(fault=Status(500)) if request.model == "first" else to("health")

    async with ScriptedLlm(brain) as llm, opened(llm, ("first", "second")) as house:
        request_id = await house.message("my head hurts")
        assert await house.deliveries(request_id) == [("System1/health", None)]
        rows = await house.log(request_id)
        assert [(row.model, row.error is None) for row in rows] == [("first", False), ("second", True)]
        assert "500" in (rows[0].error or "")


async def test_a_wrong_name_is_asked_again_and_ends_as_a_dead_letter(opened: Open) -> None:
    async with ScriptedLlm(Script(otherwise=to("ghost"))) as llm, opened(llm) as house:
        request_id = await house.message("my head hurts")
        assert await house.deliveries(request_id) == []
        [(category, reason)] = await house.dead_letters(request_id)
        assert (category, "no candidate 'ghost'" in reason) == ("classification_failed", True)
        assert [row.n for row in await house.log(request_id)] == [1, 2]
        payload = await house.runtime.database.value("select payload #>> '{payload,normalized_text}' from dead_letter")
        assert payload == "my head hurts", "the whole message is kept"


async def test_a_wrong_name_may_be_put_right_at_the_next_attempt(opened: Open) -> None:
    async with ScriptedLlm([to("ghost"), to("finance")]) as llm, opened(llm) as house:
        request_id = await house.message("pay the rent")
        assert await house.deliveries(request_id) == [("System1/finance", None)]
        assert [row.error is None for row in await house.log(request_id)] == [False, True]


async def test_if_one_part_has_no_butler_the_named_butlers_get_the_whole(opened: Open) -> None:
    half = Reply(
        calls=(
            Call("route_to_butler", {"butler": "health", "segment": "My head hurts."}),
            Call("route_to_butler", {"butler": "ghost", "segment": "Pay the rent."}),
        )
    )
    async with ScriptedLlm(Script(otherwise=half)) as llm, opened(llm) as house:
        request_id = await house.message("My head hurts. Pay the rent.")
        assert await house.deliveries(request_id) == [("System1/health", None)]
        trail = await house.runtime.database.value("select trail::text from decision where request_id = $1", request_id)
        assert "a part was not assigned" in trail


async def test_a_message_may_not_cost_more_than_it_may(opened: Open) -> None:
    async with ScriptedLlm(Script(otherwise=to("health"))) as llm, opened(llm, tokens_per_message=50) as house:
        request_id = await house.message("my head hurts")
        [(category, reason)] = await house.dead_letters(request_id)
        assert (category, "budget" in reason) == ("classification_failed", True)
        assert llm.requests == ()


async def test_a_day_may_not_cost_more_than_it_may(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("switchboard.app.wiring._route_limits", lambda _: RouteLimits(attempts=2, patience=0.0))
    async with ScriptedLlm(Script(otherwise=to("health"))) as llm, opened(llm, spending={"cost_per_day": 0.0}) as house:
        request_id = await house.message("my head hurts")
        assert [category for category, _ in await house.dead_letters(request_id)] == ["classification_failed"]
        assert llm.requests == ()


async def test_a_message_waits_for_the_cap_of_the_day_and_uses_up_no_attempt(opened: Open) -> None:
    async with ScriptedLlm([to("health")]) as llm, opened(llm, spending={"tokens_per_day": 5000}, attempts=1) as house:
        database, today = house.runtime.database, datetime.now(UTC).date()
        await database.run("insert into model_day (day, tokens, micros) values ($1, 5000, 0)", today)
        accepted = await house.switchboard.accept.accept(submission("my head hurts"))

        async def turned_away_twice() -> bool:
            return int(await database.value("select count(*) from attempt where error_class = 'not_asked'")) > 1

        await eventually(turned_away_twice, within=30)
        assert llm.requests == ()
        await database.run("update model_day set tokens = 0")
        await eventually(lambda: house.over(accepted.request_id), within=30)
        assert await house.deliveries(accepted.request_id) == [("System1/health", None)]


async def test_a_sender_over_the_rate_waits_and_nobody_waits_with_them(opened: Open) -> None:
    async with ScriptedLlm(Script(otherwise=to("health"))) as llm, opened(llm, sender_per_minute=1) as house:
        database = house.runtime.database
        first, second = [
            await house.switchboard.accept.accept(submission(f"{n}", sender="mallory", thread=f"t{n}")) for n in "12"
        ]

        async def one_waits() -> bool:
            waits = await database.value("select count(*) from attempt where error_class = 'not_asked'")
            return int(waits) == 1 and len(llm.requests) == 1

        await eventually(one_waits, within=30)
        assert await house.deliveries(await house.message("my head hurts", sender="anna"))
        assert await house.deliveries(await house.message("mine too", sender="mallory", endpoint="bot:other"))
        assert len(llm.requests) == 3
        await database.run("update model_flow set even_until = clock_timestamp()")
        await database.run("update lane set ready_at = clock_timestamp() where delayed")
        for one in (first, second):
            await eventually(partial(house.over, one.request_id), within=30)
            assert await house.deliveries(one.request_id) == [("System1/health", None)]


async def test_strangers_do_not_use_up_what_those_who_are_known_may_use(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("switchboard.app.wiring._route_limits", lambda _: RouteLimits(attempts=1, patience=0.0))
    more = {"newcomer_tokens_per_day": 1, "spending": {"tokens_per_day": 100_000}}
    async with ScriptedLlm(Script(otherwise=to("health"))) as llm, opened(llm, **more) as house:
        await house.message("hello", sender="anna")
        await house.runtime.database.run("update model_flow set day = day - 1, newcomer = true")
        await house.runtime.database.run("update model_day set newcomer_tokens = 0")
        outcomes = {
            sender: await house.dead_letters(await house.message("hello again", sender=sender))
            for sender in ("stranger 1", "stranger 2", "anna")
        }
        assert (outcomes["stranger 1"], outcomes["anna"]) == ([], [])
        [(category, reason)] = outcomes["stranger 2"]
        assert (category, "classify.newcomer_tokens_per_day" in reason) == ("classification_failed", True)
        assert len(llm.requests) == 3


async def test_what_a_running_session_may_use_counts_as_used_by_its_sender(opened: Open) -> None:
    held = Reply(calls=to("health").calls, usage=Told(100, 11), gate="held")
    async with ScriptedLlm(Script(otherwise=held)) as llm, opened(llm, sender_tokens_per_day=200) as house:
        database = house.runtime.database
        both = [
            await house.switchboard.accept.accept(submission(f"{n}", sender="mallory", thread=f"t{n}")) for n in "12"
        ]

        async def one_waits() -> bool:
            return int(await database.value("select count(*) from attempt where error_class = 'not_asked'")) > 0

        async def one_is_settled() -> bool:
            return bool(await database.value("select count(*) from model_flow where tokens > 0"))

        await llm.waiting("held")
        await eventually(one_waits, within=30)
        assert len(llm.requests) == 1
        llm.release("held")
        await eventually(one_is_settled, within=30)
        await database.run("update lane set ready_at = clock_timestamp() where delayed")
        for one in both:
            await eventually(partial(house.over, one.request_id), within=30)
            assert await house.deliveries(one.request_id) == [("System1/health", None)]
        assert await database.value("select count(*) from model_reservation") == 0


async def test_a_long_message_in_a_group_keeps_nobody_else_out(opened: Open) -> None:
    """What the model can read is not known, so little is assumed: others' words are left out, the message is routed."""

    def brain(request: Request) -> Reply:
        if len(request.prompt) > 30_000:
            return Reply(fault=Status(400, message="This model's maximum context length is 8192 tokens"))
        return to("health")

    group = {"thread": "group", "chat_type": "group"}
    async with ScriptedLlm(brain) as llm, opened(llm) as house:
        flood = await house.message("x y " * 10_000, sender="mallory", **group)
        assert [category for category, _ in await house.dead_letters(flood)] == ["classification_failed"]
        request_id = await house.message("my head hurts", sender="victim", **group)
        assert await house.deliveries(request_id) == [("System1/health", None)]
        assert [row.error for row in await house.log(request_id)] == [None]


async def test_a_butler_without_an_engine_is_no_candidate(database_url: str, tmp_path: Path) -> None:
    members = (butler("health"), butler("gone", engine="of a package that was removed"))
    team = team_of(*members, classify=True)
    model = {"name": "first", "kind": "openai", "model": "m", "base_url": "http://127.0.0.1:9/v1"}
    known = {"database_url": database_url, "data_dir": tmp_path, "models": [model], "classify": {"models": ["first"]}}
    async with lab(database_url, (team,), ()), open_runtime(Settings.model_validate(known)) as runtime:
        index = runtime.rule_book.rules.index
        both = (Target(SystemId("System1/gone")), Target(SystemId("System1/health")))
        assert set(index.candidates(ROOT)) == set(both)
        make_worker(runtime)
        assert index.candidates(ROOT) == both[1:]


async def test_a_part_alone_is_the_whole_and_what_stands_in_no_part_is_told(opened: Open) -> None:
    """Nobody would get the rest; and where several get parts, who looks for the rest finds it in the trail."""
    alone = to("System1/finance", segment="pay the rent")
    both = Reply(
        calls=(
            Call("route_to_butler", {"butler": "System1/health", "segment": "My head hurts."}),
            Call("route_to_butler", {"butler": "System1/finance", "segment": "pay the rent"}),
        )
    )
    async with ScriptedLlm([alone, both]) as llm, opened(llm) as house:
        request_id = await house.message("pay the rent and cancel my insurance")
        assert await house.deliveries(request_id) == [("System1/finance", None)]
        [decision] = (await explain(house.runtime, request_id)).decisions
        assert "in no part" not in decision.trail[0].detail
        request_id = await house.message("My head hurts. Cancel my insurance, then pay the rent!")
        parts = [("System1/finance", "pay the rent"), ("System1/health", "My head hurts.")]
        assert await house.deliveries(request_id) == parts
        [decision] = (await explain(house.runtime, request_id)).decisions
        assert decision.trail[0].detail == 'by first; in no part: "Cancel my insurance, then"'


async def test_a_classification_is_paid_for_once(opened: Open) -> None:
    """The journal knows it: what comes after it may fail and be done again."""
    async with ScriptedLlm([to("health")]) as llm, opened(llm) as house:
        request_id = await house.message("my head hurts")
        kept = await house.runtime.database.value("select result::text from step where path like 'classify root %'")
        assert "System1/health" in kept
        assert len(llm.requests) == len(await house.log(request_id)) == 1


async def test_a_classification_that_lost_a_butler_meanwhile_loses_nobodys_part(opened: Open) -> None:
    """It was on record; before it was settled the worker died, and one of the two butlers was switched off."""
    found = asyncio.Event()
    both = Reply(
        calls=(
            Call("route_to_butler", {"butler": "System1/health", "segment": "My head hurts."}),
            Call("route_to_butler", {"butler": "System1/finance", "segment": "Pay the rent."}),
        )
    )
    async with ScriptedLlm([both]) as llm, opened(llm) as house:
        really, index = store.settle_route, house.runtime.rule_book.rules.index

        async def dies_once(*given: Any) -> Any:
            if found.is_set():
                return await really(*given)
            found.set()
            index.avoid({SystemId("System1/finance")})
            raise OSError("out of order")

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(store, "settle_route", dies_once)
            request_id = await house.message("My head hurts. Pay the rent.")
        assert await house.deliveries(request_id) == []
        [(category, reason)] = await house.dead_letters(request_id)
        assert (category, "System1/finance" in reason) == ("classification_failed", True)
        assert len(llm.requests) == 1


async def test_the_account_of_a_day_is_settled_on_the_day_it_was_opened(opened: Open) -> None:
    async with ScriptedLlm([]) as llm, opened(llm) as house:
        days = iter([date(2026, 1, 1), date(2026, 1, 2)])
        account = StoredSpending(house.runtime.database, lambda: next(days))
        hold = await account.reserve(Amount(10, 3), Cap(10))
        assert not isinstance(hold, BudgetRefusal)
        await account.settle(hold, Bill("test", "m", Usage(5, 2), 2))
        assert await spent_on(house.runtime.database, date(2026, 1, 1)) == Amount(7, 2)
        refused = await classification.reserve_day(
            house.runtime.database,
            Reservation(new_uuid7(), date(2026, 1, 1), Amount(4)),
            Cap(10),
            timedelta(minutes=1),
        )
        assert isinstance(refused, BudgetRefusal)


async def test_without_a_limit_nothing_is_set_aside_and_all_is_booked(opened: Open) -> None:
    async with ScriptedLlm([]) as llm, opened(llm) as house:
        day = date(2026, 1, 1)
        account = StoredSpending(house.runtime.database, lambda: day)
        hold = await account.reserve(Amount(10, 3), Cap())
        assert not isinstance(hold, BudgetRefusal)
        assert await house.runtime.database.value("select count(*) from model_reservation") == 0
        await account.settle(hold, Bill("test", "m", Usage(5, 2), 2))
        assert await spent_on(house.runtime.database, day) == Amount(7, 2)


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ({}, "http://127.0.0.1:8470/mcp"),
        ({"host": "0.0.0.0", "port": 99}, "http://127.0.0.1:99/mcp"),  # noqa: S104
        ({"host": "::1"}, "http://[::1]:8470/mcp"),
        ({"classify": {"mcp_url": "https://hub.example/mcp"}}, "https://hub.example/mcp"),
    ],
)
def test_command_lines_find_our_server(given: dict[str, Any], url: str) -> None:
    assert mcp_url(Settings.model_validate(given)) == url


async def test_a_model_without_its_key_stops_the_start(database_url: str, tmp_path: Path) -> None:
    model = {"name": "first", "kind": "openai", "model": "m"}
    settings = Settings.model_validate(
        {
            "database_url": database_url,
            "data_dir": tmp_path,
            "teams": [TEAM],
            "models": [model],
            "classify": {"models": ["first"]},
        }
    )
    async with open_runtime(settings) as runtime:
        with pytest.raises(ConfigurationError, match="first: a key is needed"):
            make_worker(runtime)
    nothing = settings.model_copy(update={"classify": Settings().classify})
    async with open_runtime(nothing) as runtime:
        assert make_classifier(runtime, ProcessModels(nothing, runtime.database)) is None
