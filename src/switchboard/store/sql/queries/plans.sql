-- part: shown
-- Turns in which a plan was made, by the step that decided it.
p.request_id, p.lane, p.seq, d.system_id,
       case when d.state <> 'pending' then d.state when is_stopped(p.lane, p.seq) then 'stopping'
            when exists (select from parked k where k.lane = p.lane and k.seq = p.seq and k.decided_at is null) then 'waiting'
            else 'running' end as state,
       p.result::text as routed, left(m.envelope #>> '{payload,normalized_text}', 200) as message, n.ended, n.done, n.tokens,
       p.started_at as began_at, d.settled_at as ended_at
from step p
join delivery d on d.request_id = p.request_id and d.lane = p.lane and d.seq = p.seq
join message_inbox m on m.request_id = p.request_id
cross join lateral (
    select count(*) filter (where s.path !~ '[:/]' and s.state <> 'started') as ended,
           count(*) filter (where s.path !~ '[:/]' and s.state = 'done') as done, coalesce(sum(s.tokens_out), 0)::bigint as tokens
    from step s where s.request_id = p.request_id and s.lane = p.lane and s.seq = p.seq
) n
where p.path = 'plan:route' and p.state = 'done'

-- name: list
-- Newest message first, after a given one.
select {{shown}}
  and ($1::uuid is null or (p.request_id, p.lane) < ($1, $2::uuid)) and (not $3 or d.state = 'pending')
order by p.request_id desc, p.lane desc limit $4;

-- name: of_message
select {{shown}} and p.request_id = $1
order by d.system_id, p.seq;

-- name: steps
-- All that is on record of the turns of a message.
select s.lane, s.seq, s.path, s.state, s.result::text as result, s.tokens_out as tokens, s.started_at, s.ended_at
from step s where s.request_id = $1;
