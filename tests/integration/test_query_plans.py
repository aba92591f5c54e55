"""What runs for every message reads by index, however much has been stored: seen in the server's own counters.

The counters see into functions, which EXPLAIN does not. One connection only, so that they are complete when read: what
another one has counted may come seconds later, and count as what is looked at then.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final
from uuid import UUID

import pytest
from msgspec import structs

from switchboard.core.policy.budget import Amount, SenderCaps
from switchboard.core.policy.liveness import LivenessPolicy
from switchboard.core.turns.asking import ChatCommand
from switchboard.domain.ledger import Item, OutboxRow, OutboxState
from switchboard.domain.message import Conversation, Message, Named, RequestId
from switchboard.domain.routing import (
    Chosen,
    Decision,
    RuleChange,
    SystemId,
    Target,
    TeamId,
    TrailStep,
    Unrouted,
)
from switchboard.domain.shown import ShownState
from switchboard.lanes import kinds
from switchboard.ports.channel import Receipt
from switchboard.store import lookup, traces
from switchboard.store.connectors import standing
from switchboard.store.database import SQL, Database, query
from switchboard.store.ids import new_uuid7
from switchboard.store.memory import facts
from switchboard.store.messages import chats, conversations, dead_letters, inbox, outbox, searching
from switchboard.store.messages.dead_letters import DeadLetterFilter, DeadLetterHandling
from switchboard.store.messages.searching import IdRange, MessageFilter
from switchboard.store.models import classification, classification_log
from switchboard.store.models import usage as model_usage
from switchboard.store.models.classification import Reservation
from switchboard.store.models.classification_log import ClassificationFilter, Correction, LogScope, Sending
from switchboard.store.models.usage import UsagePeriod
from switchboard.store.rules import remote_agents
from switchboard.store.rules import versions as rules
from switchboard.store.rules.replay import cases_since, count_cases
from switchboard.store.work import approvals, butlers, deltas, lanes, ledger, maintenance, pulse, routing, status
from switchboard.store.work.lanes import NewDeadLetter, Settlement
from switchboard.store.work.routing import Routed
from switchboard.store.work.steps import Step, StepWrite, forget_events, load_steps, write_steps
from switchboard.testing.engines import a_turn
from tests.hands import a_hand, pass_through
from tests.lab import ROOT, butler, lab, message
from tests.postgres import AN_ID, Postgres

GROWING: Final = (
    *(
        "message_inbox",
        "message_raw",
        "conversation",
        "dedupe",
        "decision",
        "lane",
        "delivery",
        "attempt",
        "step",
        "outbox",
        "receipt",
    ),
    *("dead_letter", "notice", "memo", "routing", "classification", "route_call", "session_token", "model_flow"),
    *("entry", "summary", "fact", "fact_source", "forgotten"),
    *("awaited", "approval", "parked"),
)
SYSTEM4 = SystemId("System4/root")
PULL = "pull:telegram:bot"

FILL = """
insert into conversation
select conversation_key('telegram/bot/' || n), 'telegram/bot/' || n from generate_series(0, 1199) n;
insert into message_inbox
select AN_ID, conversation_key('telegram/bot/' || n % 1200), 'telegram', 'bot', 'sender' || n % 1200, null,
       '{"event": {"external_event_id": "e"}}', 'application/json', now() from generate_series(1, 6000) n;
insert into message_raw select request_id, '\\x789c030000000001' from message_inbox;
insert into dedupe select gen_random_uuid(), gen_random_uuid(), request_id from message_inbox;
insert into decision select request_id, 1, 1, 1, '[]', now(), '{}' from message_inbox;
insert into lane (key, kind, system_id, conversation, pool, tier, epoch, last_seq, done_seq, state, ready_at)
select lane_key(k.kind, k.system_id, c.conversation), k.kind, k.system_id, c.conversation, k.pool,
       coalesce(k.tier, c.n % 4), 7, 5, case when c.n < 100 and k.kind <> 'notice' then 4 else 5 end,
       case when c.n < 100 and k.kind <> 'notice' then 'ready' else 'idle' end, now() - interval '1 s'
from (select conversation, split_part(name, '/', 3)::int as n from conversation) c
cross join (values
    ('turn', 'System1/echo', 'work', null), ('send', null, 'pull:telegram:bot', 1), ('route', null, 'route', 2),
    ('notice', 'System4/root', 'work', 1)) as k (kind, system_id, pool, tier);
insert into delivery (lane, seq, request_id, system_id, team_id, state, created_at)
select lane_key('turn', 'System1/echo', conversation), row_number() over (partition by conversation), request_id,
       'System1/echo', 'root', 'answered', now() from message_inbox;
update delivery d set state = 'pending' from lane l where l.key = d.lane and d.seq > l.done_seq;
insert into routing (lane, seq, request_id, facts, state, created_at)
select lane_key('route', null, conversation), row_number() over (partition by conversation), request_id, '{}',
       'routed', now() from message_inbox;
update routing r set state = 'pending' from lane l where l.key = r.lane and r.seq > l.done_seq;
delete from decision d using routing r where r.request_id = d.request_id and r.state = 'pending';
insert into entry select lane, seq, request_id, 'user', 'ann', true, 'text', null, now() from delivery;
insert into attempt select request_id, lane, seq, 1, 'answered', null, null, 'echo', 1, now(), now() from delivery;
insert into step
select request_id, lane, seq, 's', 'idempotent', 'done', request_id, 1, '1', 0, 0, null, now(), now() from delivery;
insert into outbox select lane_key('send', null, m.conversation), d.seq, md5('o' || request_id)::uuid, request_id,
       d.system_id, 'telegram', 'bot', null, 'x', 'e', 'text',
       case when d.state = 'pending' then 'pending' else 'sent' end,
       false, null, null, now(), now() from delivery d join message_inbox m using (request_id);
insert into awaited (key, lane, seq, request_id, path, deadline_at, decided_at, result)
select md5('p' || request_id)::uuid, lane, seq, request_id, 'approval:1', now() + interval '1 day',
       case when state = 'answered' then now() end,
       case when state = 'answered' then '{"value": {"decision": "approved"}}'::json end
from delivery;
insert into parked select gen_random_uuid(), n, 0, null, now(), null from generate_series(1, 6000) n;
insert into approval
select md5('p' || request_id)::uuid, created_at - seq * interval '1 s',
       case when seq % 2 = 0 then 'call' else 'question' end, system_id, 'pay', '{}', 'x', 'x', 'readers ' || lane,
       md5('o' || request_id)::uuid from delivery;
