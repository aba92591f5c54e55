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
