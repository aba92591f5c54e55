"""Slots and cooldowns of models, shared by all processes: leases that come back when their process is gone."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from structlog.testing import capture_logs

from switchboard.agents.trio.planner import ModelPlanner
from switchboard.app.metrics import Metrics
from switchboard.app.models.dispatcher import StoredSlots, open_models
from switchboard.app.models.model_tests import ModelTestPlace, try_tools
from switchboard.app.models.spending import SpendingService
from switchboard.app.ops.doctor import check_database
from switchboard.app.settings import Settings
from switchboard.domain.llm import ChatMessage, Report, Request
from switchboard.llm.dispatch import RequestTerms
from switchboard.llm.models import OpenModels
from switchboard.llm.slots import NoSlot, SlotLease, SlotRequest, rank_of
from switchboard.ports.models import Asking
from switchboard.store.database import Database
from switchboard.store.ids import new_uuid7
from switchboard.store.models import usage as model_usage
from switchboard.store.models.usage import SlotWanted
from switchboard.testing.scripted_llm import Reply, Script, ScriptedLlm, Status
from switchboard.testing.scripted_llm import Request as Asked
from tests.asking import request as a_message
from tests.integration.test_planner import form, question
from tests.model_asker import settings
from tests.waiting import eventually

QUESTION = Request((ChatMessage("user", "here"),), deadline=20.0)


@asynccontextmanager
async def asker(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Another process that asks; killed at the end."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.model_asker", *arguments), stdout=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@asynccontextmanager
async def models(database: Database, database_url: str, llm: ScriptedLlm, **more: Any) -> AsyncIterator[OpenModels]:
    """The models of this process."""
    opened = open_models(settings(database_url, llm.url, **more), database)
    try:
        yield opened
    finally:
        await opened.aclose()


async def ask(one: OpenModels, **more: Any) -> Report:
    return await one.ask(QUESTION, Asking(("m",), **more))


def brain(asked: Asked) -> Reply:
    """What a process says is its gate, unless it is to be answered at once."""
    return Reply("Well.", gate="" if asked.prompt == "here" else asked.prompt)


async def leases(database: Database) -> int:
    return int(await database.value("select count(*) from model_lease"))


async def test_a_model_runs_one_session_for_two_processes_and_a_kill_frees_it(
    database: Database, database_url: str
) -> None:
    async with ScriptedLlm(brain) as llm, models(database, database_url, llm) as ours:
        async with asker(database_url, llm.url, "first") as first:
            await llm.waiting("first")
            async with asker(database_url, llm.url, "second") as second:
                refused = await ours.ask(Request((ChatMessage("user", "here"),), deadline=5.0), Asking(("m",)))
                assert [attempt.outcome for attempt in refused.attempts] == ["busy"]
                assert len(llm.requests) == 1, "renewed: it runs for longer than a lease"
                first.send_signal(signal.SIGKILL)
                await llm.waiting("second")
                llm.release("second")
                said, _ = await second.communicate()
        assert said.decode().strip() == "Well."
        assert (await ask(ours)).reply is not None
    assert [exchange.ending for exchange in llm.exchanges] == ["left", "answered", "answered"]
    assert await leases(database) == 0


async def test_a_pause_the_provider_asks_of_one_process_holds_for_the_others(
    database: Database, database_url: str
) -> None:
    down = Script(otherwise=Reply(fault=Status(429, retry_after=30)))
    async with (
        ScriptedLlm(down) as llm,
        models(database, database_url, llm) as ours,
        models(database, database_url, llm) as theirs,
    ):
        assert [attempt.outcome for attempt in (await ask(ours)).attempts] == ["rate_limited"]
        [attempt] = (await ask(theirs)).attempts
        assert (attempt.outcome, len(llm.requests)) == ("cooldown", 1)
        assert "by another worker" in attempt.message
        assert 0 < (attempt.retry_after or 0) <= 30
        await database.run("update model_cooldown set until = clock_timestamp()")
        await ask(theirs)
    assert len(llm.requests) == 2


async def test_how_much_a_model_reads_is_learned_for_all_processes_and_shown(
    database: Database, database_url: str
) -> None:
    """Even behind a pause of the same process, and after it."""
    longest = 3_000

    def short(asked: Asked) -> Reply:
        if len(asked.prompt) <= longest:
            return Reply("Well.")
        return Reply(
            fault=Status(500, message=f"the request exceeds the context length (n_keep: 1>= n_ctx: {longest})")
        )

    def shorter(asked: Request, tokens: int) -> Request:
        text = asked.messages[-1].text[: max(tokens, 0)]
        return replace(asked, messages=(ChatMessage("user", text),))

    asked = Request((ChatMessage("user", "word " * 5_000),), deadline=20.0, max_tokens=10)
    async with (
        ScriptedLlm(short) as llm,
        models(database, database_url, llm) as ours,
        models(database, database_url, llm) as theirs,
    ):
        first = await ours.ask(asked, Asking(("m",), shorter=shorter))
        assert [one.outcome for one in first.attempts] == ["context_too_long", "answered"]
        second = await theirs.ask(asked, Asking(("m",), shorter=shorter))
        assert [one.outcome for one in second.attempts] == ["answered"]
        assert await theirs.context("m") == longest
        await model_usage.cooldown(database, new_uuid7(), "m", 0.0, "over")
        found = settings(database_url, llm.url)
        [shown] = (await SpendingService(found, database, lambda: ()).models()).models
        assert shown.state == "ready"
        assert f"reads no more than {longest:,} tokens" in str(shown.why)
        findings = {one.name: one.detail for one in await check_database(found)}
        assert f"m reads no more than {longest:,} tokens" in findings["model context"]
        await model_usage.forget_expired(database)
        assert [one.tokens for one in await model_usage.contexts(database)] == [longest]
        await database.run("update model_cooldown set context_until = clock_timestamp()")
        await model_usage.forget_expired(database)
        assert await database.value("select count(*) from model_cooldown") == 0


async def test_what_fails_for_one_process_is_tried_by_the_others(database: Database, database_url: str) -> None:
    async with (
        ScriptedLlm(Script(otherwise=Reply(fault=Status(500)))) as llm,
        models(database, database_url, llm) as ours,
        models(database, database_url, llm) as theirs,
    ):
        outcomes = [attempt.outcome for _ in range(4) for attempt in (await ask(ours)).attempts]
        assert outcomes == ["unavailable"] * 3 + ["cooldown"]
        assert [attempt.outcome for attempt in (await ask(theirs)).attempts] == ["unavailable"]
    assert len(llm.requests) == 4


async def test_a_refused_key_pauses_its_model_for_all_who_have_it(
    database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLD_KEY", "sk-old")
    monkeypatch.setenv("NEW_KEY", "sk-new")
    refuses = False
    old = {"api_key_env": "OLD_KEY"}

    def provider(_: Asked) -> Reply:
        return Reply(fault=Status(401)) if refuses else Reply("Well.")

    async with (
        ScriptedLlm(provider) as llm,
        models(database, database_url, llm, **old) as ours,
        models(database, database_url, llm, **old) as theirs,
        models(database, database_url, llm, api_key_env="NEW_KEY") as renewed,
    ):
        assert [await outcome(one) for one in (ours, theirs, renewed)] == ["answered"] * 3
        refuses = True
        with capture_logs() as told:
            outcomes = [await outcome(one) for one in (ours, ours, theirs, ours)]
        assert outcomes == ["auth", "cooldown", "cooldown", "cooldown"]
        assert [one["event"] for one in told] == [
            "a model failed",
            "a provider refuses the key of a model, which is paused",
        ]
        assert (told[0]["model"], told[0]["kind"], told[0]["reason"]) == (told[1]["model"], "auth", "status 401")
        assert len(llm.requests) == 4
        refuses = False
        assert await outcome(renewed) == "answered", "with another key"
        assert await outcome(theirs) == "cooldown"
        await assert_paused(database, settings(database_url, llm.url, **old), paused=True)
        place = ModelTestPlace("", database, "")
        one = settings(database_url, llm.url, **old)
        assert (await try_tools(one, one.models[0], place)).outcome == "unfit", "it answered"
        await assert_paused(database, one, paused=False)
        assert await outcome(theirs) == "answered"


@pytest.mark.parametrize("status", [402, 403])
async def test_a_refused_request_does_not_pause_its_model_for_others(
    database: Database, database_url: str, status: int
) -> None:
    async with (
        ScriptedLlm([Reply(fault=Status(status)), Reply("Well."), Reply("Well.")]) as llm,
        models(database, database_url, llm) as ours,
        models(database, database_url, llm) as theirs,
    ):
        assert await outcome(ours) in {"rate_limited", "unavailable"}
        assert [await outcome(one) for one in (ours, theirs)] == ["answered"] * 2
        await assert_paused(database, settings(database_url, llm.url), paused=False)


async def test_a_refused_key_is_tried_again_by_a_process_that_starts(database: Database, database_url: str) -> None:
    refused = [Reply(fault=Status(401))]
    async with ScriptedLlm([*refused, Reply("Well.")]) as llm:
        async with models(database, database_url, llm) as before:
            assert [await outcome(before) for _ in range(2)] == ["auth", "cooldown"]
        async with models(database, database_url, llm) as after:
            assert await outcome(after) == "answered"
        await assert_paused(database, settings(database_url, llm.url), paused=False)


async def outcome(one: OpenModels) -> str:
    [attempt] = (await ask(one)).attempts
    return attempt.outcome


async def assert_paused(database: Database, given: Settings, *, paused: bool) -> None:
    """As an operator sees it."""
    [model] = (await SpendingService(given, database, tuple).models()).models
    assert (model.state, model.until, bool(model.why)) == ("paused" if paused else "ready", None, paused)
    findings = [one for one in await check_database(given) if one.name == "model paused"]
    assert len(findings) == paused
    assert f"switchboard_models_paused {float(paused)}" in (await Metrics().render(database)).decode()


async def test_slots_are_counted_by_model_and_renewed_while_they_are_held(database: Database) -> None:
    ours, theirs = StoredSlots(database, 0.5), StoredSlots(database, 60)
    held = [await ours.take(slot("a", 2)), await theirs.take(slot("a", 2))]
    assert all(isinstance(one, SlotLease) for one in held)
    late = slot("a", 2)
    assert await ours.take(late) == NoSlot()
    other = await ours.take(slot("b", 1))
    assert isinstance(other, SlotLease)
    before = await database.value("select max(until) from model_lease where slot = 'b'")

    async def renewed() -> bool:
        return bool(await database.value("select max(until) > $1 from model_lease where slot = 'b'", before))

    await eventually(renewed)
    for one in (held[0], other, SlotLease(late.ticket)):
        assert isinstance(one, SlotLease)
        ours.free(one.ticket)

    async def freed() -> bool:
        return await leases(database) == 1

    await eventually(freed)
    assert isinstance(await theirs.take(slot("a", 2)), SlotLease)


def slot(name: str, most: int, asker: str = "turn") -> SlotRequest:
    return SlotRequest(name, name, most, rank_of(asker))


async def test_who_waits_is_served_by_rank_then_by_age_whatever_process_waits(database: Database) -> None:
    processes = [StoredSlots(database, 60) for _ in range(3)]
    holder = slot("a", 1)
    assert isinstance(await processes[0].take(holder), SlotLease)
    askers = ("plan", "compaction", "plan", "turn", "classification")
    waiting = [(processes[n % 3], slot("a", 1, asker)) for n, asker in enumerate(askers)]
    for process, wanted in waiting:
        assert await process.take(wanted) == NoSlot()
    processes[0].free(holder.ticket)
    served: list[int] = []
    while len(served) < len(askers):
        for n, (process, wanted) in enumerate(waiting):
            if n not in served and isinstance(await process.take(wanted), SlotLease):
                served.append(n)
                process.free(wanted.ticket)
    assert [askers[n] for n in served] == ["classification", "turn", "plan", "plan", "compaction"]
    assert served.index(0) < served.index(2), "the one that waits longer"


async def test_a_place_in_line_is_lost_by_who_does_not_ask_any_more(database: Database) -> None:
    ours, theirs = StoredSlots(database, 60), StoredSlots(database, 60)
    gone, later = slot("a", 1, "classification"), slot("a", 1, "plan")
    holder = slot("a", 1)
    assert isinstance(await ours.take(holder), SlotLease)
    assert await theirs.take(gone) == NoSlot()
    ours.free(holder.ticket)
    assert await ours.take(later) == NoSlot(), "somebody stands before it"
    await database.run("update model_lease set until = clock_timestamp() - interval '1 s' where not holds and rank = 0")
    assert isinstance(await ours.take(later), SlotLease)


async def test_a_message_is_routed_next_however_many_plans_wait(database: Database, database_url: str) -> None:
    """Twenty plans of two processes at a server with one slot; then comes a message that no rule fits."""

    def brain(asked: Asked) -> Reply:
        if "route_to_butler" in asked.prompt:
            return Reply(json.dumps({"thought": "Hm.", "calls": [{"butler": "health"}]}))
        return Reply(form({"action": "respond", "confidence": 0.9}), gate="first")

    async with ScriptedLlm(brain, strict="local") as llm:
        local = {"profile": "local", "concurrency": None}
        async with (
            models(database, database_url, llm, **local) as ours,
            models(database, database_url, llm, **local) as theirs,
        ):
            planners = [ModelPlanner(one) for one in (ours, theirs)]
            plans = [asyncio.create_task(planners[n % 2].plan(question(f"Plan {n}", models=("m",)))) for n in range(20)]
            await llm.waiting("first")
            routed = asyncio.create_task(theirs.dispatcher.run(a_message(), RequestTerms(asker="classification")))
            await eventually(partial(waits, database))
            llm.release("first")
            assert (await routed).failure is None
            assert len(llm.requests) == 2, "it was the next"
            assert {planned.settled.source for planned in await asyncio.gather(*plans)} == {"exact"}
    assert (llm.most_at_once, len(llm.requests)) == (1, 21)
    assert [one for one in llm.strays if "/chat/" in one] == [], "it takes the schemas of all of them"


async def waits(database: Database) -> bool:
    """Whether a classification stands in line."""
    return bool(await database.value("select exists (select from model_lease where rank = 0 and not holds)"))


async def test_models_of_one_local_server_share_its_slots(database: Database, database_url: str) -> None:
    async with ScriptedLlm(lambda asked: Reply("Well.", gate=asked.prompt), strict="local") as llm:
        local = {"kind": "openai", "model": "m", "base_url": f"{llm.url}/v1", "profile": "local"}
        given = {"database_url": database_url, "models": [{"name": name, **local} for name in ("small", "large")]}
        opened = [open_models(Settings.model_validate(given), database) for _ in range(2)]
        asked = [
            asyncio.create_task(one.ask(Request((ChatMessage("user", gate),), deadline=20.0), Asking((name,), asker)))
            for one, name, gate, asker in ((opened[0], "small", "1", "plan"), (opened[1], "large", "2", "plan"))
        ]
        await asyncio.wait({asyncio.create_task(llm.waiting(gate)) for gate in "12"}, return_when="FIRST_COMPLETED")
        for gate in "12":
            llm.release(gate)
        assert [one.failure for one in await asyncio.gather(*asked)] == [None, None]
        for one in opened:
            await one.aclose()
    assert llm.most_at_once == 1


async def test_a_returned_slot_is_free_for_the_next_request_of_its_process(database: Database) -> None:
    slots = StoredSlots(database, 60)
    for _ in range(20):
        lease = await slots.take(slot("a", 1))
        assert isinstance(lease, SlotLease)
        slots.free(lease.ticket)


async def test_slots_of_the_dead_are_forgotten(database: Database) -> None:
    assert (await model_usage.take_slot(database, new_uuid7(), new_uuid7(), SlotWanted("a", "a", 1, -1.0))).taken
    assert await model_usage.forget_expired(database) == 1
    assert await leases(database) == 0


async def test_a_refused_key_is_tried_again_after_a_day(database: Database) -> None:
    assert await model_usage.refuse_key(database, "a", "hash", "status 401")
    assert await model_usage.forget_expired(database) == 0
    assert not await model_usage.refuse_key(database, "a", "hash", "status 401"), "it is known"
    await database.run("update model_refused_key set at = at - interval '25 hours'")
    assert await model_usage.forget_expired(database) == 1
    assert await model_usage.refused_keys(database) == []