insert into receipt select request_id, outbox_id, 1, 'sent', null, null, now() from outbox;
insert into dead_letter (dead_letter_id, conversation, request_id, team_id, channel, payload, raw, category, reason,
                         received_at, created_at)
select md5('d' || request_id)::uuid, conversation, request_id, 'root', 'telegram', '{}', '', 'no_route', 'x', now(),
       now() from message_inbox;
insert into notice (lane, seq, dead_letter_id, request_id, team_id, system_id, state, created_at)
select lane_key('notice', 'System4/root', m.conversation), d.seq, md5('d' || request_id)::uuid, request_id, 'root',
       'System4/root', 'delivered', now() from delivery d join message_inbox m using (request_id);
update dead_letter x set notice_lane = n.lane, notice_seq = n.seq from notice n
where n.dead_letter_id = x.dead_letter_id;
update dead_letter x set status = 'handled', handled_by_system_id = 'olga', resolution = 'spam', payload = '{}',
       handled_at = now() - interval '200 days',
       emptied_at = case when substr(m.sender, 7)::int between 40 and 79 then null else now() end
from message_inbox m where m.request_id = x.request_id and substr(m.sender, 7)::int >= 40;
update dead_letter set team_id = 'team7', category = 'poison' where conversation = conversation_key('telegram/bot/700');
update dead_letter set handler = 'System4/root', notice_lane = null, notice_seq = null
where conversation in (conversation_key('telegram/bot/1'), conversation_key('telegram/bot/2'));
insert into classification (request_id, conversation, team_id, n, candidates, result, tokens_in, tokens_out, ms, at)
select request_id, conversation, 'root', 1, '{}', '{}', 1, 1, 1, now() - row_number() over () * interval '1 hour'
from message_inbox;
insert into session_token (session_id, hash, conversation, request_id, team_id, candidates, expires_at)
select request_id, decode(md5(request_id::text), 'hex'), conversation, request_id, 'root', '[]',
       now() + interval '1 hour' - row_number() over () * interval '1 hour' from message_inbox;
insert into route_call
select request_id, 1, request_id, 'health', null, '', true, '',
       now() - row_number() over () * interval '1 hour' from message_inbox;
insert into model_flow select n, current_date - n % 9, true from generate_series(1, 6000) n;
insert into team select 'team' || n, case when n > 0 then 'team0' end, '' from generate_series(0, 99) n;
insert into member (system_id, team_id, number, engine)
select 'System1/m' || n, 'team' || n % 100, 1, case when n < 5 then 'mcp' else 'memo' end
from generate_series(1, 3000) n;
insert into rule_set (version, author, reason, teams) select n, 'x', 'x', n = 1 from generate_series(1, 2000) n;
insert into rule
select md5('r' || n)::uuid, 'team' || n % 100, 'x', 'api', '{}', '[{"system_id": "System1/x"}]', 0, true, 'x', 'x',
       now(), now(), n % 2000 + 1, case when n % 500 = 0 then 'sop:' || n % 5 else '' end
from generate_series(1, 6000) n;
insert into rule_change (team_id, rule_id, version, before, after)
select team_id, rule_id, version, to_jsonb(rule), to_jsonb(rule) from rule;
""".replace("AN_ID", AN_ID)
GROW = """
insert into conversation select conversation_key('grown/' || n), 'grown/' || n from generate_series(1, 5000) n;
insert into message_inbox
select AN_ID, conversation_key('grown/' || n), 'telegram', 'grown', 's', null, '{}', 'x', now()
from generate_series(1, 5000) n;
insert into lane (key, kind, system_id, conversation, pool, tier, last_seq, done_seq)
select lane_key(k.kind, k.system_id, c.conversation), k.kind, k.system_id, c.conversation, k.pool, 1, 1, 1
from conversation c cross join (values
    ('turn', 'System1/echo', 'work'), ('send', null, 'pull:telegram:bot'), ('mailbox', null, 'work'),
    ('route', null, 'route')) as k (kind, system_id, pool) where c.name like 'grown/%';
