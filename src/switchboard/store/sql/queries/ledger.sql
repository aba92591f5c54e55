-- part: shown
select d.request_id, c.name as conversation, d.system_id, d.team_id, d.segment, lane_name(d.lane) as lane, d.seq, d.error_class, d.created_at,
       d.settled_at,
       case when d.state <> 'pending' then d.state
            when p.seq is not null and l.next_seq <> d.seq then 'waiting'
            when l.next_seq <> d.seq then 'pending'
            when l.state = 'running' then 'running'
            when l.state = 'ready' and l.attempts > 0 then 'retrying'
            else 'pending' end as state,
       case when d.state <> 'pending' then (
                select count(*) from attempt t
                where t.request_id = d.request_id and t.lane = d.lane and t.seq = d.seq and t.outcome <> 'parked')
            when l.next_seq = d.seq then l.attempts else coalesce(p.attempts, 0) end as attempts
from delivery d left join lane l on l.key = d.lane left join conversation c using (conversation)
     left join parked p on p.lane = d.lane and p.seq = d.seq

-- name: of_message
{{shown}}
where d.request_id = $1
order by d.created_at, d.system_id, d.seq;

-- name: list
-- Planned each time (`planned`), by the given filters: the lanes of a butler that has few, all but the answered ones.
select * from (
    {{shown}}
    where ($1::uuid is null or (d.request_id, d.system_id, d.seq) < ($1, $2::text, $3::bigint))
      and ($4::text is null or l.system_id = $4)
      and ($5::text is null
           or d.state = case when $5 in ('answered', 'declined', 'dead', 'cancelled') then $5 else 'pending' end)
) x
where $5::text is null or x.state = $5
order by x.request_id desc, x.system_id desc, x.seq desc limit $6;

-- name: turns
select lane_name(t.lane) as lane, t.seq, t.epoch, t.outcome, t.error_class, t.error, t.engine, t.worker, t.started_at, t.finished_at,
       t.stop_reason, t.usage
from delivery d join attempt t on t.request_id = d.request_id and t.lane = d.lane and t.seq = d.seq
where d.request_id = $1 order by t.finished_at, t.epoch;

-- name: steps
-- tool: what the request with this number called, by the id of the call; `#2` tells apart calls that a model gave the same id.
select lane_name(s.lane) as lane, s.seq, s.path, called.tool, s.effect, s.state, s.epoch, s.tokens_in, s.tokens_out,
       s.cost / 1e6::float8 as cost_usd, s.started_at, s.ended_at, coalesce(called.as_text, false) as as_text
from delivery d join step s on s.lane = d.lane and s.seq = d.seq and s.request_id = d.request_id
left join lateral (
    select c.call ->> 'name' as tool, (c.call ->> 'as_text')::boolean as as_text from step r
    cross join json_array_elements(r.result -> 'reply' -> 'calls') with ordinality c (call, n)
    where s.path like 'tool:%' and r.request_id = s.request_id and r.lane = s.lane and r.seq = s.seq
      and r.path = 'request:' || split_part(s.path, ':', 2)
      and left(coalesce(nullif(c.call ->> 'id', ''), 'call_' || split_part(s.path, ':', 2) || '_' || c.n), 100)
          = regexp_replace(regexp_replace(s.path, '^tool:\d+:', ''), '#\d+$', '')
    order by c.n limit 1
) called on true
where d.request_id = $1 order by d.system_id, s.seq, s.started_at, s.path;

-- name: offered
-- What a turn with a model began with.
select lane_name(s.lane) as lane, s.seq, coalesce((f.frozen ->> 'by_owner')::boolean, false) as by_owner,
       array(select t ->> 'name' from json_array_elements(f.frozen -> 'tools') t) as tools
from delivery d join step s on s.lane = d.lane and s.seq = d.seq and s.request_id = d.request_id
cross join lateral (select case s.path when 'start' then s.result else s.result -> 'frozen' end as frozen) f
where d.request_id = $1 and s.path in ('start', 'plan:start') and json_typeof(f.frozen -> 'tools') = 'array';

-- name: told_facts
-- What the turns with a model were told of what is remembered, in this order.
select lane_name(s.lane) as lane, s.seq, t.fact_id::uuid as fact_id, f.author, f.text
from delivery d join step s on s.lane = d.lane and s.seq = d.seq and s.request_id = d.request_id
cross join lateral (select case s.path when 'start' then s.result else s.result -> 'frozen' end as frozen) z
cross join lateral json_array_elements_text(
    case when json_typeof(z.frozen -> 'facts') = 'array' then z.frozen -> 'facts' else '[]' end
) with ordinality as t (fact_id, n)
left join lateral fact_for_operator(t.fact_id::uuid) f on true
where d.request_id = $1 and s.path in ('start', 'plan:start')
order by s.lane, s.seq, t.n;

-- name: refused
-- Calls of models that failed or were not made; of the latter there is no step, only the request that returned the call.
-- They may still be made as long as the turn runs and nothing was asked after them.
select lane_name(r.lane) as lane, r.seq, r.path, c.call ->> 'name' as tool, left(s.result ->> 'text', 300) as said
from delivery d join step r on r.lane = d.lane and r.seq = d.seq and r.request_id = d.request_id
cross join lateral json_array_elements(r.result -> 'reply' -> 'calls') with ordinality c (call, n)
cross join lateral (select split_part(r.path, ':', 2)::bigint as n) asked
left join step s on s.request_id = r.request_id and s.lane = r.lane and s.seq = r.seq
    and s.path = format('tool:%s:%s', asked.n, left(coalesce(nullif(c.call ->> 'id', ''), format('call_%s_%s', asked.n, c.n)), 100))
where d.request_id = $1 and r.path ~ '^request:\d{1,9}$'
  and case when s.path is not null then (s.result ->> 'ok')::boolean is false
      else d.state not in ('pending', 'waiting') or exists (
          select from step l where l.request_id = r.request_id and l.lane = r.lane and l.seq = r.seq
                               and l.path = 'request:' || asked.n + 1) end
order by r.started_at, r.path, c.n;

-- name: decisions
select n, version, branches, trail, decided_at, facts from decision where request_id = $1 order by n;

-- name: lane_states
select state, count(*) as lanes,
       coalesce(extract(epoch from clock_timestamp() - min(ready_at) filter (where state = 'ready' and pool in ('work', 'route'))), 0)::float8 as oldest_s
from lane where state <> 'idle' group by state;

-- name: was_delivered
select exists (select from delivery where request_id = $1 and system_id = $2 and text is null);

-- name: rule_hits
-- How many of the newest decisions each rule made, or copied; one that leads to dead letters is in two steps of a trail.
select (step ->> 'rule_id')::uuid as rule_id, count(distinct (d.request_id, d.n)) as hits
from (select d.request_id, d.n, d.trail from decision d order by d.request_id desc, d.n desc limit $1) d
cross join json_array_elements(d.trail) as step
where step ->> 'rule_id' is not null
group by 1;
