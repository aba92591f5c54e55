-- part: schema
(select max(number) from migration where component = 'switchboard')

-- name: register
-- Nothing, if a newer release has brought the database to a schema that this one ($8) does not know.
insert into process (role, kinds, host, pid, version, ttl, has_lock)
select $1, $2, $3, $4, $5, $6, $7 where {{schema}} <= $8::integer
returning process_id;

-- name: hold_lock
select pg_advisory_lock($1, $2);

-- name: beat
-- Not waited for by a standby: one that is away costs no worker its lanes. Set for this transaction only.
with locally as materialized (select set_config('synchronous_commit', 'local', true))
update process set beat = clock_timestamp() from locally where process_id = $1 and {{schema}} <= $2::integer;

-- name: tend
select freed, woken from tend_lanes($1);

-- name: look
select freed, woken, pools, next_in, others, due, backlog, version, remote, people from look($1, $2, $3, $4, $5, $6);

-- name: release
select release_worker($1);

-- name: claim
select key as lane, kind, tier, seq, epoch, attempts, flow
from claim_in_turn($1, null, $2::text[], $3::text[], $4::smallint[], $5::integer[], $6::text[], $7::smallint[], $8::bigint[], $9::integer);

-- name: keep
select before from keep_lane($1, $2, $3, $4, $5);

-- name: plan_ahead
select plan_ahead();

-- name: load_turns
select lane, seq, request_id, conversation, system_id, team_id, segment, text, envelope, received_at, dead_letter, resumed, stopped
from load_turns($1::uuid[], $2::bigint[]);

-- name: load_notices
select n.lane, n.seq, n.request_id, c.name as conversation, n.system_id, n.team_id, 0 as segment,
       part_of(x.request_id, x.n, coalesce(h.team_id, n.team_id)) as text, m.envelope::text as envelope, m.received_at,
       jsonb_build_object('dead_letter_id', n.dead_letter_id, 'team_id', n.team_id, 'category', x.category,
                          'reason', x.reason, 'system_id', x.system_id)
       || case when (select conversation from lane where key = n.lane) is null then (
              select jsonb_build_object(
                  'dead_letters', n.dead_letters,
                  'categories', (
                      select jsonb_object_agg(c.category, c.dead_letters) from (
                          select y.category, count(*) as dead_letters from dead_letter y
                          where y.notice_lane = n.lane and y.notice_seq = n.seq group by y.category
                      ) c
                  ),
                  'digest', (
                      select jsonb_agg(to_jsonb(y) order by y.dead_letter_id) from (
                          select y.dead_letter_id, y.request_id, y.team_id, y.category, left(y.reason, 200) as reason,
                                 y.system_id,
                                 left(coalesce(part_of(y.request_id, y.n, coalesce(h.team_id, n.team_id)),
                                               y.payload #>> '{payload,normalized_text}'), 200) as text
                          from dead_letter y where y.notice_lane = n.lane and y.notice_seq = n.seq
                          order by y.dead_letter_id limit 200
                      ) y
                  ))
          ) else '{}' end as dead_letter,
       exists (select from step s where s.request_id = n.request_id and s.lane = n.lane and s.seq = n.seq) as resumed,
       is_stopped(n.lane, n.seq) as stopped
from unnest($1::uuid[], $2::bigint[]) as i (lane, seq)
join notice n on n.lane = i.lane and n.seq = i.seq
join dead_letter x on x.dead_letter_id = n.dead_letter_id
left join member h on h.system_id = n.system_id
join message_inbox m on m.request_id = n.request_id
join conversation c on c.conversation = m.conversation;

-- name: retry
select try_again($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);

-- name: tell_of_delay
select tell_of_delay($1, $2, $3, $4, $5, $6, $7);

-- name: settle
select lane, ok, next_seq from settle_turns($1, $2::settlement[]);

-- name: settle_with_entries
select lane, ok, next_seq from settle_turns_with_entries($1, $2::settlement[], $3);

-- name: settle_with_facts
select lane, ok, next_seq from settle_turns_with_facts($1, $2::settlement[], $3, $4);

-- name: hand_on
select lane, ok, next_seq from hand_on($1, $2::settlement[], $3, $4, $5, $6, $7, $8, $9, $10, $11);

-- name: facts
select d.facts from delivery x join decision d on d.request_id = x.request_id and d.n = 1 where x.lane = $1 and x.seq = $2;

-- name: list
select key, lane_name(key) as lane, kind, pool, state, last_seq - done_seq as waiting, parked, attempts, owner, epoch, ready_at, lease_until
from lane
where (state = any ($1) or parked > 0) and ($2::timestamptz is null or (ready_at, key) > ($2, $3::uuid))
order by ready_at, key limit $4;

-- name: paused
select lane_name(key) from lane where state = 'paused' order by ready_at, key limit $1;

-- name: resume
select resume_lane($1);

-- name: try_message
select try_message_now($1);

-- name: late
-- Of a message that came late and waits for its turn: how many other conversations of its endpoint are worked on.
select late_running(l.pool, l.flow) from lane l
where l.state = 'ready' and l.tier = 4 and not l.delayed and l.key in (
    select d.lane from delivery d where d.request_id = $1 and d.state = 'pending'
    union all
    select r.lane from routing r where r.request_id = $1 and r.state = 'pending'
)
limit 1;
