"""The books: a sound ledger balances, and each thing broken on purpose is named."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

import pytest

from switchboard.domain.ledger import EMPTY_BALANCE
from switchboard.ports.channel import Receipt
from switchboard.ports.engine import Journal, Refusal, Turn, TurnResult
from switchboard.store.books import (
    Books,
    DayBooks,
    DeliveryTally,
    Outcomes,
    audit_books,
    balance_books,
    check_books,
    kept_books,
    outcomes_of,
    tallies,
)
from switchboard.store.database import Database
from switchboard.store.messages import outbox
from switchboard.store.messages.outbox import pull_pool
from switchboard.testing.echo import Echo
from tests.hands import Scripted, at_work, settled
from tests.lab import Lab, butler, lab, rule, submission, team_of
from tests.postgres import AN_ID
from tests.waiting import eventually

RULES = (rule("System1/echo", channel="telegram"), rule("System1/echo", channel="api"))


@asynccontextmanager
async def worked(url: str) -> AsyncIterator[Lab]:
    """Two answered messages, one that waits, one for nobody; the worker has gone."""
    async with lab(url, rules=RULES) as made:
        await made.accept.accept(submission("a", channel="telegram", sender="a"))
        await made.accept.accept(submission("b", channel="api", sender="b"))
        await made.accept.accept(submission("c", channel="email", sender="c"))
        await answered(made)
        await made.accept.accept(submission("d", channel="telegram", sender="d"))
        yield made


async def answered(made: Lab) -> None:
    worker = made.worker({"echo": Echo()})
    running = asyncio.create_task(worker.run())

    async def done() -> bool:
        return await made.count("select count(*) from lane where kind <> 'send' and state <> 'idle'") == 0

    await eventually(done)
    worker.stop()
    await running


async def aged(database: Database, days: int) -> date:
    """Let all that was accepted be accepted so many days ago; returns that day."""
    await database.run("select make_partitions(now() - $1::interval, now())", timedelta(days=days))
    older = (
        f"lpad(to_hex(('x' || left(replace(request_id::text, '-', ''), 12))::bit(48)::bigint - {days * 86_400_000}), "
        "12, '0') || right(replace(request_id::text, '-', ''), 20)"
    )
    for table in ("message_inbox", "decision", "delivery", "attempt", "outbox", "dead_letter", "notice", "dedupe"):
        await database.run(f"update {table} set request_id = ({older})::uuid")  # noqa: S608 - constants
    first = await database.value("select min(request_id::text) from message_inbox")
    return datetime.fromtimestamp((UUID(first).int >> 80) / 1000, UTC).date()


async def test_a_sound_ledger_balances(database_url: str) -> None:
    async with worked(database_url) as made:
        books = await audit_books(made.database)
        assert books == Books(
            replace(EMPTY_BALANCE, accepted=4, in_flight=1, answered=2, dead=1),
            replace(EMPTY_BALANCE, accepted=4, in_flight=1, answered=2, dead=1),
            (),
        )
        assert books.balanced


async def test_a_lease_and_receipts_are_sound_as_well(database_url: str) -> None:
    async with worked(database_url) as made:
        pool = pull_pool("telegram", "bot:house")
        [reply] = await outbox.lease(made.database, pool, limit=5, lease_s=60, idempotent=False)
        assert (await audit_books(made.database)).problems == ()
        await outbox.settle_send(made.database, None, reply.lane, reply.lease, reply.seq, Receipt("sent"))
        assert (await audit_books(made.database)).problems == ()


NOWHERE = UUID(int=0)
LANES = {
    "PENDING": "(select lane from delivery where state = 'pending')",
    " X,": f" '{NOWHERE}'::uuid,",
    "ANSWERED": "(select lane from delivery where state = 'answered' limit 1)",
}

WAITS = "insert into routing select X, 1, request_id, null, '{}'"
WAITS_NOWHERE = "insert into routing select X, 1, gen_random_uuid(), null, '{}'"

BREAKS = (
    ("delete from decision", "has no decision"),
    ("update decision set branches = 2", "was decided to go 2 ways, and 1 are on the books"),
    ("delete from delivery where state = 'pending'", "was decided to go 1 ways, and 0 are on the books"),
    ("delete from delivery where state = 'pending'", "waits for item 1, which does not exist"),
    ("delete from message_inbox", "is not in the inbox"),
    ("delete from message_inbox where channel = 'email'", "dead letter"),
    ("update lane set done_seq = 1 where key = PENDING", "is pending, but its lane is already at 1"),
    ("update lane set done_seq = 0 where key = ANSWERED", "is answered, but its lane is only at 0"),
    ("delete from lane where key = PENDING", "has no lane"),
    ("update delivery set seq = 9 where state = 'pending'", "waits for item 1, which does not exist"),
    ("update delivery set seq = 9 where state = 'answered'", "is only at 1"),
    ("delete from attempt", "is answered without a turn that says so"),
    ("delete from outbox", "but 0 of its 1 replies are in the outbox"),
    ("update delivery set state = 'dead', settled_at = now() where state = 'answered'", "but there is no dead letter"),
    ("delete from notice", "but there is no notice"),
    ("update notice set dead_letters = 2", "tells of 2 dead letters, and 1 are on the books"),
    ("update dead_letter set rerouted_n = 2", "was rerouted by decision 2, but is still pending"),
    ("update dead_letter set emptied_at = now()", "was emptied before anybody handled it"),
    ("update dead_letter set status = 'handled'", "is handled, but nobody says when"),
    (
        "update dead_letter set status = 'handled', handled_at = now(), rerouted_n = 2",
        "was rerouted by decision 2 of message",
    ),
    (
        'insert into decision select request_id, 2, version, 0, \'[{"reason": "reroute"}]\', now() '
        "from decision limit 1",
        "rerouted a dead letter, and none says so",
    ),
    (
        "update dead_letter set notice_lane = null, created_at = now() - interval '1 hour'",
        "has waited to be told to System4/root",
    ),
    ("update outbox set state = 'sending', seq = 0", "is sending, but its lane is already at"),
    ("update lane set state = 'idle' where key = PENDING", "is idle with 1 items waiting"),
    ("update lane set state = 'ready' where key = ANSWERED", "is ready, but nothing is in it"),
    ("update lane set done_seq = 7 where key = PENDING", "is at 7, beyond its end (1)"),
    (
        "update lane set state = 'running', owner = 4711 where key = PENDING",
        "runs on worker 4711, who is not registered",
    ),
    ("update lane set state = 'running' where key = PENDING", "belongs to nobody and has no lease"),
    (
        "update lane set state = 'running', lease_until = now() - interval '1 hour' where key = PENDING",
        "has a lease that ran out",
    ),
    ("update lane set state = 'paused' where key = PENDING", "is paused with 1 items waiting"),
    (
        f"{WAITS}, 'pending', now() from decision limit 1",
        f"waits to be routed ({NOWHERE} #1), but is decided already",
    ),
    (
        f"{WAITS}, 'routed', now() from decision limit 1",
        f"waits to be routed in {NOWHERE}, which does not exist",
    ),
    (f"{WAITS_NOWHERE}, 'routed', now()", f"waiting {NOWHERE} #1 belongs to message"),
    ("update lane set ready_at = now() - interval '1 hour' where key = PENDING", "has waited for a worker since"),
)


@pytest.mark.parametrize(("damage", "sentence"), BREAKS)
async def test_what_is_broken_is_named(database_url: str, damage: str, sentence: str) -> None:
    async with worked(database_url) as made:
        for name, lane in LANES.items():
            damage = damage.replace(name, lane)
        day = await aged(made.database, 3)
        tag = await made.database.run(damage)
        assert not tag.endswith(" 0"), "the damage did nothing"
        days: list[DayBooks] = []
        problems = (await audit_books(made.database, told=days.append)).problems
        assert any(sentence in problem for problem in problems), problems
        if "gen_random_uuid() from" not in damage and "gen_random_uuid(), null" not in damage:
            no_messages = damage == "delete from message_inbox"
            assert {one.day for one in days if one.books.problems} <= {days[-1].day if no_messages else day}


async def test_past_days_are_checked_in_turn(database_url: str) -> None:
    async with worked(database_url) as made:
        old = await aged(made.database, 2)
        await made.database.run("delete from attempt")
        await made.accept.accept(submission("e", channel="telegram", sender="e"))
        found = [await check_books(made.database) for _ in range(4)]
        assert [one.recent.messages.accepted for one in found] == [1] * 4
        assert [one.recent.problems for one in found] == [()] * 4
        checked = [one.past for one in found if one.past is not None]
        days = [one.day for one in checked]
        assert days[:2] == [old, old + timedelta(days=1)]
        assert days[2:] == days[:2]
        for one in checked:
            said = [problem for problem in one.books.problems if "without a turn that says so" in problem]
            assert len(said) == (2 if one.day == old else 0)


async def test_what_is_open_is_checked_however_old_it_is(database_url: str) -> None:
    async with worked(database_url) as made:
        await aged(made.database, 40)
        await made.database.run(f"update lane set state = 'idle' where key = {LANES['PENDING']}")  # noqa: S608 - a constant
        problems = (await check_books(made.database)).recent.problems
        assert any("is pending, but its lane is idle" in problem for problem in problems), problems


async def test_a_worker_writes_down_what_others_read(database_url: str) -> None:
    async with worked(database_url) as made:
        database = made.database
        never = await kept_books(database)
        assert (never.books.messages.accepted, never.at, never.stale) == (0, None, True)
        old = await aged(database, 12)
        while await database.value("select count(*) from book where kind = 'targets'") < 13:
            await balance_books(database)
        kept = await kept_books(database)
        assert kept.books == await audit_books(database)
        assert not kept.stale
        assert (await check_books(database)).unbalanced == ()
        await database.run("delete from delivery where state = 'answered'")
        await database.run("update book set checked_at = 'epoch' where day = $1", old)
        await database.run("update balance set at = at - interval '6 min'")
        assert (await kept_books(database)).stale
        await balance_books(database)
        lost = await kept_books(database)
        assert (lost.books.messages.difference, lost.books.targets.difference, lost.stale) == (2, 2, False)
        assert (await check_books(database)).unbalanced == (old,)


@pytest.mark.parametrize(
    ("damage", "messages", "targets"),
    [
        ("delete from delivery where state = 'pending'", 1, 1),
        ("delete from dead_letter", 1, 1),
        ("delete from message_inbox where channel = 'api'", 0, 0),
        (
            "insert into dead_letter select gen_random_uuid(), conversation, request_id, team_id, channel, payload, "
            "raw, category, reason, null, null, system_id, handler, received_at, created_at from dead_letter",
            0,
            -1,
        ),
    ],
)
async def test_what_is_lost_or_doubled_shows_in_the_balance(
    database_url: str, damage: str, messages: int, targets: int
) -> None:
    async with worked(database_url) as made:
        await made.database.run(damage)
        books = await audit_books(made.database)
        assert (books.messages.difference, books.targets.difference) == (messages, targets)
        assert books.balanced is (messages == 0 and targets == 0)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        ("update lane set done_seq = 1, state = 'idle' where kind = 'route'", "waits to be routed, but route:"),
        ("update lane set last_seq = 0, state = 'idle' where kind = 'route'", "beyond the end of its lane (0)"),
        ("update routing set state = 'routed'", "is routed as route:"),
        ("delete from routing", "waits for item 1, which does not exist"),
        ("delete from routing", "has no decision"),
        ("delete from lane where kind = 'route'", "which does not exist"),
    ],
)
async def test_what_is_broken_about_a_waiting_message_is_named(database_url: str, damage: str, sentence: str) -> None:
    asking = [team_of(butler("echo"), classify=True)]
    async with lab(database_url, asking, [], classifying=True) as made:
        await made.accept.accept(submission("x"))
        sound = await audit_books(made.database)
        waiting = replace(EMPTY_BALANCE, accepted=1, in_flight=1)
        assert sound == Books(waiting, waiting, ())
        assert not (await made.database.run(damage)).endswith(" 0")
        problems = (await audit_books(made.database)).problems
        assert any(sentence in problem for problem in problems), problems


async def test_an_audit_of_a_large_ledger_takes_few_passes(database_url: str) -> None:
    """No statement looks once per row: 20,000 deliveries are audited in seconds, not minutes."""
    async with lab(database_url, rules=RULES) as made:
        await _many(made.database, 20_000)
        async with asyncio.timeout(20):
            books = await audit_books(made.database)
        assert books.messages.accepted == 20_000
        assert books.balanced


async def _many(database: Database, count: int) -> None:
    for statement in (
        """insert into message_inbox select AN_ID, gen_random_uuid(), 'api', 'e', 's', null, '{}',
           'application/json', now() from generate_series(1, $1) n""".replace("AN_ID", AN_ID),
        "insert into decision select request_id, 1, 1, 1, '[]', now() from message_inbox limit $1",
        """insert into delivery select lane_key('turn', 'System1/echo', conversation), 1, request_id,
           'System1/echo', 'root', 0, 'pending', null, now(), null from message_inbox limit $1""",
        "insert into lane (key, kind, pool, tier, last_seq, state) select lane, 'turn', 'work', 2, 1, 'ready' "
        "from delivery limit $1",
    ):
        await database.run(statement, count)
    await database.run("analyze")


async def test_what_became_of_the_messages_of_a_day_is_counted(database_url: str) -> None:
    """By a rule, by no rule, and by a rule to a butler that refuses: two of three are dead letters."""
    today = datetime.now(UTC).date()

    async def refuse(_: Turn, __: Journal) -> TurnResult:
        return Refusal("not mine")

    teams = (team_of(butler("echo"), butler("sulk", "sulk")),)
    rules = (rule("System1/echo", channel="telegram"), rule("System1/sulk", channel="slack"))
    async with lab(database_url, teams, rules) as parts:
        assert await outcomes_of(parts.database, today) == Outcomes()
        for channel in ("telegram", "slack", "email"):
            await parts.accept.accept(submission(channel=channel))
        async with at_work(parts.worker({"echo": Echo(), "sulk": Scripted(refuse)})):
            await eventually(lambda: settled(parts))
        await balance_books(parts.database)
        assert await outcomes_of(parts.database, today) == Outcomes(routed=1, classified=0, dead=2)
        assert await outcomes_of(parts.database, today - timedelta(days=1)) == Outcomes()


@pytest.mark.parametrize("days", [0, 1, 2, 40])
async def test_what_butlers_have_done_is_counted_however_long_ago(database_url: str, days: int) -> None:
    """With books that were never balanced, that are up to date, and that no worker has balanced for days."""
    async with worked(database_url) as made:
        database, done = made.database, {"System1/echo": DeliveryTally(answered=2, in_flight=1)}
        await aged(database, days)
        assert await tallies(database) == done
        while await database.value("select count(*) from book where kind = 'targets'") <= days:
            await balance_books(database)
        assert await tallies(database) == done
        for away in range(3):
            await database.run("delete from book where day > current_date - $1::integer", away)
            await database.run("delete from tally where day >= current_date - $1::integer", away)
            assert await tallies(database) == done


async def test_what_was_done_long_ago_is_not_counted_again(database_url: str) -> None:
    async with worked(database_url) as made:
        database = made.database
        await aged(database, 3)
        await balance_books(database)
        await database.run("delete from delivery")
        assert await tallies(database) == {"System1/echo": DeliveryTally(answered=2)}


async def test_a_day_whose_end_no_worker_has_seen_is_counted_first_of_all(database_url: str) -> None:
    async with worked(database_url) as made:
        database = made.database
        await aged(database, 17)
        await made.accept.accept(submission("e", channel="api", sender="e"))
        await answered(made)
        await aged(database, 3)
        while await database.value("select count(*) from book where kind = 'targets'") < 21:
            await balance_books(database)
        done = await tallies(database)
        assert done["System1/echo"].answered >= 3
        # As it is when the worker is back after three days; all days before have been counted in turn.
        left = "current_date - 3"
        await database.run(f"update book set checked_at = day + interval '25 h' where day < {left}")  # noqa: S608 - a constant
        await database.run(f"update book set checked_at = day + interval '23 h' where day = {left}")  # noqa: S608
        await database.run(f"delete from tally where day = {left}")  # noqa: S608
        await balance_books(database)
        assert await tallies(database) == done
