-- name: work
-- Of lanes that are not idle, and of those with parked items, at most $1.
select l.system_id, count(*) filter (where l.state = 'running') as running,
       (sum(l.last_seq - l.done_seq) - count(*) filter (where l.state = 'running'))::bigint as waiting,
       count(*) filter (where l.state = 'paused') as paused, sum(l.parked)::bigint as parked
from (
    select n.* from lane n where (n.state <> 'idle' or n.parked > 0) limit $1
) l
where l.kind = 'turn' and l.system_id is not null
group by l.system_id;

-- name: failures
-- Of the messages from $1 on, at most the newest $2 that were not answered.
with failed as (
    select d.system_id, d.request_id, d.lane, d.seq,
           count(*) over (partition by d.system_id) as failed,
           row_number() over (partition by d.system_id order by d.request_id desc, d.seq desc) as place
    from (
        select n.* from delivery n where n.state <> 'answered' and n.request_id >= $1 order by n.request_id desc limit $2
    ) d
    where d.state = 'dead'
)
select f.system_id, f.failed, f.request_id, coalesce(a.error, '') as why
from failed f
left join lateral (
    select t.error from attempt t
    where t.request_id = f.request_id and t.lane = f.lane and t.seq = f.seq and t.error is not null
    order by t.epoch desc limit 1
) a on true
where f.place = 1;