insert into dedupe select gen_random_uuid(), gen_random_uuid(), request_id from message_inbox where endpoint = 'grown';
insert into message_raw select request_id, '' from message_inbox where endpoint = 'grown';
insert into routing (lane, seq, request_id, facts, state, created_at)
select lane_key('route', null, conversation), 1, request_id, '{}', 'routed', now() from message_inbox
where endpoint = 'grown';
insert into delivery (lane, seq, request_id, system_id, team_id, state, created_at)
select lane_key('turn', 'System1/echo', conversation), 1, request_id, 'System1/echo', 'root', 'answered', now()
from message_inbox where endpoint = 'grown';
insert into step
select request_id, lane, 1, 's', 'idempotent', 'done', request_id, 1, '1', 0, 0, null, now(), now() from delivery
where request_id in (select request_id from message_inbox where endpoint = 'grown');
insert into stopped select lane, 1 from delivery where state = 'answered' and seq = 1 on conflict do nothing;
""".replace("AN_ID", AN_ID)
"""20,000 lanes of 5000 messages that have passed through."""
KINDS: Final = tuple(kinds.KINDS)
RULES: Final = ("rule", "rule_set", "rule_change", "member")


@dataclass(frozen=True, slots=True)
class Watched:
    """A filled database on one connection."""

    database: Database
    worker: int

    async def counters(self, column: str, view: str, names: str) -> dict[str, int]:
        await self.database.run("select pg_stat_force_next_flush()")
        # Of partitions that of this month alone is filled; it is called by the name of its table here.
        name = f"regexp_replace({names}, to_char(now() at time zone 'UTC', '_YYYY_MM'), '')"
        sql = f"select {name} as name, {column} as n from {view} where schemaname = 'switchboard'"  # noqa: S608
        return {row["name"]: row["n"] for row in await self.database.rows(sql)}

    async def scanned(self, act: Callable[[], Awaitable[object]]) -> set[str]:
        """The growing tables, and those of rules, that `act` read from end to end."""
        before = await self.counters("seq_scan", "pg_stat_user_tables", "relname")
        await act()
        after = await self.counters("seq_scan", "pg_stat_user_tables", "relname")
        return {name for name in (*GROWING, *RULES) if after[name] != before[name]}

    async def rows_read(self, table: str, act: Callable[[], Awaitable[object]]) -> int:
        """How many rows of `table` `act` looked at: an index read from end to end is no better than its table."""
        column = "coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)"
        before = await self.counters(column, "pg_stat_user_tables", "relname")
        await act()
        after = await self.counters(column, "pg_stat_user_tables", "relname")
        return after[table] - before[table]

    async def much_read_by_index(self, act: Callable[[], Awaitable[object]]) -> dict[str, int]:
        """The tables of which `act` read more rows by index than some messages need, with what was left of others.

        Rows and not entries: a transaction in another database delays the removal of dead entries, of which each
        update of a row leaves some.
        """
        before = await self.counters("coalesce(idx_tup_fetch, 0)", "pg_stat_user_tables", "relname")
        await act()
        after = await self.counters("coalesce(idx_tup_fetch, 0)", "pg_stat_user_tables", "relname")
        return {name: after[name] - read for name, read in before.items() if after[name] - read > 1000}

    async def claimed(self) -> Item:
        [item] = await lanes.claim(self.database, self.worker, KINDS, {"work": [0, 0, 1, 0]})
        return item

    async def a_request(self) -> UUID:
        return await the_id(self.database, 777)


@pytest.fixture(scope="module")
def filled(postgres: Postgres) -> Iterator[str]:
    """The name of a filled database, to be copied."""
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        name = runner.run(_fill(postgres))
        yield name
        runner.run(postgres.drop(name))


async def _fill(postgres: Postgres) -> str:
    name = await postgres.create()
    database = await Database.connect(postgres.url(name), size=1)
    try:
        await database.run(FILL)
        await database.run("analyze")
    finally:
        await database.close()
    return name


@pytest.fixture
async def watched(postgres: Postgres, filled: str) -> AsyncIterator[Watched]:
    name = await postgres.create(filled)
    database = await Database.connect(postgres.url(name), size=1)
    try:
        worker = "insert into process (host, pid, version, ttl, has_lock) values ('', 1, '', '1 h', false)"
        yield Watched(database, int(await database.value(f"{worker} returning process_id")))
    finally:
        await database.close()
        await postgres.drop(name)


def a_message(n: int) -> Message:
    return structs.replace(message("x", sender=f"sender{n}", endpoint="bot"), raw=b"")


async def test_the_counters_notice_a_table_that_is_read_from_end_to_end(watched: Watched) -> None:
    assert await watched.scanned(lambda: watched.database.rows("select from outbox where text = 'no'")) == {"outbox"}
    await watched.database.run("set enable_seqscan = off")
    by_key = partial(watched.database.rows, f"select from outbox where outbox_id > '{UUID(int=0)}' and text = 'no'")
    assert await watched.scanned(by_key) == set()
    assert set(await watched.much_read_by_index(by_key)) == {"outbox"}


async def test_accepting_reads_by_index(watched: Watched) -> None:
    def batch(size: int) -> list[inbox.Arrival]:
        ways = (Chosen(SystemId("System1/echo"), ROOT),), (Unrouted(ROOT, "no_route", "nobody", SYSTEM4),)
        return [inbox.Arrival(a_message(n), Decision(1, *ways, ())) for n in range(size)]

    async def accept(size: int) -> None:
        await inbox.accept(watched.database, batch(size))

    for size in (1, 1, 5, 5, 5, 5, 5, 5):  # more than five times: then PostgreSQL plans for good
        assert await watched.scanned(partial(accept, size)) == set()


async def test_accepting_what_must_be_classified_reads_by_index(watched: Watched) -> None:
    async def accept(size: int) -> None:
        batch = [inbox.Arrival(a_message(n), inbox.ToClassify({"channel": "cli"})) for n in range(size)]
        assert all(one.waits for one in await inbox.accept(watched.database, batch, queued=True))

    for size in (1, 1, 5, 5, 5, 5, 5, 5):
        assert await watched.scanned(partial(accept, size)) == set()


async def test_routing_from_claim_to_settlement_reads_by_index(watched: Watched) -> None:
    async def route() -> None:
        [item] = await lanes.claim(watched.database, watched.worker, KINDS, {"route": [0, 0, 1, 0]})
        waiting = await routing.load_route(watched.database, item)
        ways = (Chosen(SystemId("System1/echo"), ROOT, "part"),), (Unrouted(ROOT, "no_route", "nobody", SYSTEM4),)
        routed = Routed(item, Decision(1, *ways, ()), 2, datetime.now(UTC), hand_on=False)
        assert (await routing.settle_route(watched.database, watched.worker, routed)).ok
        assert await routing.waiting_of(watched.database, waiting.request_id)
        assert await routing.any_waiting(watched.database)

    for _ in range(8):
        assert await watched.scanned(route) == set()


async def test_what_a_sender_may_use_of_models_is_read_and_booked_by_index(watched: Watched) -> None:
    today, caps = datetime.now(UTC).date(), SenderCaps(10_000, 10_000, 10_000)
    request_id = await watched.a_request()

    async def session() -> None:
        wanted = Reservation(new_uuid7(), today, Amount(5))
        found = await model_usage.admit(watched.database, request_id, wanted, timedelta(hours=1), caps)
        assert found.flow is not None
        await model_usage.settle(watched.database, found.flow, wanted, 5)
        await model_usage.forget_flows(watched.database, 300)

    for _ in range(8):
        assert await watched.scanned(session) == set()


async def test_the_liveness_of_remote_butlers_is_read_by_index(watched: Watched) -> None:
    async def look() -> None:
        found = await remote_agents.list_remote_agents(watched.database, LivenessPolicy())
        assert [one.system_id for one in found] == [f"System1/m{n}" for n in range(1, 5)]
        far = butler("m1", "mcp", "team1")
        await remote_agents.StoredRemoteAgents(watched.database).seen(far.system_id)
        assert await remote_agents.beat(watched.database, far.system_id, remote_agents.Announcement(), LivenessPolicy())
        assert await remote_agents.StoredRemoteAgents(watched.database).endpoint_of(far) is None

    for _ in range(8):
        assert await watched.scanned(look) == set()


async def test_a_turn_from_claim_to_settlement_reads_by_index(watched: Watched) -> None:
    async def turn() -> None:
        items = await lanes.claim(watched.database, watched.worker, KINDS, {"work": [2, 2, 2, 2]})
        assert len(items) == 8
        settlements = []
        for n, (item, request_id) in enumerate(zip(items, await _load(watched, items), strict=True)):
            await load_steps(watched.database, item, request_id)
            steps = [StepWrite(item, request_id, Step(path, "done", "idempotent", new_uuid7(), 1)) for path in "xy"]
            assert await write_steps(watched.database, watched.worker, steps) == [True, True]
            end = Settlement(item, "answered", None, None, outbox_id=new_uuid7(), text="x", pool=PULL)
            dead_letter = NewDeadLetter(new_uuid7(), "poison", "x", SYSTEM4)
            settlements.append(end if n % 2 else Settlement(item, "failed", None, None, dead_letter=dead_letter))
        assert all(s.ok for s in await lanes.settle(watched.database, watched.worker, settlements))

    for _ in range(8):
        assert await watched.scanned(turn) == set()


@pytest.mark.parametrize(
    ("analyzed_after", "ahead"), [(None, False), (None, True), (0, False), (1, False), (10, False)]
)
async def test_plans_that_were_made_for_small_tables_look_up_keys(
    database_url: str, analyzed_after: int | None, ahead: bool
) -> None:
    """They are kept until the tables are analyzed again, and thousands of messages may come before.

    Nobody has analyzed those of a new installation, unless somebody did so by hand, or after its first messages.
    """
    async with lab(database_url, size=1) as parts, a_hand(parts.database) as hand:
        watched = Watched(parts.database, hand.worker)

        async def wait_for_a_model(first: int, messages: int) -> None:
            batch = [inbox.Arrival(a_message(first + n), inbox.ToClassify({"channel": "cli"})) for n in range(messages)]
            assert all(one.waits for one in await inbox.accept(parts.database, batch, queued=True))

        if ahead:
            await parts.database.run(query("lanes.plan_ahead"))
        if analyzed_after is not None:
            for n in range(analyzed_after):
                await pass_through(parts, hand, n, 1)
                await wait_for_a_model(n, 1)
            await parts.database.run("vacuum analyze")
        for n in range(50, 58):
            await pass_through(parts, hand, n, 1)
            await wait_for_a_model(n, 1)
        await parts.database.run(GROW)
        for act in (partial(pass_through, parts, hand), wait_for_a_model):
            for _ in range(2):
                assert await watched.scanned(partial(act, 1000, 7)) & set(GROWING) == set()
                assert await watched.much_read_by_index(partial(act, 1000, 7)) == {}


async def test_to_plan_ahead_writes_nothing(watched: Watched) -> None:
    async with watched.database.transaction() as database:
        await database.run(query("lanes.plan_ahead"))
        # A transaction gets a number as soon as it writes or locks a row.
        assert await database.value("select pg_current_xact_id_if_assigned() is null")


async def test_a_connection_that_planned_ahead_plans_little_at_its_first_message(watched: Watched) -> None:
    plans = "select count(*)::int from pg_backend_memory_contexts where name = 'CachedPlan'"

    async def made_for_a_message() -> int:
        before = int(await watched.database.value(plans))
        decision = Decision(1, (Chosen(SystemId("System1/echo"), ROOT),), (), ())
        await inbox.accept(watched.database, [inbox.Arrival(a_message(1), decision)])
        item = await watched.claimed()
        [request_id] = await _load(watched, [item])
        step = Step("x", "done", "idempotent", new_uuid7(), 1)
        assert await write_steps(watched.database, watched.worker, [StepWrite(item, request_id, step)]) == [True]
        end = Settlement(item, "answered", None, None, outbox_id=new_uuid7(), text="x", pool=PULL)
        assert (await lanes.settle(watched.database, watched.worker, [end]))[0].ok
        return int(await watched.database.value(plans)) - before

    without = await made_for_a_message()
    await watched.database.pool.expire_connections()
    await watched.database.run(query("lanes.plan_ahead"))
    ahead = await made_for_a_message()
    assert 0 < ahead < without / 2


async def _load(watched: Watched, items: list[Item]) -> list[RequestId]:
    # The envelopes of this test are too small to be read back, so the statements themselves are run.
    given = [i.lane for i in items], [i.seq for i in items]
    rows = [
        r
        for name in ("load_turns", "load_notices")
        for r in await watched.database.rows(query(f"lanes.{name}"), *given)
    ]
    request_of = {(row["lane"], row["seq"]): row["request_id"] for row in rows}
    return [request_of[i.lane, i.seq] for i in items]


async def test_retry_rescue_release_and_maintenance_read_by_index(watched: Watched) -> None:
    database, worker = watched.database, watched.worker

    async def retry() -> None:
        failed = Settlement(await watched.claimed(), "failed", None, None)
        assert await lanes.retry(database, worker, failed, 0)

    async def release() -> None:
        await watched.claimed()
        assert await lanes.release_worker(database, worker) == 1
        again = "insert into process (process_id, host, pid, version, ttl, has_lock) overriding system value"
        await database.run(f"{again} values ($1, '', 1, '', '1 h', false)", worker)

    names = ("expire_leases", "digest", "log_dead_letters", "tell", "tell_of_replies", "compact")
    await maintenance.plan(database, dict.fromkeys(names, 1.0))
    looker = lanes.Looker("here", 1, worker, ("work", "route"), names)
    tasks: list[Callable[[], Awaitable[object]]] = [
        retry,
        release,
        lambda: lanes.tend(database),
        lambda: lanes.look(database, looker),
        lambda: outbox.expire_leases(database),
        lambda: inbox.count_backlog(database),
        lambda: inbox.crowded_endpoints(database, 50),
    ]
    for n, task in enumerate(tasks * 8):
        assert (n, await watched.scanned(task)) == (n, set())


async def test_a_reply_that_names_only_a_mail_of_ours_is_placed_by_index(watched: Watched) -> None:
    await watched.database.run("update outbox set platform_message_id = outbox_id || '@home'")
    await watched.database.run("analyze outbox")
    home = Conversation("telegram/bot/unknown")
    ours = await watched.database.value(
        "select platform_message_id from outbox where request_id = $1", await watched.a_request()
    )
    named = Named(home, home, "ann@x.example", (), (home,), (ours, "none@x.example"), "telegram", "bot")
    place = partial(inbox.find_places, watched.database, [named], keep=False)
    await place()
    assert await watched.scanned(place) == set()
    assert await watched.much_read_by_index(place) == {}


async def test_the_outbox_is_read_by_index(watched: Watched) -> None:
    database = watched.database
    leased: list[OutboxRow] = []

    async def lease() -> None:
        leased[:] = await outbox.lease(database, PULL, limit=5, lease_s=60, idempotent=False)

    async def receive() -> None:
        for reply in leased:
            assert await outbox.settle_send(database, None, reply.lane, reply.lease, reply.seq, Receipt("uncertain"))

    async def resend() -> None:
        for reply in leased:
            assert await outbox.resend(database, reply.outbox_id)

    for n in range(8):
        for act in (lease, receive, resend):
            assert (n, act, await watched.scanned(act)) == (n, act, set())
        assert len(leased) == 5


@pytest.mark.parametrize("state", [None, "pending", "sent", "failed"])
async def test_a_page_of_replies_is_read_by_index(watched: Watched, state: OutboxState | None) -> None:
    for before in (None, UUID(int=2**127)):
        ask = partial(outbox.page_of_replies, watched.database, state=state, before=before, limit=20)
        for _ in range(8):
            assert "outbox" not in await watched.scanned(ask)


async def test_one_message_and_the_newest_are_always_read_by_index(watched: Watched) -> None:
    request_id = await watched.a_request()
    database = watched.database
    find = partial(searching.find_messages, database, ids=IdRange(last=request_id), oldest=False, limit=20)
    shown: list[Callable[[], Awaitable[Any]]] = [
        lambda: inbox.get_message(database, request_id),
        lambda: inbox.get_raw(database, request_id),
        lambda: find(MessageFilter()),
        lambda: find(MessageFilter(channel="telegram", endpoint="bot")),
        lambda: searching.whole_texts(database, [request_id]),
        lambda: conversations.list_conversations(database, before=None, walk=100, limit=20),
        lambda: conversations.walked_until(database, before=None, walk=20),
        lambda: status.list_needs(database),
        lambda: pulse.read_marks(database),
        lambda: status.count_by_hour(database),
        lambda: outbox.list_receipts(database, request_id),
        lambda: outbox.count_open(database),
        lambda: outbox.waiting_for_connectors(database, 20),
        lambda: standing.channels_in_use(database),
        lambda: standing.open_work(database),
        lambda: standing.last_traffic(database, [("telegram", "bot"), ("no", "where")]),
        lambda: dead_letters.dead_letters_of(database, request_id),
        lambda: dead_letters.notices_of(database, request_id),
        lambda: database.rows(query("ledger.of_message"), request_id),
        lambda: database.rows(query("ledger.turns"), request_id),
        lambda: database.rows(query("ledger.steps"), request_id),
        lambda: database.rows(query("ledger.decisions"), request_id),
    ]
    for show in shown:
        for _ in range(8):
            assert await watched.scanned(show) == set()
        assert await show()


async def test_chats_are_read_by_index(watched: Watched) -> None:
    request_id, database = await watched.a_request(), watched.database
    reads: list[Callable[[], Awaitable[object]]] = [
        lambda: chats.threads(database, "telegram", "bot", before=None, walk=100, limit=20),
        lambda: chats.threads(database, "telegram", "nobody", before=request_id, walk=100, limit=20),
        lambda: chats.threads_until(database, "telegram", "bot", before=None, walk=20),
        lambda: chats.attachments(database, [request_id]),
        lambda: chats.tools(database, [request_id]),
        lambda: chats.ahead(database, request_id),
    ]
    for read in reads:
        for _ in range(8):
            assert await watched.scanned(read) == set()


async def test_traces_read_what_is_new_by_index(watched: Watched) -> None:
    database, now = watched.database, datetime.now(UTC)
    await traces.begin(database, now)
    ids = [await the_id(database, n) for n in (7, 77, 777)]
    reads: list[Callable[[], Awaitable[object]]] = [
        lambda: traces.take(database, now, 1.0, 20),
        lambda: traces.standing(database, now),
        lambda: traces.load(database, ids),
    ]
    for read in reads:
        for _ in range(8):
            assert await watched.scanned(read) == set()
    assert [len(one.attempts) for one in await traces.load(database, ids)] == [1, 1, 1]


async def test_rules_and_their_history_are_read_by_index(watched: Watched) -> None:
    database, team = watched.database, TeamId("team7")
    rule_id: UUID = await database.value("select md5('r7')::uuid")
    reads: list[Callable[[], Awaitable[object]]] = [
        lambda: rules.get_rule(database, rule_id),
        lambda: rules.history(database, rule_id),
        lambda: rules.list_rules(database, team),
        lambda: rules.list_rules(database, team, after=rule_id, limit=5),
        lambda: rules.list_rules(database, source="sop:0"),
        lambda: rules.list_rules(database, team, source="sop:0"),
        lambda: rules.list_rules(database, limit=20),
        lambda: rules.list_sops(database),
        lambda: rules.list_sops(database, after="sop:1", limit=5),
        lambda: rules.versions(database, None, 20),
        lambda: rules.versions(database, 1000, 20),
        lambda: rules.get_version(database, 1000),
        lambda: rules.changes_of(database, 1000),
        lambda: rules.changes_between(database, 1990, 1995),
        lambda: rules.rules_at(database, 1990, [team]),
        lambda: rules.rules_at(database, 10, [team]),
        lambda: rules.changes_since(database, 2000),
        lambda: rules.changes_since(database, 1995),
    ]
    for n, read in enumerate(reads):
        for _ in range(8):
            assert (n, await watched.scanned(read)) == (n, set())
        assert await read() is not None


async def test_rules_are_written_by_index(watched: Watched) -> None:
    database = watched.database

    async def edit() -> None:
        _, found = await rules.list_rules(database, TeamId("team7"), limit=3)
        changes = [RuleChange(one, structs.replace(one, priority=one.priority + 1)) for one in found]
        changes += [RuleChange(None, structs.replace(found[0], rule_id=new_uuid7(), version=0))]
        await rules.write(database, changes, by=rules.Authorship("x", "x"))

    for _ in range(8):
        assert await watched.scanned(edit) == set()


async def _some_dead_letter(watched: Watched) -> UUID:
    found: UUID = await watched.database.value("select min(dead_letter_id::text)::uuid from dead_letter")
    return found


async def _some_case(watched: Watched) -> dead_letters.DeadLetterCase:
    tier = 'update message_inbox set envelope = \'{"control": {"policy_tier": "default"}}\' where request_id = $1'
    dead_letter = await _some_dead_letter(watched)
    shown = await dead_letters.get_dead_letter(watched.database, dead_letter)
    assert shown is not None
    await watched.database.run(tier, shown[0].request_id)
    case = await dead_letters.get_case(watched.database, dead_letter)
    assert case is not None
    return case


Ask = Callable[[Watched], Awaitable[object]]
LETTERS_READ: Final[Mapping[str, Ask]] = {
    "list": lambda w: dead_letters.list_dead_letters(w.database, DeadLetterFilter(), limit=20),
    "list on": lambda w: dead_letters.list_dead_letters(
        w.database, DeadLetterFilter(), before=UUID(int=2**127), limit=20
    ),
    "list pending": lambda w: dead_letters.list_dead_letters(w.database, DeadLetterFilter(status="pending"), limit=20),
    "list pending of a team": lambda w: dead_letters.list_dead_letters(
        w.database, DeadLetterFilter(status="pending", teams=("root",)), limit=20
    ),
    "list of a team": lambda w: dead_letters.list_dead_letters(
        w.database, DeadLetterFilter(teams=("team7",)), limit=20
    ),
    "list of a category": lambda w: dead_letters.list_dead_letters(
        w.database, DeadLetterFilter(category="poison"), limit=20
    ),
    "pending_ids": lambda w: dead_letters.pending_ids(w.database, DeadLetterFilter(), limit=20),
    "pending_ids on": lambda w: dead_letters.pending_ids(
        w.database, DeadLetterFilter(channel="telegram", category="no_route"), after=UUID(int=1), limit=20
    ),
    "count_pending": lambda w: dead_letters.count_pending(w.database),
    "count_pending of a filter": lambda w: dead_letters.count_pending(
        w.database, DeadLetterFilter(teams=("root",), category="no_route"), after=UUID(int=1)
    ),
    "waiting_handlers": lambda w: dead_letters.waiting_handlers(w.database),
    "empty": lambda w: dead_letters.empty(w.database, keep_days=90, limit=5),
}


@pytest.mark.parametrize(
    ("system_id", "state", "at_most"),
    [
        (None, None, 100),
        (None, "pending", 300),  # 100 are
        ("System1/echo", "declined", 300),
        (None, "dead", 300),
        ("System1/absent", None, 20),
    ],
)
async def test_deliveries_are_listed_by_index_whatever_is_asked_for(
    watched: Watched, system_id: str | None, state: ShownState | None, at_most: int
) -> None:
    ask = partial(ledger.list_deliveries, watched.database, limit=20, system_id=system_id, state=state)
    for _ in range(8):
        assert "delivery" not in await watched.scanned(ask)
        assert await watched.rows_read("delivery", ask) <= at_most


@pytest.mark.slow
@pytest.mark.parametrize("name", LETTERS_READ)
async def test_dead_letters_are_found_by_index_however_many_were_handled(watched: Watched, name: str) -> None:
    ask = partial(LETTERS_READ[name], watched)
    for _ in range(8):
        assert await watched.scanned(ask) == set()
        assert await watched.rows_read("dead_letter", ask) <= 250, "200 dead letters of 6000 are pending"
    assert await ask()


async def test_one_dead_letter_is_shown_and_closed_by_index(watched: Watched) -> None:
    database, dead_letter = watched.database, await _some_dead_letter(watched)
    case = await _some_case(watched)
    acts: list[Callable[[], Awaitable[object]]] = [
        lambda: dead_letters.get_dead_letter(database, dead_letter),
        lambda: dead_letters.get_case(database, dead_letter),
        lambda: dead_letters.dead_letters_of(database, case.request_id),
        lambda: dead_letters.rerouted(database, case.request_id, 1),
        lambda: dead_letters.handle(database, dead_letter, DeadLetterHandling("olga", "spam")),
        lambda: dead_letters.spare_sender(database, case.request_id),
    ]
    for n, act in enumerate(acts):
        for _ in range(8):
            assert (n, await watched.scanned(act)) == (n, set())


async def _reroute(database: Database, found: Sequence[dead_letters.UntoldMessage]) -> None:
    chosen = (Chosen(SystemId("System1/spare"), ROOT),)
    for one in found[:2]:
        [dead_letter] = await dead_letters.dead_letters_of(database, one.request_id)
        case = await dead_letters.get_case(database, dead_letter.dead_letter_id)
        assert case is not None
        again = Decision(1, chosen, (Unrouted(ROOT, "no_route", "nobody", SYSTEM4),), ())
        outcome = await dead_letters.reroute(database, case, again, DeadLetterHandling("olga", "spare can"))
        assert outcome == dead_letters.HandlingOutcome("rerouted", 2)


async def _tell(database: Database, found: Sequence[dead_letters.UntoldMessage]) -> None:
    for one in found[2:]:
        assert await dead_letters.tell_sender(database, one.request_id, "nobody could", PULL)


async def test_what_is_done_with_new_dead_letters_reads_by_index(watched: Watched) -> None:
    """Each round 30 die: some are rerouted, the senders of others are told, the rest goes into a digest."""
    database = watched.database
    began, found = new_uuid7(), list[dead_letters.UntoldMessage]()

    async def die(count: int) -> None:
        lost = Decision(1, (), (Unrouted(ROOT, "no_route", "nobody", SYSTEM4),), ())
        await inbox.accept(database, [inbox.Arrival(a_message(2000 + n), lost) for n in range(count)])

    async def look() -> None:
        found[:] = await dead_letters.untold(database, began, 5)

    async def digest() -> None:
        assert await dead_letters.digest(database, SYSTEM4) > 0

    async def write_log() -> None:
        assert await dead_letters.log(database, 500, lambda _: None) >= 30

    async def tell_outside() -> None:
        for report in await dead_letters.to_tell(database, 100, dead_letters.Backoff(30, 3600)):
            await dead_letters.told(database, report.dead_letter_id)

    await database.run("update dead_letter set logged_at = now(), told_at = now()")
    for n in range(8):
        await die(30)
        for act in (
            look,
            partial(_reroute, database, found),
            partial(_tell, database, found),
            digest,
            write_log,
            tell_outside,
        ):
            assert (n, act, await watched.scanned(act)) == (n, act, set())
        assert len(found) == 5


async def test_how_often_a_sender_was_told_is_counted_by_index(watched: Watched) -> None:
    """Of many who were told, in conversations with long outboxes, only what this one was told is looked at."""
    database, began = watched.database, new_uuid7()
    await database.run("update outbox set system_id = 'switchboard', recipient = request_id::text")
    await database.run("analyze outbox")
    lost = Decision(1, (), (Unrouted(ROOT, "no_route", "nobody", SYSTEM4),), ())
    await inbox.accept(database, [inbox.Arrival(a_message(3000 + n), lost) for n in range(8)])
    for one in await dead_letters.untold(database, began, 8):
        before = await watched.counters("idx_tup_fetch", "pg_stat_user_tables", "relname")
        tell = partial(dead_letters.tell_sender, database, one.request_id, "nobody could", PULL)
        assert await watched.scanned(tell) == set()
        after = await watched.counters("idx_tup_fetch", "pg_stat_user_tables", "relname")
        assert after["outbox"] - before["outbox"] < 20
    told = "select count(*) from outbox where system_id = 'switchboard' and request_id in (select request_id from"
    assert await database.value(f"{told} dead_letter where sender_told_at is not null)") == 8


async def test_what_models_chose_is_read_corrected_and_forgotten_by_index(watched: Watched) -> None:
    database, now = watched.database, datetime.now(UTC)
    page = (
        await classification_log.list_classifications(
            database, ClassificationFilter(), LogScope(everything=True), limit=20
        )
    )[-1]
    key = (page.request_id, page.team_id, page.n)
    recent, age = UsagePeriod(now - timedelta(hours=3), now), timedelta(days=200)
    spare = Chosen(SystemId("System1/spare"), ROOT)
    acts: list[Callable[[], Awaitable[object]]] = [
        lambda: classification_log.list_classifications(
            database, ClassificationFilter(), LogScope(everything=True), limit=20
        ),
        lambda: classification_log.list_classifications(
            database, ClassificationFilter(), LogScope(everything=False), before=key, limit=20
        ),
        lambda: classification_log.list_classifications(
            database, ClassificationFilter(corrected=True), LogScope(everything=True), limit=20
        ),
        lambda: classification_log.corrected(database, None, 20),
        lambda: classification_log.corrected(database, None, 20, before=page.request_id),
        lambda: classification.attempts(database, page.request_id),
        lambda: model_usage.usage(database, "message", recent, 20),
        lambda: model_usage.usage(database, "butler", recent, 20),
        lambda: model_usage.usage(database, "message", recent, 20, after=(0, 100, "")),
        lambda: model_usage.total(database, "message", recent),
        lambda: classification_log.forget_classifications(database, age, 5),
        lambda: classification_log.forget_calls(database, age, 5),
        lambda: classification_log.forget_keys(database, UUID(int=1), 5),
        lambda: classification_log.forget_sessions(database, age, 5),
    ]
    for n, act in enumerate(acts):
        for _ in range(8):
            assert (n, await watched.scanned(act)) == (n, set())
    for n in range(777, 785):
        correction = Correction(await the_id(database, n), spare.system_id, "olga", "spare can", None)
        step = TrailStep(ROOT, "correction", targets=(Target(spare.system_id),))
        sending = Sending(Decision(1, (spare,), (), (step,)), 2)
        assert await watched.scanned(partial(classification_log.correct, database, correction, sending)) == set()
    assert await database.value("select count(*) from delivery where system_id = 'System1/spare'") == 8


async def the_id(database: Database, n: int) -> RequestId:
    """The id of the nth message."""
    sql = "select request_id from message_inbox where right(request_id::text, 12) = $1"
    return RequestId(await database.value(sql, f"{n:012x}"))


async def test_the_books_of_a_day_are_checked_by_index(watched: Watched) -> None:
    """Of a day without messages here: what another day holds is not read.

    Except the keys, which are too few here for their index (BRIN), which tells of 128 pages at a time.
    """
    day, highest = timedelta(days=1), await the_id(watched.database, 1)
    lowest = UUID(int=highest.int - (int(day.total_seconds() * 1000) << 80))
    names = re.findall(r"^-- name: (\w+)$", SQL.joinpath("queries/books.sql").read_text(), re.MULTILINE)
    of_a_day = [f"books.{name}" for name in names if "between $1 and $2" in query(f"books.{name}")]
    assert len(of_a_day) == 16
    for name in of_a_day:
        act = partial(watched.database.rows, query(name), lowest, UUID(int=(highest.int >> 80 << 80) - 1))
        for _ in range(8):
            assert (name, await watched.scanned(act) - {"dedupe"}) == (name, set())


async def test_what_is_open_is_checked_by_index(watched: Watched) -> None:
    for name in ("route_pending", "delivery_pending", "dead_letter_pending", "reply_lane"):
        act = partial(watched.database.rows, query(f"books.problem_{name}"))
        for _ in range(8):
            assert (name, await watched.scanned(act) - {"lane"}) == (name, set()), "as many lanes as messages here"


async def test_messages_to_be_decided_again_are_read_by_index(watched: Watched) -> None:
    async def read(last: int | None, since: datetime | None) -> int:
        pages = cases_since(watched.database, since=since, last=last, chunk=50)
        return sum([len(some) async for some in pages])

    for _ in range(8):
        assert await watched.scanned(partial(read, 200, None)) == set()
        assert await watched.scanned(partial(read, None, datetime.now(UTC))) == set()
    assert await read(200, None) == 200


async def test_messages_to_be_decided_again_are_counted_by_index(watched: Watched) -> None:
    for _ in range(8):
        for last, since in ((200, None), (None, datetime.now(UTC))):
            assert await watched.scanned(partial(count_cases, watched.database, since=since, last=last)) == set()
    assert await count_cases(watched.database, since=None, last=200) == 200


async def test_a_claim_does_not_wade_through_lanes_that_wait_for_their_retry(watched: Watched) -> None:
    await watched.database.run(
        "update lane set state = 'ready', done_seq = 4, delayed = true, ready_at = clock_timestamp() + interval '1 h'"
        " where kind = 'turn' and state = 'idle'"
    )
    await watched.database.run("delete from lane where kind = 'turn' and state = 'ready' and ready_at < now()")
    await watched.database.run("vacuum analyze lane")

    async def rows_read() -> int:
        return (await watched.counters("idx_tup_read", "pg_stat_user_indexes", "indexrelname"))["lane_ready"]

    for _ in range(8):
        before = await rows_read()
        quota = {"work": [64] * 4}
        assert await lanes.claim(watched.database, watched.worker, KINDS, quota) == []
        assert await rows_read() - before < 100, "1100 lanes wait, and none of them is due"


async def test_a_claim_does_not_wade_through_lanes_on_offer_to_others(watched: Watched) -> None:
    """Sixteen wait for their keeper, and 1100 are idle and have one."""
    other = "insert into process (host, pid, version, ttl, has_lock) values ('', 2, '', '1 h', false)"
    keeper = int(await watched.database.value(f"{other} returning process_id"))
    await watched.database.run("delete from lane where kind = 'turn' and state = 'ready'")
    await watched.database.run(
        "update lane set keeper = $1, kept_until = clock_timestamp() + interval '1 h' where kind = 'turn'", keeper
    )
    await watched.database.run(
        "update lane set state = 'ready', done_seq = 4, delayed = true, ready_at = clock_timestamp() + interval '-1 s'"
        " where key in (select key from lane where kind = 'turn' limit 16)"
    )
    await watched.database.run("vacuum analyze lane")

    async def claim() -> None:
        fresh = "update lane set ready_at = clock_timestamp() where kind = 'turn' and state = 'ready'"
        await watched.database.run(fresh)
        assert await lanes.claim(watched.database, watched.worker, KINDS, {"work": [64] * 4}) == []

    async def count() -> dict[str, int]:
        return await watched.counters("idx_tup_read", "pg_stat_user_indexes", "indexrelname")

    for _ in range(8):
        before = await count()
        assert await watched.scanned(claim) == set()
        after = await count()
        assert sum(after[index] - before[index] for index in ("lane_ready", "lane_delayed")) < 500
    assert len(await lanes.claim(watched.database, keeper, KINDS, {"work": [64] * 4})) == 16


async def test_a_claim_does_not_wade_through_an_account_that_catches_up(watched: Watched) -> None:
    """Four of one account run, and 1100 of it wait: the next claim looks at few."""
    await watched.database.run("delete from lane where kind = 'turn' and state = 'ready'")
    await watched.database.run(
        "update lane set state = 'ready', done_seq = 4, tier = 4, flow = 5::bigint << 32 | abs(hashtext(key::text))"
        " where kind = 'turn'"
    )
    late = {"work": [0, 0, 0, 0, 64]}
    assert len(await lanes.claim(watched.database, watched.worker, KINDS, late)) == 4
    await watched.database.run("vacuum analyze lane")

    async def rows_read() -> int:
        read = await watched.counters("idx_tup_read", "pg_stat_user_indexes", "indexrelname")
        return read["lane_ready"] + read["lane_late"]

    async def claim() -> None:
        assert await lanes.claim(watched.database, watched.worker, KINDS, late) == []

    for _ in range(8):
        before = await rows_read()
        assert await watched.scanned(claim) == set()
        assert await rows_read() - before < 100


async def test_what_people_are_asked_is_found_by_index(watched: Watched) -> None:
    """Of 6000 approvals 100 wait, one in each of as many conversations."""
    database, where = watched.database, Conversation("telegram/bot/50")
    sql = "select d.lane, d.seq, d.request_id from delivery d join lane l on l.key = d.lane and d.seq > l.done_seq"
    row = await database.row(f"{sql} where l.conversation = conversation_key($1) and l.kind = 'turn'", where)
    assert row is not None
    [one] = await approvals.of_message(database, row["request_id"])
    item = Item(row["lane"], "turn", 1, row["seq"], 7, 1)
    readers, start = f"readers {item.lane}", one.approval_id.hex[:4]
    turn = replace(a_turn(), conversation=where, member=butler("echo"))
    later, stored = replace(turn, request_id=RequestId(new_uuid7())), approvals.StoredApprovals(database)
    first_page = await approvals.list_approvals(database, None, None, 50)
    acts: Mapping[str, Callable[[], Awaitable[object]]] = {
        "what waits": partial(approvals.list_approvals, database, "pending", None, 100),
        "all": partial(
            approvals.list_approvals, database, None, (first_page[-1].asked_at, first_page[-1].approval_id), 50
        ),
        "one": partial(approvals.get, database, one.approval_id),
        "of a message": partial(approvals.of_message, database, row["request_id"]),
        "by a command": partial(approvals.of_readers, database, readers, ChatCommand("approve", start, "").ids, 5),
        "by a reply": partial(approvals.asked_in, database, where, "42"),
        "of a conversation": partial(stored.pending, later, readers, 20),
        "how many of it": partial(stored.count, turn),
        "how many": partial(approvals.count, database),
        "untold": partial(approvals.untold, database, item),
        "while it is written": partial(deltas.look, database, row["request_id"]),
        "by its id": partial(lookup.find, database, *ChatCommand("approve", start, "").ids, 5),
        "too old": partial(forget_events, database, UUID(int=1), 100),
    }
    for name, act in acts.items():
        for _ in range(8):
            assert await watched.scanned(act) == set(), name
        assert await watched.rows_read("approval", act) <= 250, name
    assert [a.approval_id for a in await approvals.list_approvals(database, "pending", None, 200)] != []
    assert [p.approval_id for p in await stored.pending(later, readers, 1)] == [one.approval_id]
    assert await stored.pending(later, readers, 0) == []
    assert one.approval_id in [
        a.approval_id for a in await approvals.of_readers(database, readers, ChatCommand("approve", start, "").ids, 5)
    ]


LEARNED: Final = """
insert into person select 'p' || n, 'P' from generate_series(1, 2000) n;
insert into person_handle select c, '', n::text, 'p' || n, now(), 'olga'
from generate_series(1, 2000) n cross join unnest(array['telegram', 'signal']) c;
select set_config('switchboard.facts', 'open', false);
insert into fact (fact_id, system_id, conversation, author, subject, space, text, mark, handle, words, said_at)
select gen_random_uuid(), 'System1/echo', gen_random_uuid(), c || '/bot/' || n, 'self', 'private', 'figs',
       gen_random_uuid(), handle_key(c, '', n::text), gen_random_uuid(), now()
