-- name: load
select r.request_id, c.name as conversation, r.pinned, r.facts, m.received_at, m.envelope::text as envelope,
       exists (select from step s where s.request_id = r.request_id and s.lane = r.lane and s.seq = r.seq) as resumed
from routing r join message_inbox m on m.request_id = r.request_id join conversation c using (conversation)
where r.lane = $1 and r.seq = $2;

-- name: settle
select ok, next_seq from settle_route(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10::text[], $11::text[], $12::text[],
    $13::uuid[], $14::text[], $15::text[], $16::text[], $17::text[], $18::text[], $19);

-- name: any_waiting
select exists (select from routing r where r.state = 'pending');

-- name: of_message
select lane_name(r.lane) as lane, r.seq, r.pinned, r.state, r.created_at, r.settled_at,
       case when l.next_seq = r.seq then l.attempts else 0 end as attempts,
       greatest(r.seq - l.done_seq - 1, 0) as before_it,
       case when l.next_seq = r.seq and l.state = 'ready' then l.ready_at end as ready_at
from routing r left join lane l on l.key = r.lane
where r.request_id = $1;

-- name: attempts
select lane_name(t.lane) as lane, t.seq, t.epoch, t.outcome, t.error_class, t.error, t.engine, t.worker, t.started_at, t.finished_at,
       t.stop_reason, t.usage
from routing r join attempt t on t.request_id = r.request_id and t.lane = r.lane and t.seq = r.seq
where r.request_id = $1 order by t.finished_at, t.epoch;

-- name: steps
select lane_name(s.lane) as lane, s.seq, s.path, null::text as tool, s.effect, s.state, s.epoch, s.tokens_in, s.tokens_out, s.cost / 1e6::float8 as cost_usd, s.started_at, s.ended_at,
       false as as_text
from routing r join step s on s.lane = r.lane and s.seq = r.seq and s.request_id = r.request_id
where r.request_id = $1 order by s.started_at, s.path;

-- name: last_butler
-- Who was last given a message of this sender in this conversation.
select d.system_id from message_inbox m join delivery d using (request_id)
where m.conversation = (select c.conversation from message_inbox c where c.request_id = $1)
  and m.sender = (select c.sender from message_inbox c where c.request_id = $1)
  and m.request_id < $1
order by m.request_id desc, d.segment limit 1;
