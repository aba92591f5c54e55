"""Fills a database with any number of messages, without processing each of them.

Called by `grow.py`. In: a few real messages; out: copies of their rows over 90 days. All rows that the accept leg, the
worker and the connector wrote are multiplied, with ids, conversations, keys and times of their own. One message in 500
is a dead letter, one in 10,000 came through a rare channel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from switchboard.store.database import Database

CHANNEL: Final = "telegram"
ENDPOINT: Final = "bot:grow"
RARE: Final = "email"
PER_CHAT: Final = 20
"""Average number of messages per conversation; older ones have more."""
_SLICE: Final = 25_000

_PARTITIONS: Final = "select make_partitions(now() - interval '90 days', now())"

_TABLE: Final = """
create temporary table if not exists slice (
    n bigint, at timestamptz, dead boolean, sender text, name text, conversation uuid, copied uuid, request_id uuid,
    other_id uuid, seq bigint, lane uuid, send_lane uuid
) on commit delete rows
"""

# $1, $2: from, and to (exclusive); $3: total of messages; $4: the real ones; other_id: that of reply or dead letter.
_PLAN: Final = """
insert into slice (n, at, dead, sender, name, conversation, copied, request_id, other_id)
select g.n, a.at, g.n % 500 = 103, a.sender, a.name, conversation_key(a.name),
       ($4::uuid[])[1 + g.n % cardinality($4::uuid[])],
       (a.ms || '7' || substr(md5('m' || g.n), 1, 3) || '8' || substr(md5('m' || g.n), 4, 15))::uuid,
       (a.ms || '7' || substr(md5('o' || g.n), 1, 3) || '8' || substr(md5('o' || g.n), 4, 15))::uuid