from generate_series(1, 3000) n cross join unnest(array['telegram', 'signal']) c;
select set_config('switchboard.facts', '', false);
insert into forgotten select gen_random_uuid(), gen_random_uuid() from generate_series(1, 6000);
analyze"""


async def test_what_a_person_said_under_each_handle_is_found_by_index(watched: Watched) -> None:
    """Of 3000 people two thirds are linked, each under two handles; all have told one butler something."""
    await watched.database.run(LEARNED)
    who = ("System1/echo", "telegram/bot/7", "telegram/bot/7", True, True)
    handle, forgotten = ("telegram", "", "7"), [UUID(int=1)]
    acts: Mapping[str, tuple[str, tuple[object, ...]]] = {
        "told": ("facts.visible", (*who, 100, *handle)),
        "told of these": ("facts.among", (*who, [UUID(int=1)], *handle)),
        "counted": ("facts.statistics", (*who, *handle, ["fig"], ["fig"])),
        "latest": ("facts.latest", (*who, *handle, 100)),
        "forgotten": ("facts.is_forgotten", (forgotten, *who[:2], 0, UUID(int=0), forgotten, *handle)),
        "shared": ("facts.share", (UUID(int=1), who[0], who[2], True, False, *handle)),
    }
    for name, (sql, given) in acts.items():
        act = partial(watched.database.rows, query(sql), *given)
        for _ in range(8):
            assert not await watched.scanned(act) & {
                "fact",
                "forgotten",
                "entry",
                "fact_space",
                "fact_terms",
                "fact_term_count",
            }, name
        assert await watched.rows_read("fact", act) <= 10, name
        assert await watched.rows_read("person_handle", act) <= 10, name
    assert len(await watched.database.rows(query("facts.visible"), *who, 100, *handle)) == 2


async def test_how_butlers_are_and_what_they_know_is_read_by_index(watched: Watched) -> None:
    database, today = watched.database, datetime.now(UTC)
    await database.run(LEARNED)
    reads: list[Callable[[], Awaitable[object]]] = [
        lambda: butlers.list_work(database),
        lambda: butlers.list_failures(database, today - timedelta(days=1)),
        lambda: facts.count_facts(database, 100),
        lambda: facts.list_named(database, [UUID(int=n) for n in range(9)]),
    ]
    for read in reads:
        for _ in range(8):
            assert await watched.scanned(read) == set()
