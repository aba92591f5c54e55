"""Dead letters in the hands of operators and System4s: who may, what is closed, rules made of them, many at once."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from msgspec.structs import replace

from switchboard.app.access import Principal
from switchboard.app.dead_letters.requests import Bulk, Reroute, RuleWish
from switchboard.app.ops.maintenance import DeadLetterMaintenance
from switchboard.domain.errors import Conflict, Forbidden, InvalidInput, NotFound, Unavailable
from switchboard.domain.routing import SystemId, Target
from switchboard.store.books import audit_books
from switchboard.store.messages.dead_letters import DeadLetterFilter
from tests.dead_letters import (
    HANDLER,
    OPERATOR,
    RULES,
    SALES,
    SALES_HANDLER,
    WHY,
    a_dead_letter,
    add_rule,
    cut_off,
    held,
    opened,
    to_butler,
)
from tests.hands import all_dead_letters, assert_balanced
from tests.lab import ROOT, Lab, submission, to

CONTROL = Principal("agent", "control", system_id="System3/root")


WORKER = Principal("agent", "echo", system_id="System1/echo")


CONNECTOR = Principal("connector", "bot", "telegram", "bot:house")


async def refusals(parts: Lab) -> int:
    return await parts.count("select count(*) from audit where action = 'refused:dead_letters'")


# Closing --------------------------------------------------------------------------------------------------------------


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


async def test_a_dead_letter_without_its_message_is_shown_and_closed_but_unsent(
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


# Who may --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("caller", [SALES_HANDLER, WORKER, CONNECTOR], ids=lambda caller: caller.name)
async def test_only_its_handlers_see_or_change_a_dead_letter(database_url: str, caller: Principal) -> None:
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


async def test_a_system3_handles_the_dead_letters_of_its_team(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        dead_letter = await a_dead_letter(parts)
        [listed], _ = await service.list(CONTROL, DeadLetterFilter(), limit=5, cursor=None)
        assert listed.dead_letter_id == dead_letter
        done = await service.handle(CONTROL, dead_letter, "seen to")
        assert (done.dead_letter.status, done.dead_letter.handled_by_system_id) == ("handled", "System3/root")


async def test_a_system4_sends_on_to_its_own_team_and_below_only(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        dead_letter = await a_dead_letter(parts, channel="slack")
        for outside in (to("System1/spare"), to("root")):
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


async def test_a_bulk_reroute_beyond_the_reach_is_one_audited_refusal(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        for n in range(6):
            await a_dead_letter(parts, channel="slack", sender=f"s{n}")
        away = Bulk(DeadLetterFilter(), "reroute", "away", to("System1/spare"))
        for order in (away, replace(away, dry_run=True)):
            with pytest.raises(Forbidden) as caught:
                await service.bulk(SALES_HANDLER, order)
            assert caught.value.field == "to"
        rows = await parts.database.rows("select action, detail from audit order by audit_id")
        assert [row["action"] for row in rows] == ["refused:dead_letters"] * 2
        assert rows[0]["detail"] == {"role": "agent", "teams": ["sales", "stock"], "to": "System1/spare"}
        with pytest.raises(InvalidInput, match="does not exist or cannot be reached") as unknown:
            await service.bulk(OPERATOR, replace(away, to=to("System1/gone")))
        assert (unknown.value.code, unknown.value.field) == ("unknown_target", "to")


async def test_of_many_those_of_a_lower_team_fail_and_are_one_row_on_record(database_url: str) -> None:
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
        assert await parts.count("select count(*) from audit where action <> 'dead_letters:bulk_begun'") == 1


# A rule of it ---------------------------------------------------------------------------------------------------------


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


async def test_a_rule_that_would_not_decide_its_own_dead_letter_is_not_made(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        dead_letter = await a_dead_letter(parts, sender="ann@example.org")
        handler = Target(system_id=SystemId("System4/root"))
        await add_rule(parts, ROOT, [handler], "email", priority=2)
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


async def test_a_repeated_reroute_with_another_rule_is_refused(database_url: str) -> None:
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
async def test_a_rule_without_a_filter_would_match_everybody_and_is_not_made(
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


async def test_a_rule_needs_a_target_even_if_the_rules_would_decide(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        dead_letter = await a_dead_letter(parts, channel="slack")
        await add_rule(parts, SALES, [to("System1/seller")], "slack")
        with pytest.raises(InvalidInput) as caught:
            await service.reroute(OPERATOR, dead_letter, Reroute("why", rule=RuleWish("r", ["sender"])))
        assert (caught.value.code, caught.value.field) == ("invalid_input", "to")
        assert await parts.count("select count(*) from delivery") == 0
        assert not (await service.reroute(OPERATOR, dead_letter, WHY)).already, "somebody would have taken it"


@pytest.mark.parametrize("goes_on", ["with it", "without"])
async def test_after_a_failed_reroute_another_rule_is_refused_naming_the_first(database_url: str, goes_on: str) -> None:
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


# Many -----------------------------------------------------------------------------------------------------------------


async def test_many_are_done_one_by_one_and_what_fails_stays(database_url: str) -> None:
    async with opened(database_url) as (parts, service):
        for n in range(7):
            await a_dead_letter(parts, sender=f"s{n}", channel="email")
        for n in range(3):
            await a_dead_letter(parts, sender=f"s{n}", channel="slack")
        order = Bulk(DeadLetterFilter(), "reroute", "stock knows", to("stock"))
        looked = await service.bulk(OPERATOR, replace(order, dry_run=True))
        assert (looked.matched, looked.done, len(looked.failed), looked.dry_run) == (10, 7, 3, True)
        assert await parts.count("select count(*) from delivery") == 0
        done = await service.bulk(OPERATOR, order)
        assert (done.matched, done.done, done.next_cursor) == (10, 7, None)
        assert {failure.code for failure in done.failed} == {"nobody_takes_it"}
        again = await service.bulk(OPERATOR, order)
        assert (again.matched, again.done) == (3, 0)
        assert await parts.count("select count(*) from delivery") == 7
        await assert_balanced(parts)


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
        order = Bulk(DeadLetterFilter(category="no_route", ids=dead_letters), "reroute", "to stock", to("stock"))
        await service.bulk(SALES_HANDLER, replace(order, dry_run=True))
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


# Keeping --------------------------------------------------------------------------------------------------------------


async def test_old_handled_dead_letters_lose_their_content_and_the_books_balance(database_url: str) -> None:
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