from generate_series($1::bigint, $2::bigint - 1) as g (n)
cross join lateral (
    select (5480000000 + abs(hashint8(g.n)::bigint) % (g.n / $5::bigint + 1))::text as sender,
           now() - interval '90 days' * (1 - g.n / $3::float8) as at
) t
cross join lateral (
    select t.at, t.sender, $6 || t.sender as name,
           lpad(to_hex((extract(epoch from t.at) * 1000)::bigint), 12, '0') as ms
) a
"""

_FILL: Final = (
    "analyze slice",
    """
    update slice s set seq = x.seq, lane = x.lane, send_lane = x.send_lane
    from (
        select p.n, k.lane, k.send_lane,
               coalesce(l.last_seq, 0) + row_number() over (partition by p.conversation order by p.n) as seq
        from slice p
        join delivery d on d.request_id = p.copied
        cross join lateral (
            select lane_key('turn', d.system_id, p.conversation) as lane,
                   lane_key('send', null, p.conversation) as send_lane
        ) k
        left join lane l on l.key = k.lane
        where not p.dead
    ) x where x.n = s.n
    """,
    """
    insert into conversation (conversation, name)
    select distinct conversation, name from slice on conflict do nothing
    """,
    """
    insert into lane (key, kind, system_id, conversation, pool, tier, last_seq, done_seq, epoch, ready_at)
    select s.lane, l.kind, l.system_id, s.conversation, l.pool, l.tier, max(s.seq), max(s.seq), max(s.seq), max(s.at)
    from slice s join delivery d on d.request_id = s.copied join lane l on l.key = d.lane
    where not s.dead group by s.lane, l.kind, l.system_id, s.conversation, l.pool, l.tier
    union all
    select s.send_lane, l.kind, l.system_id, s.conversation, l.pool, l.tier, max(s.seq), max(s.seq), max(s.seq),
           max(s.at)
    from slice s join outbox o on o.request_id = s.copied join lane l on l.key = o.lane
    where not s.dead group by s.send_lane, l.kind, l.system_id, s.conversation, l.pool, l.tier
    on conflict (key) do update set last_seq = excluded.last_seq, done_seq = excluded.done_seq, epoch = excluded.epoch
    """,
    """
    insert into message_inbox (request_id, conversation, channel, endpoint, sender, thread, envelope, media_type,
                               received_at)
    select s.request_id, s.conversation, case when s.n % 10000 = 101 then 'email' else m.channel end, m.endpoint,
           s.sender, m.thread, m.envelope, m.media_type, s.at
    from slice s join message_inbox m on m.request_id = s.copied
    """,
    """
    insert into message_raw (request_id, raw)
    select s.request_id, w.raw from slice s join message_raw w on w.request_id = s.copied
    """,
    """
    insert into dedupe (key, body, request_id)
    select md5('k' || s.n)::uuid, md5('b' || s.n)::uuid, s.request_id from slice s
    """,
    """
    insert into decision (request_id, n, version, branches, trail, decided_at, facts)
    select s.request_id, d.n, d.version, d.branches, d.trail, s.at, d.facts
    from slice s join decision d on d.request_id = s.copied
    """,
    """
    insert into delivery (lane, seq, request_id, system_id, team_id, state, created_at, settled_at)
    select s.lane, s.seq, s.request_id, d.system_id, d.team_id, d.state, s.at, s.at + interval '1 second'
    from slice s join delivery d on d.request_id = s.copied where not s.dead
    """,
    """
    insert into attempt (request_id, lane, seq, epoch, outcome, engine, worker, started_at, finished_at)
    select s.request_id, s.lane, s.seq, s.seq, t.outcome, t.engine, t.worker, s.at, s.at + interval '1 second'
    from slice s join attempt t on t.request_id = s.copied where not s.dead
    """,
    """
    insert into outbox (lane, seq, outbox_id, request_id, system_id, channel, endpoint, thread, recipient, reply_to,
                        text, state, platform_message_id, created_at, settled_at)
    select s.send_lane, s.seq, s.other_id, s.request_id, o.system_id, o.channel, o.endpoint, o.thread, s.sender,
           o.reply_to, o.text, o.state, s.n::text, s.at + interval '1 second', s.at + interval '2 seconds'
    from slice s join outbox o on o.request_id = s.copied where not s.dead
    """,
    """
    insert into receipt (request_id, outbox_id, epoch, outcome, platform_message_id, at)
    select s.request_id, s.other_id, s.seq, r.outcome, s.n::text, s.at + interval '2 seconds'
    from slice s join receipt r on r.request_id = s.copied where not s.dead
    """,
    """
    insert into dead_letter (dead_letter_id, conversation, request_id, team_id, channel, payload, raw, category, reason,
                             received_at, created_at, status, handled_by_system_id, resolution, handled_at,
                             sender_spared)
    select s.other_id, s.conversation, s.request_id, 'root', m.channel, m.envelope::jsonb, w.raw, 'no_route',
           'no rule of the team root takes it', s.at, s.at, x.status, case x.status when 'handled' then 'olga' end,
           case x.status when 'handled' then 'spam' end,
           case x.status when 'handled' then s.at + interval '1 hour' end, true
    from slice s
    join message_inbox m on m.request_id = s.copied
    join message_raw w on w.request_id = s.copied
    cross join lateral (select case when s.n % 5000 = 103 then 'pending' else 'handled' end as status) x
    where s.dead
    """,
)


async def fill(database: Database, start: int, end: int, messages: int, copied: Sequence[UUID]) -> None:
    """Insert messages `start` to `end` of `messages` as copies of `copied`: all answered, or dead letters."""
    await database.run(_PARTITIONS)
    name = f"{CHANNEL}/{ENDPOINT.replace(':', '%3A')}/"
    for low in range(start, end, _SLICE):
        async with database.connection() as connection, connection.transaction():
            await connection.execute(_TABLE)
            await connection.execute(_PLAN, low, min(end, low + _SLICE), messages, list(copied), PER_CHAT, name)
            for statement in _FILL:
                await connection.execute(statement)
