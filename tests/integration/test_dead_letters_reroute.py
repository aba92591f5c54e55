"""Dead letters that are sent on: to a butler, to a team, by the rules; several at once, and cut off halfway."""

from __future__ import annotations

import asyncio
import contextlib

import asyncpg
import pytest

from switchboard.app.dead_letters.requests import Bulk, Reroute
from switchboard.app.ops.maintenance import DeadLetterMaintenance
from switchboard.domain.errors import Conflict, InvalidInput, Unavailable
from switchboard.ports.engine import Answer, Journal, NoReply, Refusal, Turn, TurnResult
from switchboard.store.messages import dead_letters as store
from switchboard.store.messages.dead_letters import DeadLetterFilter
from tests.dead_letters import (
    HANDLER,
    OPERATOR,
    SALES,
    SALES_HANDLER,
    TEAMS,
    WHY,
    a_dead_letter,
    add_rule,
    cut_off,
    held,
    opened,
    request_of,
    service_of,
    to_butler,
    work_off,
)
from tests.hands import Scripted, all_dead_letters, assert_balanced, at_work, settled
from tests.lab import ROOT, lab, rule, submission, to

# Rerouting ------------------------------------------------------------------------------------------------------------


async def test_a_dead_letter_sent_to_a_butler_is_answered_and_its_path_recorded(database_url: str) -> None:
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


async def test_the_deliveries_of_a_reroute_are_found_by_its_decision_number(database_url: str) -> None:
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


async def test_without_a_receiver_current_rules_decide_from_its_own_team_down(
    database_url: str,
) -> None:
    async with opened(database_url) as (parts, service):
        dead_letter = await a_dead_letter(parts, channel="slack")
        await add_rule(parts, SALES, [to("System1/seller")], "slack")
        await add_rule(parts, ROOT, [to("System1/spare")], "slack", priority=9)
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
        done = await service.reroute(OPERATOR, dead_letter, Reroute("stock knows", to("stock")))
        assert [(d.system_id, d.team_id) for d in done.deliveries] == [("System1/keeper", "stock")]


async def test_repeated_it_says_what_was_done_and_delivers_nothing_again(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        dead_letter = await a_dead_letter(parts)
        first = await service.reroute(OPERATOR, dead_letter, to_butler("spare"))
        again = await service.reroute(HANDLER, dead_letter, to_butler("spare"))
        assert again.already
        assert (again.decision_n, again.deliveries) == (first.decision_n, first.deliveries)
        assert await parts.count("select count(*) from delivery") == 1


async def test_a_repeated_reroute_to_another_receiver_says_where_it_went(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        dead_letter, by_rules = await a_dead_letter(parts), await a_dead_letter(parts, channel="api")
        await service.reroute(OPERATOR, dead_letter, to_butler("spare"))
        await add_rule(parts, ROOT, [to("System1/spare")], "api")
        assert not (await service.reroute(OPERATOR, by_rules, WHY)).already
        for which in (dead_letter, by_rules):
            assert (await service.reroute(HANDLER, which, WHY)).already, "who names nobody misses nobody"
        others = (
            (dead_letter, to_butler("echo"), "to System1/spare"),
            (dead_letter, Reroute("stock knows", to("stock")), "to System1/spare"),
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
            await service.reroute(OPERATOR, dead_letter, Reroute("why", to("nowhere")))
        assert await all_dead_letters(parts) == before
        assert await parts.count("select count(*) from decision") == 1


async def test_a_butler_that_had_the_message_does_not_get_it_again(database_url: str) -> None:
    """One of two butlers answered, the other refused: the dead letter goes to a third, never to the first once more."""

    async def play(turn: Turn, _: Journal) -> TurnResult:
        if turn.member.name == "seller":
            return Refusal("not mine")
        return NoReply() if turn.dead_letter is not None else Answer("done")

    both = (rule("System1/echo", "sales"), rule("System1/seller", team=SALES))
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


async def test_a_butler_that_refuses_again_leaves_another_dead_letter(database_url: str) -> None:
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


async def test_what_still_has_no_taker_is_a_new_dead_letter_beside_what_has_one(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        dead_letter = await a_dead_letter(parts, channel="api")
        await add_rule(parts, ROOT, [to("System1/spare"), to("sales")], "api")
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
        done = await service.reroute(OPERATOR, dead_letter, Reroute("stock knows", to("stock")))
        assert [d.system_id for d in done.deliveries] == ["System1/keeper"]


# All at once, and in the middle of it ---------------------------------------------------------------------------------


async def test_of_reroute_and_handle_at_once_one_wins_and_the_other_is_told(database_url: str) -> None:
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


async def test_of_two_receivers_at_once_one_gets_it_and_the_loser_is_told(database_url: str) -> None:
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


async def test_two_dead_letters_of_one_message_sent_at_once_deliver_once(database_url: str) -> None:
    twice = (rule("sales", "System4/root", channel="telegram"),)
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
