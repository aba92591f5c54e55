-- name: page
-- Messages of a conversation before an id, newest first.
select m.request_id, m.envelope #>> '{payload,normalized_text}' as text, m.envelope #>> '{control,idempotency_key}' as key,
       m.received_at, message_state(m.request_id) as state
from message_inbox m
where m.conversation = conversation_key($1) and m.request_id < $2
order by m.request_id desc limit $3;

-- name: replies
select o.request_id, o.outbox_id, o.system_id, o.text, o.files, o.state, o.created_at
from outbox o where o.request_id = any ($1::uuid[]) order by o.outbox_id;

-- name: ends
-- How the turns of a message have ended: the latest of each butler, in the order in which they were decided.
select e.system_id, e.state, e.engine, e.stop_reason, e.usage
from (
    select distinct on (d.system_id) d.system_id, d.state, d.created_at, a.engine, a.stop_reason, a.usage
    from delivery d
    join lane l on l.key = d.lane and l.kind = 'turn'
    left join lateral (
        select t.engine, t.stop_reason, t.usage from attempt t
        where t.request_id = d.request_id and t.lane = d.lane and t.seq = d.seq order by t.finished_at desc limit 1
    ) a on true
    where d.request_id = $1
    order by d.system_id, d.n desc, d.segment
) e order by e.created_at, e.system_id;

-- name: threads
-- Among the newest $4 messages of an endpoint before an id, those that are the last of their conversation.
with walked as materialized (
    select m.request_id, m.conversation from message_inbox m
    where m.channel = $1 and m.endpoint = $2 and ($3::uuid is null or m.request_id < $3)
    order by m.request_id desc limit $4
), newest as (
    select distinct on (conversation) request_id, conversation from walked order by conversation, request_id desc
), last as (
    select w.request_id from newest w
    where $3::uuid is null
       or not exists (select from message_inbox n where n.conversation = w.conversation and n.request_id > w.request_id)
)
select m.request_id, m.thread, m.received_at, left(m.envelope #>> '{payload,normalized_text}', 120) as text
from last l join message_inbox m using (request_id) where m.thread is not null
order by m.request_id desc limit $5;

-- name: threads_until
-- The oldest of these messages; null if there are fewer than $4.
select m.request_id from message_inbox m
where m.channel = $1 and m.endpoint = $2 and ($3::uuid is null or m.request_id < $3)
order by m.request_id desc offset $4 - 1 limit 1;

-- name: attachments
select m.request_id, m.envelope #> '{payload,attachments}' as files
from message_inbox m where m.request_id = any ($1::uuid[]) and m.envelope #> '{payload,attachments}' is not null;

-- name: tools
-- The tools that butlers have used for these messages, as `ledger.steps` finds them, in the order of the calls.
select s.request_id, d.system_id, c.call ->> 'name' as name, s.state
from delivery d
join step s on s.lane = d.lane and s.seq = d.seq and s.request_id = d.request_id and s.path like 'tool:%'
join step r on r.lane = s.lane and r.seq = s.seq and r.request_id = s.request_id
           and r.path = 'request:' || split_part(s.path, ':', 2)
cross join json_array_elements(r.result -> 'reply' -> 'calls') with ordinality c (call, n)
where d.request_id = any ($1::uuid[])
  and left(coalesce(nullif(c.call ->> 'id', ''), 'call_' || split_part(s.path, ':', 2) || '_' || c.n), 100)
      = regexp_replace(regexp_replace(s.path, '^tool:\d+:', ''), '#\d+$', '')
order by s.request_id, s.started_at, s.path;

-- name: ahead
-- How many earlier messages of its conversation the slowest turn of a message waits for.
select coalesce(max((
    select count(*) from delivery e where e.lane = d.lane and e.seq < d.seq and e.state = 'pending'
)), 0) from delivery d where d.request_id = $1 and d.state = 'pending';
