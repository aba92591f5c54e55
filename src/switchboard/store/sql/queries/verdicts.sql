-- name: list
-- Newest message first. What is not cut short by an index (team, butler, failed) costs a walk back until the page is full.
select c.request_id, v.name as conversation, c.team_id, c.n, c.session_id, c.candidates, c.verdict, c.model, c.tokens_in, c.tokens_out,
       c.cost, c.ms, c.error, c.corrected_to, c.corrected_by, c.at, c.corrected_at, c.correction,
       $1::boolean or exists (
           select from dead_letter x
           where x.request_id = c.request_id and x.team_id = any ($2::text[]) and x.emptied_at is null
       ) as seen,
       left(coalesce(part_of(c.request_id, 1::smallint, $11), m.envelope #>> '{payload,normalized_text}'), 200)
           as text
from classification c
join conversation v on v.conversation = c.conversation
left join message_inbox m on m.request_id = c.request_id
where ($3::uuid is null or (c.request_id, c.team_id, c.n) < ($3, $4::text, $5::integer))
  and ($6::text[] is null or c.team_id = any ($6))
  and ($7::text is null
       or c.verdict @> jsonb_build_object('routed', jsonb_build_array(jsonb_build_object('butler', $7::text))))
  and (not $8::boolean or c.error is not null)
  and (not $9::boolean or c.corrected_to is not null and not exists (  -- once per message and team, however often asked
      select from classification later
      where later.request_id = c.request_id and later.team_id = c.team_id
        and later.n > c.n and later.corrected_to is not null
  ))
order by c.request_id desc, c.team_id desc, c.n desc limit $10;

-- name: cases
-- The messages that somebody corrected, as the rules saw them; the newest first, and of each the latest correction.
select s.request_id, s.corrected_to, s.correction, s.facts from (
    select distinct on (c.request_id) c.request_id, c.corrected_to, c.correction, d.facts
    from classification c
    join decision d on d.request_id = c.request_id and d.n = 1
    where c.corrected_to is not null and d.facts is not null and ($1::text is null or c.team_id = $1)
    order by c.request_id desc, c.corrected_at desc
) s order by s.request_id desc limit $2;

-- name: correct
select decided, noted, n from correct_route($1, $2, $3, $4, $5::text[], $6, $7, $8::smallint, $9, $10);

-- name: usage
select case $1::text
           when 'day' then to_char(c.at at time zone 'UTC', 'YYYY-MM-DD')
           when 'model' then c.model
           when 'team' then c.team_id
           when 'message' then c.request_id::text
       end as key,
       count(distinct c.request_id) as messages, count(*) as attempts, count(c.error) as failed,
       sum(c.tokens_in)::bigint as tokens_in, sum(c.tokens_out)::bigint as tokens_out, sum(c.cost)::bigint as cost
from classification c where c.at >= $2 and c.at < $3
group by 1
order by case when $1 = 'day' then 1 end, case when $1 = 'day' then min(c.at) end desc, sum(c.cost) desc nulls last,
         sum(c.tokens_in + c.tokens_out) desc, 1
limit $4;

-- name: usage_by_butler
-- What a message has cost is shared evenly, to the last token, by the butlers of its first decision; null: nobody.
with spent as (
    select c.request_id, count(*) as attempts, count(c.error) as failed, sum(c.tokens_in)::bigint as tokens_in,
           sum(c.tokens_out)::bigint as tokens_out, sum(c.cost)::bigint as cost
    from classification c where c.at >= $1 and c.at < $2 group by c.request_id
), shared as (
    select s.*, g.system_id, count(*) over (partition by s.request_id) as sharers,
           row_number() over (partition by s.request_id order by g.system_id) as place
    from spent s
    left join lateral (
        select distinct d.system_id from delivery d where d.request_id = s.request_id and d.n = 1
    ) g on true
)
select s.system_id as key, count(*) as messages, sum(s.attempts)::bigint as attempts, sum(s.failed)::bigint as failed,
       sum(s.tokens_in / s.sharers + (s.place <= s.tokens_in % s.sharers)::integer)::bigint as tokens_in,
       sum(s.tokens_out / s.sharers + (s.place <= s.tokens_out % s.sharers)::integer)::bigint as tokens_out,
       sum(s.cost / s.sharers + (s.place <= s.cost % s.sharers)::integer)::bigint as cost
from shared s group by 1 order by 7 desc nulls last, 5 desc, 1 limit $3;

-- name: usage_by_asker
-- Of whole days; a message counts where it was classified.
select u.asker as key,
       case u.asker when 'classification' then (
           select count(distinct c.request_id) from classification c where c.at >= $1 and c.at < $2
       ) else 0 end as messages,
       sum(u.attempts)::bigint as attempts, sum(u.failed)::bigint as failed, sum(u.tokens_in)::bigint as tokens_in,
       sum(u.tokens_out)::bigint as tokens_out, nullif(sum(u.cost), 0)::bigint as cost
from model_usage u
where u.day >= ($1 at time zone 'UTC')::date and u.day <= (($2 - interval '1 microsecond') at time zone 'UTC')::date
group by u.asker order by 7 desc nulls last, 5 desc, 1 limit $3;

-- name: usage_total
select count(distinct c.request_id) as messages, count(*) as attempts, count(c.error) as failed,
       coalesce(sum(c.tokens_in), 0)::bigint as tokens_in, coalesce(sum(c.tokens_out), 0)::bigint as tokens_out,
       sum(c.cost)::bigint as cost
from classification c where c.at >= $1 and c.at < $2;

-- name: day
select coalesce(d.tokens, 0) as tokens, coalesce(d.micros, 0) as micros, coalesce(d.refused, 0) as refused,
       coalesce(r.tokens, 0)::bigint as held_tokens, coalesce(r.micros, 0)::bigint as held_micros
from (select $1::date as day) t
left join model_day d on d.day = t.day
left join lateral (
    select sum(h.tokens) as tokens, sum(h.micros) as micros
    from model_reservation h where h.day = t.day and h.until > clock_timestamp()
) r on true;

-- name: rest
insert into model_rest (model, process, until, why) values ($1, $2, clock_timestamp() + $3, $4)
on conflict (model, process) do update set until = excluded.until, why = excluded.why, at = clock_timestamp();

-- name: resting
select distinct on (r.model) r.model, r.until, r.why from model_rest r
where r.until > clock_timestamp() order by r.model, r.until desc;

-- name: forget_sessions
delete from session_token where session_id in (
    select s.session_id from session_token s where s.expires_at < clock_timestamp() - $1::interval
    order by s.expires_at limit $2 for no key update skip locked
);

-- name: forget_reservations
delete from model_reservation where until < clock_timestamp();

-- name: forget_rests
delete from model_rest where until < clock_timestamp();

-- name: forget_verdicts
-- What somebody corrected stays: it is what rules and models are measured by.
delete from classification c using (
    select f.request_id, f.team_id, f.n from classification f
    where f.at < clock_timestamp() - $1::interval and f.corrected_to is null
    order by f.at limit $2 for no key update skip locked
) old
where c.request_id = old.request_id and c.team_id = old.team_id and c.n = old.n;

-- name: forget_keys
-- Ids begin with their time: below $1 are those of longer ago.
delete from pipeline_key k using (
    select f.source, f.key from pipeline_key f where f.request_id < $1 order by f.request_id limit $2
    for no key update skip locked
) old
where k.source = old.source and k.key = old.key;

-- name: forget_calls
delete from route_call c using (
    select f.request_id, f.session_id, f.n from route_call f where f.at < clock_timestamp() - $1::interval
    order by f.at limit $2 for no key update skip locked
) old
where c.request_id = old.request_id and c.session_id = old.session_id and c.n = old.n;
