"""Dead letters: who may see them, where they can be sent on, and that nothing is lost, doubled or told twice."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from structlog.testing import capture_logs

from switchboard.app.access import Access, Principal
from switchboard.app.dead_letters.requests import Bulk, Reroute, RuleWish
from switchboard.app.dead_letters.service import DeadLetterService
from switchboard.app.ops.maintenance import NOBODY_TEXT, DeadLetterMaintenance, maintenance_tasks
from switchboard.app.rules.records import RuleRecords
from switchboard.app.rules.replays import Replays
from switchboard.app.rules.service import RuleService
from switchboard.app.runtime import Runtime
from switchboard.app.settings import DeadLetterSettings, Settings
from switchboard.core.envelope.strict import strict
from switchboard.domain.envelope import Envelope
from switchboard.domain.errors import Conflict, Forbidden, InvalidInput, NotFound, Unavailable
from switchboard.domain.routing import Member, RuleChange, SystemId, Target, Team, TeamId
from switchboard.journey.accept import Submission
from switchboard.journey.reply import pull_pool
from switchboard.ports.engine import Answer, EngineFailure, Journal, NoReply, Refusal, Turn, TurnResult
from switchboard.store import dead_letters as store
from switchboard.store import rules
from switchboard.store.books import audit_books
from switchboard.store.dead_letters import DeadLetterFilter, Report
from switchboard.store.rules import Authorship
from tests.hands import Scripted, a_hand, all_dead_letters, assert_balanced, at_work, settled
from tests.lab import ROOT, Lab, butler, envelope_json, lab, rule, submission, to
from tests.waiting import eventually

SALES, STOCK = TeamId("sales"), TeamId("stock")
TEAMS = (
    Team(
        ROOT,
        None,
        members=(
            butler("echo"),
            butler("spare"),
            Member(SystemId("System3/root"), ROOT, 3, "echo"),
            Member(SystemId("System4/root"), ROOT, 4, "echo"),
        ),
    ),
    Team(SALES, ROOT, members=(butler("seller", team=SALES), Member(SystemId("System4/sales"), SALES, 4, "echo"))),
    Team(STOCK, SALES, members=(butler("keeper", team=STOCK),)),
)
RULES = (
    rule(ROOT, [to("System1/echo")], channel="telegram"),
    rule(ROOT, [to(team="sales")], channel="slack"),
    rule(STOCK, [to("System1/keeper")], channel="email"),
)
"""What comes by mail or by api is a dead letter of the root, by slack one of sales."""

OPERATOR = Principal("operator", "olga")
HANDLER = Principal("agent", "watch", system_id="System4/root")
SALES_HANDLER = Principal("agent", "sales watch", system_id="System4/sales")
CONTROL = Principal("agent", "control", system_id="System3/root")
WORKER = Principal("agent", "echo", system_id="System1/echo")
CONNECTOR = Principal("connector", "bot", "telegram", "bot:house")

WHY = Reroute("it belongs there")


def to_butler(name: str, **more: Any) -> Reroute:
    return Reroute("it belongs there", to(f"System1/{name}"), **more)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[tuple[Lab, DeadLetterService]]:
    async with lab(url, TEAMS, RULES) as parts:
        yield parts, service_of(parts)


def service_of(parts: Lab) -> DeadLetterService:
    runtime = Runtime(Settings(data_dir=Path("/nowhere")), parts.database, parts.notifier, parts.rule_book)
    access = Access(parts.database)
    return DeadLetterService(runtime, access, RuleService(runtime, access, RuleRecords(runtime), Replays(runtime)))


async def a_dead_letter(parts: Lab, *, channel: str = "email", **more: Any) -> UUID:
    """The dead letter of a message that nobody took."""
    accepted = await parts.accept.accept(submission(channel=channel, **more))
    dead_letter: UUID = await parts.database.value(
        "select dead_letter_id from dead_letter where request_id = $1", accepted.request_id
    )
    return dead_letter


async def many_dead_letters(parts: Lab, count: int, name: str = "s") -> None:
    """Dead letters of `count` conversations. The first come one by one: concurrent commits report 20 each."""
    mails = [submission(channel="email", sender=f"{name}{n}") for n in range(count)]
    for mail in mails[:20]:
        await parts.accept.accept(mail)
    await asyncio.gather(*(parts.accept.accept(mail) for mail in mails[20:]))


async def request_of(parts: Lab, dead_letter: UUID) -> UUID:
    found: UUID = await parts.database.value(
        "select request_id from dead_letter where dead_letter_id = $1", dead_letter
    )
    return found


async def work_off(parts: Lab, engine: Scripted | None = None) -> None:
    """Until no lane of the workers has anything left to do."""
    async with at_work(parts.worker(None if engine is None else {"echo": engine})):
        await eventually(lambda: settled(parts))


@asynccontextmanager
async def held(url: str, dead_letter: UUID) -> AsyncIterator[None]:
    """Nobody else can change this dead letter."""
    holder = await asyncpg.connect(url, server_settings={"search_path": "switchboard"})
    try:
        async with holder.transaction():
            await holder.execute("select from dead_letter where dead_letter_id = $1 for update", dead_letter)
            yield
    finally:
        await holder.close()


async def cut_off(parts: Lab, query: str) -> None:
    """End the connection of whoever waits for a lock with this query."""
    here = "from pg_stat_activity where datname = current_database()"
    waiting = f"select pid {here} and wait_event_type = 'Lock' and query like $1"
    await eventually(lambda: parts.database.value(waiting, query))
    await parts.database.value("select pg_terminate_backend($1)", await parts.database.value(waiting, query))


async def refusals(parts: Lab) -> int:
    return await parts.count("select count(*) from audit where action = 'refused:dead_letters'")


# Rerouting --------------------------------------------------------------------------------------------------------


async def test_a_dead_letter_sent_to_a_butler_is_answered_and_its_way_is_on_record(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        dead_letter = await a_dead_letter(parts)
        request_id = await request_of(parts, dead_letter)
        done = await service.reroute(OPERATOR, dead_letter, to_butler("spare"))
        assert (done.decision_n, done.already, [d.system_id for d in done.deliveries]) == (2, False, ["System1/spare"])
        shown = done.dead_letter
        assert (shown.status, shown.handled_by_system_id, shown.rerouted_n) == ("handled", "olga", 2)
        assert shown.resolution == "it belongs there"
        await assert_balanced(parts)
        await work_off(parts)
        assert await parts.replies_to(request_id) == ["hello"]
        assert await parts.database.value("select message_state($1)", request_id) == "answered"
        await assert_balanced(parts)
        [first, second] = await parts.database.rows(
            "select n, branches, trail, facts from decision where request_id = $1 order by n", request_id
        )
        assert (first["n"], second["n"], second["branches"]) == (1, 2, 1)
        assert second["facts"] == first["facts"]
        [step] = second["trail"]
        assert (step["reason"], step["targets"][0]["system_id"]) == ("reroute", "System1/spare")
        assert "by olga: it belongs there" in step["detail"]
        detail = await service.get(OPERATOR, dead_letter)
        assert [made.system_id for made in detail.rerouted_to] == ["System1/spare"]


async def test_the_deliveries_of_a_reroute_are_known_by_the_number_of_its_decision(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        dead_letter = await a_dead_letter(parts)
        await service.reroute(OPERATOR, dead_letter, to_butler("spare"))
        await parts.database.run("update delivery set created_at = created_at + interval '1 s'")
        [made] = await store.rerouted(parts.database, await request_of(parts, dead_letter), 2)
        assert made.system_id == "System1/spare"


async def test_a_dead_letter_is_written_though_the_bytes_are_no_longer_kept(database_url: str) -> None:
    async def play(turn: Turn, _: Journal) -> TurnResult:
        return NoReply() if turn.dead_letter else Refusal("not mine")

    async with opened(database_url) as (parts, _):
        await parts.accept.accept(submission(channel="telegram"))
        await parts.database.run("delete from message_raw")
        await work_off(parts, Scripted(play))
        [dead_letter] = await all_dead_letters(parts)
        assert (dead_letter["category"], dead_letter["raw"]) == ("refused", b"")


async def test_without_a_receiver_the_rules_of_now_decide_from_the_dead_letters_own_team_downward(
    database_url: str,
) -> None:
    async with opened(database_url) as (parts, service):
        dead_letter = await a_dead_letter(parts, channel="slack")
        await _add_rule(parts, SALES, [to("System1/seller")], "slack")
        await _add_rule(parts, ROOT, [to("System1/spare")], "slack", priority=9)
        done = await service.reroute(SALES_HANDLER, dead_letter, WHY)
        assert [d.system_id for d in done.deliveries] == ["System1/seller"]
        assert done.dead_letter.handled_by_system_id == "System4/sales"
        [_, second] = await parts.database.rows("select version, trail from decision order by n")
        assert second["version"] == parts.rule_book.rules.version
        assert [step["reason"] for step in second["trail"]] == ["reroute", "rule"]
        await assert_balanced(parts)


async def test_sent_to_a_team_its_rules_decide(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        dead_letter = await a_dead_letter(parts, channel="email")
        done = await service.reroute(OPERATOR, dead_letter, Reroute("stock knows", to(team="stock")))
        assert [(d.system_id, d.team_id) for d in done.deliveries] == [("System1/keeper", "stock")]


async def _add_rule(parts: Lab, team: TeamId, targets: Sequence[Target], channel: str, priority: int = 0) -> None:
    """A rule that another process wrote."""
    made = rule(team, targets, channel=channel, priority=priority)
    await rules.write(parts.database, [RuleChange(None, made)], by=Authorship("test", "more"))
    await parts.rule_book.refresh()


async def test_repeated_it_says_what_was_done_and_delivers_nothing_again(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        dead_letter = await a_dead_letter(parts)
        first = await service.reroute(OPERATOR, dead_letter, to_butler("spare"))
        again = await service.reroute(HANDLER, dead_letter, to_butler("spare"))
        assert again.already
        assert (again.decision_n, again.deliveries) == (first.decision_n, first.deliveries)
        assert await parts.count("select count(*) from delivery") == 1


async def test_who_wants_another_receiver_than_it_went_to_is_told_where_it_went(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        dead_letter, by_rules = await a_dead_letter(parts), await a_dead_letter(parts, channel="api")
        await service.reroute(OPERATOR, dead_letter, to_butler("spare"))
        await _add_rule(parts, ROOT, [to("System1/spare")], "api")
        assert not (await service.reroute(OPERATOR, by_rules, WHY)).already
        for which in (dead_letter, by_rules):
            assert (await service.reroute(HANDLER, which, WHY)).already, "who names nobody misses nobody"
        others = (
            (dead_letter, to_butler("echo"), "to System1/spare"),
            (dead_letter, Reroute("stock knows", to(team="stock")), "to System1/spare"),
            (by_rules, to_butler("spare"), "by the rules"),
        )
        for which, other, where in others:
            with pytest.raises(Conflict, match=rf"rerouted \(decision 2\) {where} by olga") as caught:
                await service.reroute(HANDLER, which, other)
            assert (caught.value.code, caught.value.field) == ("already_rerouted", "to")
        assert await parts.count("select count(*) from delivery") == 2


async def test_if_nobody_takes_it_the_dead_letter_stays_as_it_was(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        dead_letter = await a_dead_letter(parts)
        before = await all_dead_letters(parts)
        with pytest.raises(Conflict, match="lead to no butler") as caught:
            await service.reroute(OPERATOR, dead_letter, WHY)
        assert caught.value.code == "nobody_takes_it"
        for wrong in ("System1/nobody", "System4/root"):
            with pytest.raises(InvalidInput) as refused:
                await service.reroute(OPERATOR, dead_letter, Reroute("why", to(wrong)))
            assert refused.value.code == "unknown_target"
        with pytest.raises(InvalidInput):
            await service.reroute(OPERATOR, dead_letter, Reroute("why", to(team="nowhere")))
        assert await all_dead_letters(parts) == before
        assert await parts.count("select count(*) from decision") == 1


async def test_a_butler_that_had_the_message_does_not_get_it_again(database_url: str) -> None:
    """One of two butlers answered, the other refused: the dead letter goes to a third, never to the first once more."""

    async def play(turn: Turn, _: Journal) -> TurnResult:
        if turn.member.name == "seller":
            return Refusal("not mine")
        return NoReply() if turn.dead_letter is not None else Answer("done")

    both = (rule(ROOT, [to("System1/echo"), to(team="sales")]), rule(SALES, [to("System1/seller")]))
    async with lab(database_url, TEAMS, both) as parts:
        service = service_of(parts)
        accepted = await parts.accept.accept(submission(channel="telegram"))
        await work_off(parts, Scripted(play))
        [dead_letter] = await all_dead_letters(parts)
        with pytest.raises(Conflict, match="System1/echo already had this message"):
            await service.reroute(OPERATOR, dead_letter["dead_letter_id"], to_butler("echo"))
        await service.reroute(OPERATOR, dead_letter["dead_letter_id"], to_butler("spare"))
        await assert_balanced(parts)
        await work_off(parts, Scripted(play))
        assert await parts.count("select count(*) from delivery") == 3
        assert await parts.replies_to(accepted.request_id) == ["done", "done"]
        await assert_balanced(parts)


async def test_a_butler_that_refused_may_be_asked_again_and_dies_as_a_further_dead_letter(database_url: str) -> None:
    async def refuse(turn: Turn, _: Journal) -> TurnResult:
        return NoReply() if turn.dead_letter is not None else Refusal("never")

    async with opened(database_url) as (parts, service):
        await parts.accept.accept(submission(channel="telegram"))
        await work_off(parts, Scripted(refuse))
        [first] = await all_dead_letters(parts)
        await service.reroute(OPERATOR, first["dead_letter_id"], to_butler("echo"))
        await work_off(parts, Scripted(refuse))
        old, new = await all_dead_letters(parts)
        assert (old["status"], old["rerouted_n"], new["status"], new["rerouted_n"]) == ("handled", 2, "pending", None)
        await service.reroute(OPERATOR, new["dead_letter_id"], to_butler("spare"))
        assert await parts.count("select max(n) from decision") == 3
        await assert_balanced(parts)


async def test_what_again_nobody_can_take_becomes_a_dead_letter_beside_what_somebody_can(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        dead_letter = await a_dead_letter(parts, channel="api")
        await _add_rule(parts, ROOT, [to("System1/spare"), to(team="sales")], "api")
        done = await service.reroute(OPERATOR, dead_letter, WHY)
        assert [d.system_id for d in done.deliveries] == ["System1/spare"]
        _, left = await all_dead_letters(parts)
        assert (left["team_id"], left["category"], left["status"]) == ("sales", "no_route", "pending")
        await assert_balanced(parts)


async def test_it_is_appended_to_its_lane(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        dead_letter = await a_dead_letter(parts, channel="email", sender="ann", thread="t", text="dead")
        for text in ("one", "two"):
            other = await a_dead_letter(parts, channel="email", sender="ann", thread="t", text=text)
            await service.reroute(OPERATOR, other, to_butler("spare"))
        done = await service.reroute(OPERATOR, dead_letter, to_butler("spare"))
        assert [d.seq for d in done.deliveries] == [3]
        await work_off(parts)
        rows = await parts.database.rows("select text from outbox order by lane, seq")
        assert [row["text"] for row in rows] == ["one", "two", "dead"]


async def test_a_dead_letter_of_an_old_release_is_decided_by_what_its_bytes_say(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        dead_letter = await a_dead_letter(parts, channel="email")
        await parts.database.run("update decision set facts = null")
        done = await service.reroute(OPERATOR, dead_letter, Reroute("stock knows", to(team="stock")))
        assert [d.system_id for d in done.deliveries] == ["System1/keeper"]


# All at once, and in the middle of it -----------------------------------------------------------------------------


async def test_of_reroute_and_handle_at_once_exactly_one_wins_and_the_other_is_told(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        for n in range(12):
            dead_letter = await a_dead_letter(parts, sender=f"s{n}")
            outcomes = await asyncio.gather(
                service.reroute(OPERATOR, dead_letter, to_butler("spare")),
                service.handle(HANDLER, dead_letter, "spam"),
                service.reroute(HANDLER, dead_letter, to_butler("spare")),
                return_exceptions=True,
            )
            [row] = [x for x in await all_dead_letters(parts) if x["dead_letter_id"] == dead_letter]
            deliveries = await parts.count("select count(*) from delivery where request_id = $1", row["request_id"])
            if row["rerouted_n"] is None:
                assert deliveries == 0
                assert [isinstance(o, Conflict) for o in outcomes] == [True, False, True]
                assert all("spam" in str(o) for o in outcomes if isinstance(o, Conflict))
            else:
                assert deliveries == 1
                assert isinstance(outcomes[1], Conflict)
                assert "rerouted (decision 2)" in str(outcomes[1])
                assert sorted(o.already for o in outcomes if hasattr(o, "already")) == [False, True]
        await assert_balanced(parts)


async def test_of_two_receivers_at_once_one_gets_it_and_who_named_the_other_is_told(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        for n in range(8):
            dead_letter = await a_dead_letter(parts, sender=f"s{n}")
            outcomes = await asyncio.gather(
                *(service.reroute(OPERATOR, dead_letter, to_butler(name)) for name in ("spare", "echo")),
                return_exceptions=True,
            )
            [refused] = [outcome for outcome in outcomes if isinstance(outcome, Conflict)]
            assert refused.code == "already_rerouted"
            request_id = await request_of(parts, dead_letter)
            assert await parts.count("select count(*) from delivery where request_id = $1", request_id) == 1
        await assert_balanced(parts)


async def test_two_dead_letters_of_one_message_sent_to_one_butler_at_once_deliver_once(database_url: str) -> None:
    twice = (rule(ROOT, [to(team="sales"), to("System4/root")], channel="telegram"),)
    async with lab(database_url, TEAMS, twice) as parts:
        service = service_of(parts)
        for n in range(8):
            accepted = await parts.accept.accept(submission(sender=f"s{n}"))
            dead_letters = [x for x in await all_dead_letters(parts) if x["request_id"] == accepted.request_id]
            assert len(dead_letters) == 2
            outcomes = await asyncio.gather(
                *(service.reroute(OPERATOR, x["dead_letter_id"], to_butler("spare")) for x in dead_letters),
                return_exceptions=True,
            )
            assert sorted(isinstance(outcome, Conflict) for outcome in outcomes) == [False, True], outcomes
            made = "select count(*) from delivery where request_id = $1"
            assert await parts.count(made, accepted.request_id) == 1
        await assert_balanced(parts)


async def test_cut_off_in_the_middle_it_is_not_done_at_all_and_can_be_done_again(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        dead_letter = await a_dead_letter(parts)
        before = await all_dead_letters(parts)
        async with held(database_url, dead_letter):  # it has its lanes and waits for the dead letter: half of the way
            rerouting = asyncio.create_task(service.reroute(OPERATOR, dead_letter, to_butler("spare")))
            await cut_off(parts, "%reroute_dead_letter%")
            with pytest.raises(Unavailable):
                await rerouting
        assert await all_dead_letters(parts) == before
        assert await parts.count("select count(*) from delivery") == 0
        await assert_balanced(parts)
        assert not (await service.reroute(OPERATOR, dead_letter, to_butler("spare"))).already
        await assert_balanced(parts)


async def test_a_storm_of_hands_and_broken_connections_loses_and_doubles_nothing(database_url: str) -> None:
    """Several clients reroute and close the same ones while butlers refuse, digests are sent and backends die."""

    async def play(turn: Turn, _: Journal) -> TurnResult:
        refused = turn.member.name == "echo" and turn.request_id.int % 3 == 0
        return NoReply() if turn.dead_letter is not None else Refusal("no") if refused else Answer("ok")

    async with opened(database_url) as (parts, service):
        batch = (submission(channel="email", sender=f"s{n % 20}") for n in range(90))
        await asyncio.gather(*(parts.accept.accept(one) for one in batch))
        maintenance = DeadLetterMaintenance(parts.database, parts.notifier, ())
        orders = (
            Bulk(DeadLetterFilter(), "reroute", "echo", to("System1/echo"), limit=30),
            Bulk(DeadLetterFilter(), "reroute", "spare", to("System1/spare"), limit=20),
            Bulk(DeadLetterFilter(), "handle", "spam", limit=5),
        )

        async def over() -> bool:
            with contextlib.suppress(Unavailable):
                return await settled(parts) and not await store.count_pending(parts.database)
            return False

        async def hand(order: Bulk) -> None:
            while not await over():
                with contextlib.suppress(Unavailable):
                    await service.bulk(OPERATOR, order)
                    await maintenance.digest()

        async def break_connections() -> None:
            connection = await asyncpg.connect(database_url)
            try:
                for _ in range(12):
                    await connection.fetch(
                        "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()"
                        " and pid <> pg_backend_pid() and state = 'active' and query like any ($1) limit 2",
                        ["%reroute_dead_letter%", "%settle_turns%", "%digest_dead_letters%", "%dead_letter set%"],
                    )
                    await asyncio.sleep(0.05)
            finally:
                await connection.close()

        worker = parts.worker({"echo": Scripted(play)})
        async with at_work(worker), asyncio.timeout(60), asyncio.TaskGroup() as group:
            for work in (break_connections(), *(hand(order) for order in orders)):
                group.create_task(work)
        await assert_balanced(parts)
        taken = "select request_id from delivery where state <> 'dead' group by request_id having count(*) > 1"
        assert await parts.database.rows(taken) == []
        assert await parts.count("select count(*) from dead_letter where status = 'pending' or handled_at is null") == 0
        assert await parts.count("select count(*) from outbox") == await parts.count(
            "select count(*) from delivery where state = 'answered'"
        )


# Closing ----------------------------------------------------------------------------------------------------------


async def test_a_closed_dead_letter_stays_on_the_books_as_dead(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        dead_letter = await a_dead_letter(parts)
        done = await service.handle(HANDLER, dead_letter, "spam")
        shown = done.dead_letter
        assert (done.already, shown.status, shown.handled_by_system_id) == (False, "handled", "System4/root")
        assert shown.resolution == "spam"
        assert shown.handled_at is not None
        assert (await service.handle(OPERATOR, dead_letter, "other")).already
        with pytest.raises(Conflict, match=r"closed by System4/root: spam"):
            await service.reroute(OPERATOR, dead_letter, to_butler("spare"))
        assert (await audit_books(parts.database)).messages.dead == 1
        await assert_balanced(parts)
        actions = await parts.database.rows("select action from audit order by audit_id")
        assert [row["action"] for row in actions] == ["dead_letter:handled"]


async def test_a_dead_letter_whose_message_is_no_longer_kept_is_shown_and_closed_but_not_sent_on(
    database_url: str,
) -> None:
    async with opened(database_url) as (parts, service):
        dead_letter = await a_dead_letter(parts)
        await parts.database.run("truncate message_inbox, message_raw, decision")
        [listed], _ = await service.list(HANDLER, DeadLetterFilter(), limit=10, cursor=None)
        shown = await service.get(HANDLER, dead_letter)
        assert (listed.dead_letter_id, listed.text) == (dead_letter, "hello")
        assert shown.payload["payload"]["normalized_text"] == "hello"
        assert base64.b64decode(shown.raw_base64) != b""
        with pytest.raises(Conflict, match="no longer kept") as refused:
            await service.reroute(HANDLER, dead_letter, to_butler("spare"))
        assert refused.value.code == "message_gone"
        done = await service.handle(HANDLER, dead_letter, "too old")
        assert (done.dead_letter.status, done.already) == ("handled", False)


# Who may ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("caller", [SALES_HANDLER, CONTROL, WORKER, CONNECTOR], ids=lambda caller: caller.name)
async def test_whoever_does_not_handle_a_dead_letter_neither_sees_nor_touches_it(
    database_url: str, caller: Principal
) -> None:
    async with opened(database_url) as (parts, service):
        dead_letter = await a_dead_letter(parts)
        before = await all_dead_letters(parts)
        for attempt in (
            service.get(caller, dead_letter),
            service.reroute(caller, dead_letter, to_butler("spare")),
            service.handle(caller, dead_letter, "mine"),
        ):
            with pytest.raises(NotFound):
                await attempt
        wanted = DeadLetterFilter(teams=("root",))
        with pytest.raises(Forbidden):
            await service.list(caller, wanted, limit=5, cursor=None)
        with pytest.raises(Forbidden):
            await service.bulk(caller, Bulk(wanted, "handle", "mine"))
        outcome = service.bulk(caller, Bulk(DeadLetterFilter(ids=(dead_letter,)), "handle", "mine"))
        if caller is SALES_HANDLER:
            assert (await outcome).matched == 0
            assert (await service.list(caller, DeadLetterFilter(), limit=5, cursor=None)) == ([], None)
        else:
            with pytest.raises(Forbidden):
                await outcome
        assert await all_dead_letters(parts) == before
        assert await refusals(parts) == (5 if caller is SALES_HANDLER else 6)


async def test_a_system4_sends_on_to_its_own_team_and_below_only(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        dead_letter = await a_dead_letter(parts, channel="slack")
        for outside in (to("System1/spare"), to(team="root")):
            with pytest.raises(Forbidden, match="own team and those below"):
                await service.reroute(SALES_HANDLER, dead_letter, Reroute("away", outside))
        assert await refusals(parts) == 2
        with pytest.raises(Forbidden, match="own team and those below"):
            await service.bulk(SALES_HANDLER, Bulk(DeadLetterFilter(), "reroute", "away", to("System1/spare")))
        assert await parts.count("select count(*) from delivery") == 0
        done = await service.reroute(SALES_HANDLER, dead_letter, to_butler("keeper"))
        assert [d.team_id for d in done.deliveries] == ["stock"]


async def test_a_member_that_left_its_office_handles_nothing_any_more(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        dead_letter = await a_dead_letter(parts)
        await parts.database.run("update member set active = false where system_id = 'System4/root'")
        await parts.database.run("insert into rule_set (version, author, reason) values (99, 't', 't')")
        await parts.rule_book.refresh()
        with pytest.raises(NotFound):
            await service.handle(HANDLER, dead_letter, "mine")


async def test_many_to_whom_they_may_not_go_are_one_refusal_on_record(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        for n in range(6):
            await a_dead_letter(parts, channel="slack", sender=f"s{n}")
        away = Bulk(DeadLetterFilter(), "reroute", "away", to("System1/spare"))
        for order in (away, _with(away, dry_run=True)):
            with pytest.raises(Forbidden) as caught:
                await service.bulk(SALES_HANDLER, order)
            assert caught.value.field == "to"
        rows = await parts.database.rows("select action, detail from audit order by audit_id")
        assert [row["action"] for row in rows] == ["refused:dead_letters"] * 2
        assert rows[0]["detail"] == {"role": "agent", "teams": ["sales", "stock"], "to": "System1/spare"}
        with pytest.raises(InvalidInput, match="there is no path to") as unknown:
            await service.bulk(OPERATOR, _with(away, to=to("System1/gone")))
        assert (unknown.value.code, unknown.value.field) == ("unknown_target", "to")


async def test_of_many_those_of_a_team_below_the_receiver_fail_and_are_one_row_on_record(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        below = [await a_dead_letter(parts, channel="slack", sender=f"s{n}") for n in range(3)]
        own = await a_dead_letter(parts, channel="slack", sender="own")
        await parts.database.run("update dead_letter set team_id = 'stock' where dead_letter_id = any ($1)", below)
        outcome = await service.bulk(SALES_HANDLER, Bulk(DeadLetterFilter(), "reroute", "sell", to("System1/seller")))
        assert (outcome.matched, outcome.done) == (4, 1)
        assert [(one.dead_letter_id, one.code) for one in outcome.failed] == [(x, "forbidden") for x in below]
        assert [row["dead_letter_id"] for row in await all_dead_letters(parts) if row["status"] == "handled"] == [own]
        [entry] = await _bulks_on_record(parts)
        assert (entry["done"], entry["failed"]) == (1, 3)
        assert await parts.count("select count(*) from audit") == 1


# A rule of it -----------------------------------------------------------------------------------------------------


async def test_a_rule_can_be_made_of_a_dead_letter_and_takes_the_next_one(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        dead_letter = await a_dead_letter(parts, sender="ann@example.org")
        wish = RuleWish("ann to spare", ["email_domain", "channel"], priority=3)
        done = await service.reroute(OPERATOR, dead_letter, to_butler("spare", rule=wish))
        assert done.rule is not None
        made = done.rule.rule
        assert (made["team_id"], made["channel"], made["filters"]) == ("root", "email", {"email_domain": "example.org"})
        assert (made["priority"], made["targets"]) == (3, [{"system_id": "System1/spare"}])
        trail = await parts.database.value("select trail from decision where n = 2")
        assert (trail[0]["rule_id"], trail[0]["rule_name"]) == (made["rule_id"], "ann to spare")
        accepted = await parts.accept.accept(submission(channel="email", sender="bob@example.org"))
        assert accepted.decision is not None
        assert [chosen.system_id for chosen in accepted.decision.chosen] == ["System1/spare"]
        again = await service.reroute(OPERATOR, dead_letter, to_butler("spare", rule=wish))
        assert again.already
        assert await parts.count("select count(*) from rule where name = 'ann to spare'") == 1


async def test_a_rule_that_would_not_decide_the_dead_letters_own_message_is_not_made(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        dead_letter = await a_dead_letter(parts, sender="ann@example.org")
        handler = Target(system_id=SystemId("System4/root"))
        await _add_rule(parts, ROOT, [handler], "email", priority=2)
        before = await parts.count("select count(*) from rule")
        for wish, said, field in (
            (RuleWish("ann", ["sender"]), "comes first because its priority is 2, .* priority 3", "priority"),
            (
                RuleWish("bob", {"sender": "bob@example.org"}, 3),
                "its sender is 'ann@example.org'",
                "filters.sender",
            ),
            (
                RuleWish("list", {"email_list_id": "l.x.org"}, 3),
                "it has no email_list_id",
                "filters.email_list_id",
            ),
        ):
            with pytest.raises((Conflict, InvalidInput), match=said) as caught:
                await service.reroute(OPERATOR, dead_letter, to_butler("spare", rule=wish))
            assert caught.value.field == f"rule.{field}"
        assert await parts.count("select count(*) from rule") == before
        wish = RuleWish("ann", ["sender"], priority=3)
        assert (await service.reroute(OPERATOR, dead_letter, to_butler("spare", rule=wish))).rule is not None


async def test_who_wants_another_rule_than_was_made_is_told_so(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        dead_letter, plain = await a_dead_letter(parts, sender="ann"), await a_dead_letter(parts, sender="bob")
        await service.reroute(OPERATOR, dead_letter, to_butler("spare", rule=RuleWish("ann", ["sender"], priority=3)))
        await service.reroute(OPERATOR, plain, to_butler("spare"))
        for which, other in (
            (dead_letter, RuleWish("ann", ["sender"], priority=4)),
            (dead_letter, RuleWish("other", ["sender"], priority=3)),
            (dead_letter, RuleWish("ann", {"sender": "bob"}, priority=3)),
            (dead_letter, RuleWish("ann", {"sendre": "ann"}, priority=3)),
            (dead_letter, RuleWish("ann", ["subject"], priority=3)),
            (plain, RuleWish("bob", ["sender"])),
        ):
            with pytest.raises(Conflict, match="without this rule") as caught:
                await service.reroute(OPERATOR, which, to_butler("spare", rule=other))
            assert (caught.value.code, caught.value.field) == ("already_rerouted", "rule")
        assert await parts.count("select count(*) from rule") == len(RULES) + 1
        await parts.database.run("update rule set priority = 9 where name = 'ann'")
        same = RuleWish("ann", {"sender": "ann"}, priority=3)
        assert (await service.reroute(OPERATOR, dead_letter, to_butler("spare", rule=same))).already, "as it was made"
        assert (await service.reroute(OPERATOR, dead_letter, to_butler("spare"))).already


@pytest.mark.parametrize("filters", [(), {}, ("channel",), {"channel": "email"}], ids=str)
async def test_a_rule_without_a_filter_would_be_one_for_everybody_and_is_not_made(
    database_url: str, filters: Mapping[str, str] | Sequence[str]
) -> None:
    async with opened(database_url) as (parts, service):
        dead_letter = await a_dead_letter(parts, sender="ann@example.org")
        with pytest.raises(InvalidInput, match="every message of email") as caught:
            await service.reroute(OPERATOR, dead_letter, to_butler("spare", rule=RuleWish("all", filters)))
        assert caught.value.field == "rule.filters"
        assert "sender 'ann@example.org'" in caught.value.message
        assert "email_domain 'example.org'" in caught.value.message
        assert await parts.count("select count(*) from rule") == len(RULES)
        [row] = await all_dead_letters(parts)
        assert row["status"] == "pending"


async def test_a_rule_that_is_refused_moves_nothing(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        dead_letter = await a_dead_letter(parts, channel="slack")
        wish = RuleWish("r", ["sender"])
        with pytest.raises(Forbidden):  # a System4 handles dead letters, rules are not its to make
            await service.reroute(SALES_HANDLER, dead_letter, to_butler("seller", rule=wish))
        with pytest.raises(InvalidInput):  # not of this team, nor right below it
            await service.reroute(OPERATOR, dead_letter, to_butler("spare", rule=wish))
        with pytest.raises(InvalidInput, match="this message has no"):
            await service.reroute(OPERATOR, dead_letter, to_butler("seller", rule=RuleWish("r", ["email_domain"])))
        with pytest.raises(InvalidInput) as caught:
            await service.reroute(OPERATOR, dead_letter, to_butler("seller", rule=RuleWish("r", {"sendre": "ann"})))
        assert (caught.value.code, caught.value.field) == ("unknown_filter_key", "rule.filters.sendre")
        [row] = await all_dead_letters(parts)
        assert row["status"] == "pending"
        assert await parts.count("select count(*) from rule") == len(RULES)


async def test_a_rule_must_say_for_whom_even_if_somebody_would_take_the_dead_letter(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        dead_letter = await a_dead_letter(parts, channel="slack")
        await _add_rule(parts, SALES, [to("System1/seller")], "slack")
        with pytest.raises(InvalidInput) as caught:
            await service.reroute(OPERATOR, dead_letter, Reroute("why", rule=RuleWish("r", ["sender"])))
        assert (caught.value.code, caught.value.field) == ("invalid_input", "to")
        assert await parts.count("select count(*) from delivery") == 0
        assert not (await service.reroute(OPERATOR, dead_letter, WHY)).already, "somebody would have taken it"


@pytest.mark.parametrize("goes_on", ["with it", "without"])
async def test_who_corrects_the_rule_of_a_dead_letter_is_told_that_there_is_one(
    database_url: str, goes_on: str
) -> None:
    """The rule was made, and then the dead letter could not be sent on: its lane was out of reach for a moment."""
    async with opened(database_url) as (parts, service):
        dead_letter = await a_dead_letter(parts, channel="slack")
        await parts.database.run("alter table decision add constraint stop check (n < 2)")
        with pytest.raises(asyncpg.CheckViolationError):
            await service.reroute(OPERATOR, dead_letter, to_butler("seller", rule=RuleWish("first", ["sender"])))
        await parts.database.run("alter table decision drop constraint stop")
        with pytest.raises(Conflict, match="the rule for this dead letter exists already: 'first'") as caught:
            await service.reroute(OPERATOR, dead_letter, to_butler("seller", rule=RuleWish("second", ["sender"])))
        assert caught.value.field == "rule"
        made = await parts.database.value("select rule_id from rule where name = 'first'")
        assert str(made) in caught.value.message
        assert "without a rule" in caught.value.message
        if goes_on == "with it":
            done = await service.reroute(OPERATOR, dead_letter, to_butler("seller", rule=RuleWish("first", ["sender"])))
            assert done.rule is not None
            assert (done.already, done.rule.fresh) == (False, False)
        else:
            assert not (await service.reroute(OPERATOR, dead_letter, to_butler("seller"))).already
        assert await parts.count("select count(*) from rule") == len(RULES) + 1


# Many -------------------------------------------------------------------------------------------------------------


async def test_many_are_done_one_by_one_and_what_fails_stays(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        for n in range(7):
            await a_dead_letter(parts, sender=f"s{n}", channel="email")
        for n in range(3):
            await a_dead_letter(parts, sender=f"s{n}", channel="slack")
        order = Bulk(DeadLetterFilter(), "reroute", "stock knows", to(team="stock"))
        looked = await service.bulk(OPERATOR, _with(order, dry_run=True))
        assert (looked.matched, looked.done, len(looked.failed), looked.dry_run) == (10, 7, 3, True)
        assert await parts.count("select count(*) from delivery") == 0
        done = await service.bulk(OPERATOR, order)
        assert (done.matched, done.done, done.next_cursor) == (10, 7, None)
        assert {failure.code for failure in done.failed} == {"nobody_takes_it"}
        again = await service.bulk(OPERATOR, order)
        assert (again.matched, again.done) == (3, 0)
        assert await parts.count("select count(*) from delivery") == 7
        await assert_balanced(parts)


def _with(order: Bulk, **more: Any) -> Bulk:
    values = {name: getattr(order, name) for name in Bulk.__slots__}
    return Bulk(**{**values, **more})


async def test_many_go_on_from_a_cursor_and_past_what_fails(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        dead_letters = [await a_dead_letter(parts, sender=f"s{n}") for n in range(5)]
        seen: list[UUID] = []
        cursor: str | None = None
        for _ in range(3):
            outcome = await service.bulk(OPERATOR, Bulk(DeadLetterFilter(), "reroute", "x", limit=2, after=cursor))
            seen += [failure.dead_letter_id for failure in outcome.failed]
            cursor = outcome.next_cursor
        assert cursor is None
        assert seen == dead_letters


async def _bulks_on_record(parts: Lab) -> list[dict[str, Any]]:
    rows = await parts.database.rows("select detail from audit where action = 'dead_letters:bulk' order by audit_id")
    return [row["detail"] for row in rows]


async def test_an_order_for_many_is_on_record_with_its_filter_and_reason(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        dead_letters = [await a_dead_letter(parts, sender=f"s{n}", channel="slack") for n in range(2)]
        order = Bulk(DeadLetterFilter(category="no_route", ids=dead_letters), "reroute", "to stock", to(team="stock"))
        await service.bulk(SALES_HANDLER, _with(order, dry_run=True))
        await service.bulk(SALES_HANDLER, order)
        await service.bulk(SALES_HANDLER, Bulk(DeadLetterFilter(), "handle", "spam"))
        first, second = await _bulks_on_record(parts)
        assert first == {
            "action": "reroute",
            "filter": {
                "teams": ["sales", "stock"],
                "category": "no_route",
                "ids": [str(dead_letter) for dead_letter in dead_letters],
            },
            "to": {"team_id": "stock"},
            "reason": "to stock",
            "done": 0,
            "failed": 2,
        }
        handled = {"action": "handle", "filter": {"teams": ["sales", "stock"]}, "to": None, "reason": "spam"}
        assert second == {**handled, "done": 2, "failed": 0}


async def test_what_was_done_for_many_before_the_database_went_away_is_on_record(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        dead_letters = [await a_dead_letter(parts, sender=f"s{n}") for n in range(3)]
        async with held(database_url, dead_letters[1]):
            working = asyncio.create_task(service.bulk(OPERATOR, Bulk(DeadLetterFilter(), "handle", "spam")))
            await cut_off(parts, "%dead_letter set%")
            with pytest.raises(Unavailable):
                await working
        assert [row["status"] for row in await all_dead_letters(parts)] == ["handled", "pending", "pending"]
        [entry] = await _bulks_on_record(parts)
        assert (entry["reason"], entry["done"], entry["failed"]) == ("spam", 1, 0)


async def test_filters_leave_exactly_what_they_say(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        mail = await a_dead_letter(parts, channel="email")
        slack = await a_dead_letter(parts, channel="slack")
        await service.handle(OPERATOR, mail, "done")
        rows = {row["dead_letter_id"]: row for row in await all_dead_letters(parts)}

        async def found(**wanted: Any) -> list[UUID]:
            page, _ = await service.list(OPERATOR, DeadLetterFilter(**wanted), limit=10, cursor=None)
            return [dead_letter.dead_letter_id for dead_letter in page]

        assert await found() == [slack, mail]
        assert await found(channel="email") == [mail]
        assert await found(teams=("sales",)) == [slack]
        assert await found(status="pending") == [slack]
        assert await found(category="no_route", system_id="System1/echo") == []
        assert await found(since=rows[slack]["created_at"]) == [slack]
        assert await found(until=rows[slack]["created_at"]) == [mail]
        assert await found(ids=(mail,)) == [mail]
        page, _ = await service.list(SALES_HANDLER, DeadLetterFilter(), limit=10, cursor=None)
        assert [dead_letter.dead_letter_id for dead_letter in page] == [slack]


# Telling System4 --------------------------------------------------------------------------------------------------


async def test_a_hundred_dead_letters_are_twenty_notices_and_one_digest_and_each_is_told_once(
    database_url: str,
) -> None:
    async with opened(database_url) as (parts, _):
        maintenance = DeadLetterMaintenance(parts.database, parts.notifier, ())
        await many_dead_letters(parts, 100)
        await assert_balanced(parts)
        assert await maintenance.digest() == 80
        assert await maintenance.digest() == 0
        assert await parts.count("select count(*) from notice where dead_letters = 1") == 20
        assert await parts.count("select count(*) from notice where dead_letters > 1") == 1
        assert await parts.count("select count(*) from dead_letter where notice_lane is null") == 0
        await assert_balanced(parts)
        told: list[str] = []

        async def hear(turn: Turn, _: Journal) -> TurnResult:
            dead_letter = turn.dead_letter
            assert dead_letter is not None
            if "digest" in dead_letter:
                assert (dead_letter["dead_letters"], dead_letter["categories"]) == (80, {"no_route": 80})
                assert {one["text"] for one in dead_letter["digest"]} == {"hello"}
            told.extend(one["dead_letter_id"] for one in dead_letter.get("digest", [dead_letter]))
            return NoReply()

        await work_off(parts, Scripted(hear))
        assert sorted(told) == sorted(str(row["dead_letter_id"]) for row in await all_dead_letters(parts))
        await a_dead_letter(parts, sender="afterwards")
        assert await parts.count("select count(*) from notice where state = 'pending' and dead_letters = 1") == 1
        await assert_balanced(parts)


async def test_many_that_wait_are_told_in_bites_so_that_few_conversations_are_held_at_once(database_url: str) -> None:
    async with opened(database_url) as (parts, _):
        maintenance = DeadLetterMaintenance(parts.database, parts.notifier, ())
        await many_dead_letters(parts, 230)
        assert await store.digest(parts.database, "System4/root") == 200
        assert await maintenance.digest() == 10
        await many_dead_letters(parts, 410, "t")
        assert await maintenance.digest() == 410
        rows = await parts.database.rows(
            "select dead_letters from notice join lane on key = lane where conversation is null order by seq"
        )
        assert [row["dead_letters"] for row in rows] == [200, 420], "the one that is not next grows"
        await assert_balanced(parts)


async def test_a_digest_that_may_have_been_read_does_not_grow(database_url: str) -> None:
    async with opened(database_url) as (parts, _), a_hand(parts.database) as hand:
        maintenance = DeadLetterMaintenance(parts.database, parts.notifier, ())

        async def more(count: int, name: str) -> int:
            for n in range(count):
                await a_dead_letter(parts, sender=f"{name}{n}")
            return await maintenance.digest()

        assert await more(25, "a") == 5
        await hand.claim(0, 0, 0, 100)
        assert await parts.count("select count(*) from lane where conversation is null and state = 'running'") == 1
        assert await more(3, "b") == 3
        assert await more(4, "c") == 4
        rows = await parts.database.rows(
            "select seq, dead_letters from notice join lane on key = lane where conversation is null order by seq"
        )
        assert [(row["seq"], row["dead_letters"]) for row in rows] == [(1, 5), (2, 7)]
        await assert_balanced(parts)


async def test_a_dead_letter_that_was_closed_meanwhile_is_not_told(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        waiting = [await a_dead_letter(parts, sender=f"s{n}") for n in range(22)][20:]
        await service.handle(OPERATOR, waiting[0], "spam")
        assert await DeadLetterMaintenance(parts.database, parts.notifier, ()).digest() == 1
        rows = [row for row in await all_dead_letters(parts) if row["notice_lane"] is None]
        assert [row["dead_letter_id"] for row in rows] == [waiting[0]]
        assert (await audit_books(parts.database, patience_s=0)).balanced


async def test_who_waits_too_long_to_be_told_is_named(database_url: str) -> None:
    async with opened(database_url) as (parts, _):
        for n in range(21):
            await a_dead_letter(parts, sender=f"s{n}")
        problems = (await audit_books(parts.database, patience_s=0)).problems
        assert sum("has waited to be told to System4/root" in problem for problem in problems) == 1


# Telling the sender -----------------------------------------------------------------------------------------------


async def told(parts: Lab) -> list[dict[str, Any]]:
    """What was said to senders by nobody in particular."""
    rows = await parts.database.rows("select * from outbox where system_id = 'switchboard' order by created_at")
    return [dict(row) for row in rows]


async def test_the_sender_is_told_once_per_message_also_after_a_restart(database_url: str) -> None:
    twice = (rule(ROOT, [to(team="sales"), to("System4/root")], channel="telegram"),)
    async with lab(database_url, TEAMS, twice) as parts:
        accepted = await parts.accept.accept(submission(thread="chat-5"))
        assert len(await all_dead_letters(parts)) == 2
        both = [DeadLetterMaintenance(parts.database, parts.notifier, ()) for _ in range(2)]
        assert sum(await asyncio.gather(*(maintenance.tell_senders() for maintenance in both))) == 1
        assert await DeadLetterMaintenance(parts.database, parts.notifier, ()).tell_senders() == 0
        [reply] = await told(parts)
        assert (reply["text"], reply["state"], reply["thread"]) == (NOBODY_TEXT, "pending", "chat-5")
        assert reply["request_id"] == accepted.request_id
        assert await parts.database.value("select pool from lane where kind = 'send'") == pull_pool(
            "telegram", "bot:house"
        )
        assert all(row["sender_told_at"] is not None for row in await all_dead_letters(parts))
        await assert_balanced(parts)


def mail_of(sender: str, **headers: str) -> Submission:
    raw = {"headers": {"From": sender, **{name.replace("_", "-"): value for name, value in headers.items()}}}
    given = envelope_json(channel="email", sender=sender, raw=raw, endpoint="imap:me@example.org")
    return Submission(strict(Envelope, given), json.dumps(given).encode())


@pytest.mark.parametrize(
    "mail",
    [
        mail_of("list@example.org", List_Id="<all.example.org>"),
        mail_of("news@example.org", List_Unsubscribe="<https://example.org/off>"),
        mail_of("ann@example.org", Auto_Submitted="auto-replied"),
        mail_of("ann@example.org", Precedence="Bulk"),
        mail_of("ann@example.org", Return_Path="<>"),
        mail_of("MAILER-DAEMON@example.org"),
        mail_of("no-reply@example.org"),
        mail_of("Me <ME@example.org>"),
    ],
    ids=lambda mail: (
        json.loads(mail.raw)["sender"]["identity"] + str(list(json.loads(mail.raw)["payload"]["raw"]["headers"])[1:])
    ),
)
async def test_lists_and_machines_are_told_nothing(database_url: str, mail: Submission) -> None:
    async with opened(database_url) as (parts, _):
        await parts.accept.accept(mail)
        maintenance = DeadLetterMaintenance(parts.database, parts.notifier, ())
        assert await maintenance.tell_senders() == 0
        assert await told(parts) == []
        [row] = await all_dead_letters(parts)
        assert (row["sender_spared"], row["sender_told_at"]) == (True, None)
        await parts.accept.accept(mail_of("ann@example.org", Auto_Submitted="no"))
        assert await maintenance.tell_senders() == 1


async def test_a_mail_in_its_own_form_is_looked_at_as_well(database_url: str) -> None:
    from_list = b"From: a@example.org\r\nTo: me@example.org\r\nPrecedence: list\r\nMessage-ID: <1@x>\r\n\r\nhello"
    async with opened(database_url) as (parts, _):
        given = envelope_json(channel="email", sender="a@example.org", endpoint="me@example.org")
        await parts.accept.accept(Submission(strict(Envelope, given), from_list, "message/rfc822"))
        assert await DeadLetterMaintenance(parts.database, parts.notifier, ()).tell_senders() == 0
        assert await told(parts) == []


async def test_who_was_or_may_still_be_answered_is_told_nothing(database_url: str) -> None:
    both = (rule(ROOT, [to("System1/echo"), to(team="sales")]),)
    async with lab(database_url, TEAMS, both) as parts:
        maintenance = DeadLetterMaintenance(parts.database, parts.notifier, ())
        await parts.accept.accept(submission(channel="telegram"))
        assert await maintenance.tell_senders() == 0  # one of two may still answer
        await work_off(parts)
        assert await maintenance.tell_senders() == 0  # and has
        assert await told(parts) == []


async def test_whose_dead_letter_is_in_hand_is_told_nothing(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        maintenance = DeadLetterMaintenance(parts.database, parts.notifier, ())
        await service.handle(OPERATOR, await a_dead_letter(parts, sender="a"), "spam")
        await service.reroute(OPERATOR, await a_dead_letter(parts, sender="b"), to_butler("spare"))
        assert await maintenance.tell_senders() == 0


async def test_a_machine_that_answers_us_is_not_told_for_ever(database_url: str) -> None:
    async with opened(database_url) as (parts, _):
        maintenance = DeadLetterMaintenance(parts.database, parts.notifier, ())
        for _ in range(8):
            await parts.accept.accept(submission(channel="api", sender="robot"))
            await maintenance.tell_senders()
        assert len(await told(parts)) == 5
        assert await parts.count("select count(*) from dead_letter where sender_spared") == 3


async def test_a_machine_that_begins_anew_each_time_is_not_told_for_ever(database_url: str) -> None:
    """A mail without References is a conversation of its own."""
    async with opened(database_url) as (parts, _):
        maintenance = DeadLetterMaintenance(parts.database, parts.notifier, ())
        for n in range(8):
            for sender, endpoint in (
                ("robot@x.org", "me@y.org"),
                ("robot@x.org", "us@y.org"),
                ("ann@x.org", "me@y.org"),
            ):
                given = submission(channel="email", sender=sender, endpoint=endpoint, thread=f"mail-{n}")
                await parts.accept.accept(given)
        assert await maintenance.tell_senders() == 15
        said = [(row["recipient"], row["endpoint"]) for row in await told(parts)]
        assert {one: said.count(one) for one in said} == {
            ("robot@x.org", "me@y.org"): 5,
            ("robot@x.org", "us@y.org"): 5,
            ("ann@x.org", "me@y.org"): 5,
        }
        await parts.database.run("update outbox set created_at = created_at - interval '61 minutes'")
        await parts.accept.accept(submission(channel="email", sender="robot@x.org", endpoint="me@y.org", thread="late"))
        assert await maintenance.tell_senders() == 1
        await assert_balanced(parts)


async def test_of_a_message_without_a_dead_letter_nobody_is_told_and_no_lane_is_made(database_url: str) -> None:
    async with opened(database_url) as (parts, _):
        made = "select tell_sender(gen_random_uuid(), gen_random_uuid(), 'x', null)"
        assert await parts.database.value(made) is False
        assert not await parts.count("select count(*) from lane")


async def test_a_sender_with_the_longest_of_names_is_told(database_url: str) -> None:
    """More bytes than an entry of an index holds, and none of them twice."""
    names = ["".join(chr(0x10000 + (n * 7919 + start) % 60_000) for n in range(512)) for start in (0, 30_000)]
    async with opened(database_url) as (parts, _):
        await parts.accept.accept(submission(channel="api", sender=names[0], endpoint=names[1]))
        assert await DeadLetterMaintenance(parts.database, parts.notifier, ()).tell_senders() == 1


async def test_at_a_door_the_reply_is_there_at_once(database_url: str) -> None:
    async with opened(database_url) as (parts, _):
        request_id = await request_of(parts, await a_dead_letter(parts, channel="api"))
        assert await DeadLetterMaintenance(parts.database, parts.notifier, ()).tell_senders() == 1
        assert [row["state"] for row in await told(parts)] == ["sent"]
        assert await parts.replies_to(request_id) == [NOBODY_TEXT]
        await assert_balanced(parts)


async def test_told_and_answered_after_all(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        dead_letter = await a_dead_letter(parts, channel="email")
        await DeadLetterMaintenance(parts.database, parts.notifier, ()).tell_senders()
        await service.reroute(OPERATOR, dead_letter, to_butler("spare"))
        await work_off(parts)
        assert await parts.replies_to(await request_of(parts, dead_letter)) == [NOBODY_TEXT, "hello"]
        await assert_balanced(parts)


@pytest.mark.parametrize(("tell", "names"), [(True, {"tell_senders"}), (False, set[str]())])
async def test_senders_are_told_only_where_that_is_wanted(database_url: str, tell: bool, names: set[str]) -> None:
    async with opened(database_url) as (parts, _):
        made = maintenance_tasks(parts.database, parts.notifier, DeadLetterSettings(tell_sender=tell), ())
        assert {task.name for task in made} == {
            "expire_leases",
            "digest",
            "log_dead_letters",
            "empty_dead_letters",
            "make_partitions",
            "balance_books",
        } | names


# The log ----------------------------------------------------------------------------------------------------------


async def _fails(turn: Turn, _: Journal) -> TurnResult:
    if turn.dead_letter is not None:
        return NoReply()
    if turn.member.system_id == "System1/spare":
        return Refusal(f"I do not take {turn.envelope.payload.normalized_text}")
    raise EngineFailure(f"choked on {turn.envelope.payload.normalized_text}", error_class="overload")


def warnings_of(logs: Sequence[MutableMapping[str, Any]]) -> dict[str, MutableMapping[str, Any]]:
    """By their category what was logged of dead letters; none twice."""
    found = [entry for entry in logs if entry["event"] == "dead letter"]
    assert len({entry["dead_letter_id"] for entry in found}) == len(found)
    return {entry["category"]: entry for entry in found}


async def test_each_dead_letter_is_logged_once_however_it_came_about_and_without_what_was_written(
    database_url: str,
) -> None:
    """Accepted for nobody, by a rule of the rules, refused by a butler, given up, written by SQL alone."""
    to_spare = rule(ROOT, [to("System1/spare")], channel="discord")
    to_handler = rule(ROOT, [to("System4/root")], channel="matrix")
    async with lab(database_url, TEAMS, (*RULES, to_spare, to_handler)) as parts:
        both = [DeadLetterMaintenance(parts.database, parts.notifier, ()) for _ in range(2)]
        with capture_logs() as logs:
            nobody = await a_dead_letter(parts, text="my secret")
            for channel in ("telegram", "discord", "matrix"):
                await parts.accept.accept(submission("my secret", channel=channel))
            await work_off(parts, Scripted(_fails))
            await parts.database.run(
                "select write_dead_letters(array_agg((gen_random_uuid(), request_id, conversation, 'root', 'expired',"
                " 'too late', null, null, null, null, null, 1)::new_dead_letter)) from message_inbox"
                " where channel = 'telegram'"
            )
            assert sum(await asyncio.gather(*(maintenance.log() for maintenance in both))) == 5
            assert await both[0].log() == 0
        told = warnings_of(logs)
        assert {category: (entry["log_level"], entry["reason"]) for category, entry in told.items()} == {
            "no_route": ("warning", "no rule matches"),
            "dead_letter_rule": ("warning", told["dead_letter_rule"]["reason"]),
            "refused": ("warning", "refused"),
            "retry_exhausted": ("warning", "overload"),
            "expired": ("warning", "too late"),
        }
        assert to_handler.name in told["dead_letter_rule"]["reason"]
        assert (told["no_route"]["dead_letter_id"], told["no_route"]["team_id"]) == (str(nobody), "root")
        assert told["refused"]["system_id"] == "System1/spare"
        assert "secret" not in str(logs)


async def test_retries_are_logged_with_their_number_and_without_what_was_written(database_url: str) -> None:
    async with opened(database_url) as (parts, _):
        with capture_logs() as logs:
            accepted = await parts.accept.accept(submission("my secret"))
            await work_off(parts, Scripted(_fails))
        found = [entry for entry in logs if entry["event"] == "turn failed"]
        assert [(entry["attempt"], entry["error_class"]) for entry in found] == [(1, "overload"), (2, "overload")]
        assert {(entry["request_id"], entry["system_id"]) for entry in found} == {
            (str(accepted.request_id), "System1/echo")
        }
        assert "secret" not in str(logs)


async def test_what_could_not_be_logged_is_logged_later(database_url: str) -> None:
    """As if the process had died in the middle: once too often rather than never."""
    async with opened(database_url) as (parts, _):
        expected = {await a_dead_letter(parts, sender=f"s{n}") for n in range(3)}
        written: list[UUID] = []

        def write(report: Report) -> None:
            written.append(report.dead_letter_id)
            if len(written) == 2:
                raise OSError("no space left on device")

        with pytest.raises(Unavailable):
            await store.log(parts.database, 10, write)
        assert await store.log(parts.database, 10, write) == 3
        assert set(written[2:]) == expected
        assert await store.log(parts.database, 10, write) == 0


# Keeping ----------------------------------------------------------------------------------------------------------


async def test_old_handled_dead_letters_lose_what_they_keep_and_the_books_still_balance(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        old, fresh, pending = [await a_dead_letter(parts, sender=f"s{n}") for n in range(3)]
        await service.reroute(OPERATOR, old, to_butler("spare"))
        await service.handle(OPERATOR, fresh, "spam")
        await parts.database.run("update dead_letter set created_at = now() - interval '200 days'")
        await parts.database.run(
            "update dead_letter set handled_at = now() - interval '91 days' where dead_letter_id = $1", old
        )
        assert await DeadLetterMaintenance(parts.database, parts.notifier, ()).empty(90) == 1
        assert await DeadLetterMaintenance(parts.database, parts.notifier, ()).empty(90) == 0
        emptied = await service.get(OPERATOR, old)
        assert (emptied.payload, emptied.raw_base64, emptied.emptied_at is not None) == ({}, "", True)
        assert (await service.get(OPERATOR, fresh)).payload["sender"]["identity"] == "s1"
        assert (await service.get(OPERATOR, pending)).raw_base64 != ""
        assert (await service.reroute(OPERATOR, old, to_butler("spare"))).already
        await assert_balanced(parts)
