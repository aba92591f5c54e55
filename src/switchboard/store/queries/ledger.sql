-- name: of_message
select d.request_id, d.conversation, d.system_id, d.team_id, d.segment, d.lane, d.seq, d.error_class, d.created_at,
       d.settled_at,
       case when d.state <> 'pending' or l.done_seq + 1 <> d.seq then d.state
            when l.state = 'running' then 'running'
            when l.state = 'ready' and l.attempts > 0 then 'retrying'
            else 'pending' end as state,
       case when d.state <> 'pending' then (select count(*) from turn t where t.lane = d.lane and t.seq = d.seq)
            when l.done_seq + 1 = d.seq then l.attempts else 0 end as attempts
from delivery d left join lane l on l.key = d.lane
where d.request_id = $1
order by d.created_at, d.lane, d.seq;

-- name: list
select * from (
    select d.request_id, d.conversation, d.system_id, d.team_id, d.segment, d.lane, d.seq, d.error_class, d.created_at,
           d.settled_at,
           case when d.state <> 'pending' or l.done_seq + 1 <> d.seq then d.state
                when l.state = 'running' then 'running'
                when l.state = 'ready' and l.attempts > 0 then 'retrying'
                else 'pending' end as state,
           case when d.state <> 'pending' then (select count(*) from turn t where t.lane = d.lane and t.seq = d.seq)
                when l.done_seq + 1 = d.seq then l.attempts else 0 end as attempts
    from delivery d left join lane l on l.key = d.lane
    where ($1::uuid is null or (d.request_id, d.lane, d.seq) < ($1, $2::text, $3::bigint))
      and ($4::text is null or d.system_id = $4)
) x
where $5::text is null or x.state = $5
order by x.request_id desc, x.lane desc, x.seq desc limit $6;

-- name: turns
select t.lane, t.seq, t.epoch, t.outcome, t.error_class, t.error, t.engine, t.worker, t.started_at, t.finished_at
from delivery d join turn t on t.lane = d.lane and t.seq = d.seq
where d.request_id = $1 order by t.finished_at, t.epoch;

-- name: steps
select s.lane, s.seq, s.n, s.name, s.effect, s.state, s.epoch, s.started_at, s.done_at
from delivery d join step s on s.lane = d.lane and s.seq = d.seq
where d.request_id = $1 order by s.lane, s.seq, s.n;

-- name: decisions
select n, version, branches, trail, decided_at, facts from decision where request_id = $1 order by n;

-- name: per_system
select system_id, count(*) filter (where state = 'answered') as answered, count(*) filter (where state = 'dead') as dead,
       count(*) filter (where state = 'pending') as in_flight
from delivery group by system_id;

-- name: workers
select worker_id, host, pid, version, started_at, beat, beat + ttl >= clock_timestamp() as alive
from worker order by worker_id;

-- name: lane_states
select state, count(*) as lanes,
       coalesce(extract(epoch from clock_timestamp() - min(ready_at) filter (where state = 'ready' and pool in ('work', 'route'))), 0)::float8 as oldest_s
from lane where state <> 'idle' group by state;
