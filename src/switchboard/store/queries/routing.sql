-- name: load
select r.request_id, r.conversation, r.pinned, r.facts, m.received_at, m.envelope::text as envelope
from routing r join message_inbox m on m.request_id = r.request_id and m.conversation = r.conversation
where r.lane = $1 and r.seq = $2;

-- name: settle
select ok, next_seq from settle_route(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10::text[], $11::text[], $12::text[], $13::text[],
    $14::uuid[], $15::text[], $16::text[], $17::text[], $18::text[], $19::text[], $20);

-- name: any_waiting
select exists (select from routing r where r.state = 'pending');

-- name: of_message
select r.lane, r.seq, r.pinned, r.state, r.created_at, r.settled_at,
       case when l.done_seq + 1 = r.seq then l.attempts else 0 end as attempts,
       greatest(r.seq - l.done_seq - 1, 0) as before_it,
       case when l.done_seq + 1 = r.seq and l.state = 'ready' then l.ready_at end as ready_at
from routing r left join lane l on l.key = r.lane
where r.request_id = $1;

-- name: attempts
select t.lane, t.seq, t.epoch, t.outcome, t.error_class, t.error, t.engine, t.worker, t.started_at, t.finished_at
from routing r join turn t on t.lane = r.lane and t.seq = r.seq
where r.request_id = $1 order by t.finished_at, t.epoch;

-- name: steps
select s.lane, s.seq, s.n, s.name, s.effect, s.state, s.epoch, s.started_at, s.done_at
from routing r join step s on s.lane = r.lane and s.seq = r.seq
where r.request_id = $1 order by s.n;
