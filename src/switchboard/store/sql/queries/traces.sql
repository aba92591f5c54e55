-- name: begin
-- What was accepted before traces were switched on for the first time has none.
insert into trace_export (upto) values ($1) on conflict do nothing;

-- name: take
-- Take up to $3 messages that were not taken, none with an id up to $1: too old. $2: below it no further ids come. $4: the share of
-- them, of 2^32, by their last bits.
with mark as materialized (
    select greatest(t.upto, $1::uuid) as upto from trace_export t for update
), found as materialized (
    select m.request_id from message_inbox m
    where m.request_id > (select k.upto from mark k)
      and ('x' || right(m.request_id::text, 8))::bit(32)::bigint < $4::bigint
      and not exists (select from trace_message x where x.request_id = m.request_id)
    order by m.request_id limit $3
), taken as (
    insert into trace_message (request_id, look_at)
    select f.request_id, clock_timestamp() + interval '2 seconds' from found f on conflict do nothing
)
update trace_export t set upto = greatest(t.upto, case
    when (select count(*) from found) < $3 then $2::uuid
    else least($2::uuid, (select f.request_id from found f order by f.request_id desc limit 1))
end);

-- name: claim
-- Up to $1 messages that are due, for $2.
update trace_message t set look_at = clock_timestamp() + $2::interval
where t.request_id in (
    select x.request_id from trace_message x where not x.done and x.look_at <= clock_timestamp()
    order by x.look_at limit $1 for update skip locked
)
returning t.request_id, t.exported;

-- name: messages
-- working: something is still to come of it; later: something may, when somebody decides so.
select m.request_id, m.channel, m.endpoint, m.received_at,
       exists (select from delivery d where d.request_id = m.request_id and d.state = 'pending')
       or exists (select from routing r where r.request_id = m.request_id and r.state = 'pending')
       or exists (select from outbox o where o.request_id = m.request_id and o.state in ('pending', 'sending'))
       or exists (select from notice n where n.request_id = m.request_id and n.state = 'pending') as working,
       exists (select from held h where h.request_id = m.request_id and h.state = 'held')
       or exists (select from dead_letter x where x.request_id = m.request_id and x.status = 'pending') as later
from message_inbox m where m.request_id = any ($1::uuid[]);

-- name: decisions
-- waited_since: it was made after the message had waited for a model, or behind another one.
select d.request_id, d.n, d.version, d.branches, d.decided_at,
       (select r.created_at from routing r where r.request_id = d.request_id and d.n = 1) as waited_since
from decision d where d.request_id = any ($1::uuid[]);

-- name: classifications
select c.request_id, c.team_id, c.n, c.model, c.tokens_in, c.tokens_out, c.cost, c.ms, c.error is not null as failed, c.at
from classification c where c.request_id = any ($1::uuid[]);

-- name: attempts
select a.request_id, a.lane, a.seq, a.epoch, a.outcome, a.error_class, a.engine, a.worker, a.stop_reason, a.started_at,
       a.finished_at, case when d.lane is not null then 'turn' when r.lane is not null then 'route' else 'notice' end as kind,
       coalesce(d.system_id, n.system_id) as system_id, d.n
from attempt a
left join delivery d on d.lane = a.lane and d.seq = a.seq and d.request_id = a.request_id
left join routing r on r.lane = a.lane and r.seq = a.seq and r.request_id = a.request_id
left join notice n on n.lane = a.lane and n.seq = a.seq and n.request_id = a.request_id
where a.request_id = any ($1::uuid[]);

-- name: steps
select s.request_id, s.lane, s.seq, s.epoch, s.path, s.effect, s.state, s.tokens_in, s.tokens_out, s.cost, s.started_at,
       s.ended_at
from step s where s.request_id = any ($1::uuid[]) and s.ended_at is not null;

-- name: replies
select o.request_id, o.outbox_id, o.system_id, o.channel, o.state, o.created_at, o.settled_at,
       (select count(*) from receipt r where r.request_id = o.request_id and r.outbox_id = o.outbox_id)::integer as attempts,
       (select count(*) from outbox_part p where p.outbox_id = o.outbox_id)::integer as parts
from outbox o where o.request_id = any ($1::uuid[]) and o.settled_at is not null;

-- name: dead_letters
select x.request_id, x.dead_letter_id, x.category, x.handler, x.created_at
from dead_letter x where x.request_id = any ($1::uuid[]);

-- name: done
-- The collector has these spans of $1, of the same index in $2 as JSON lists; $3: all that there will be; $4: else, when to look
-- again.
with sent as (
    update trace_message t set exported = case when i.done then '{}' else t.exported || array(
               select e::bigint from json_array_elements_text(i.spans::json) e) end,
           done = i.done, look_at = clock_timestamp() + i.again
    from unnest($1::uuid[], $2::text[], $3::boolean[], $4::interval[]) as i (request_id, spans, done, again)
    where t.request_id = i.request_id
), gone as (
    delete from trace_message t using trace_export e where t.done and t.request_id <= e.upto
)
update trace_export e set spans = e.spans + $5, exported_at = clock_timestamp(), failing_since = null, why = '';

-- name: failed
update trace_export e set failing_since = coalesce(e.failing_since, clock_timestamp()), why = $1;

-- name: standing
-- Nothing, if no worker sends traces. behind: how long the message has been due whose turn is next, or the oldest that was not taken.
select e.spans, e.failing_since, e.why,
       (select count(*) from trace_message t where not t.done)::integer as messages,
       greatest(
           coalesce((select extract(epoch from clock_timestamp() - min(t.look_at)) from trace_message t where not t.done), 0),
           coalesce((
               select extract(epoch from clock_timestamp() - m.received_at) from message_inbox m
               where m.request_id > e.upto and m.request_id < $1
                 and not exists (select from trace_message t where t.request_id = m.request_id)
               order by m.request_id limit 1
           ), 0)
       )::float8 as behind_s
from trace_export e
where exists (
    select from schedule s where s.name = 'export_traces' and s.last_at > clock_timestamp() - interval '5 minutes'
);
