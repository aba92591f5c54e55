-- name: find
select d.lane, d.state, l.state = 'ready' and l.ready_at > clock_timestamp() as delayed, a.error, a.stop_reason, a.usage, o.text, o.files,
       p.program is not null and a.worker is distinct from p.program as taken_over
from delivery d
join lane l on l.key = d.lane
left join lateral (
    select t.error, t.stop_reason, t.usage, t.worker from attempt t
    where t.request_id = d.request_id and t.lane = d.lane and t.seq = d.seq order by t.finished_at desc limit 1
) a on true
left join lateral (  -- after a reroute a worker's delivery follows that of the program
    select e.program from delivery e
    where e.request_id = d.request_id and e.system_id = d.system_id and e.program is not null order by e.n desc limit 1
) p on true
left join lateral (
    select r.text, r.files from outbox r where r.request_id = d.request_id and r.system_id = d.system_id order by r.seq desc limit 1
) o on true
where d.request_id = $1 and d.system_id = $2
order by d.n desc limit 1;

-- name: claim
select key as lane, kind, tier, seq, epoch, attempts, flow from claim_lane($1, $2);

-- name: ask_anew
select ask_anew($1, $2, $3::uuid[]);
