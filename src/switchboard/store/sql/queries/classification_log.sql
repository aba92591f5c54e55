-- name: list
-- Newest message first. What is not cut short by an index (team, butler, failed) costs a walk back until the page is full.
select c.request_id, v.name as conversation, c.team_id, c.n, c.session_id, c.candidates, c.result, c.model, c.tokens_in, c.tokens_out,
       c.cost / 1e6::float8 as cost_usd, c.ms as duration_ms, c.error, c.corrected_to, c.corrected_by, c.at, c.corrected_at, c.correction,
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
       or c.result @> jsonb_build_object('routed', jsonb_build_array(jsonb_build_object('butler', $7::text))))
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
      and ($3::uuid is null or c.request_id < $3)
    order by c.request_id desc, c.corrected_at desc
) s order by s.request_id desc limit $2;

-- name: correct
select decided, noted, n from correct_decision(
    $1, $2, $3, $4, $5::text[], $6, $7, $8, $9::smallint, $10::text[], $11::text[],
    $12::uuid[], $13::text[], $14::text[], $15::text[], $16::text[]
);

-- name: forget_sessions
delete from session_token where session_id in (
    select s.session_id from session_token s where s.expires_at < clock_timestamp() - $1::interval
    order by s.expires_at limit $2 for no key update skip locked
);

-- name: forget_classifications
-- What somebody corrected stays: it is what rules and models are measured by.
delete from classification c using (
    select f.request_id, f.team_id, f.n from classification f
    where f.at < clock_timestamp() - $1::interval and f.corrected_to is null
    order by f.at limit $2 for no key update skip locked
) old
where c.request_id = old.request_id and c.team_id = old.team_id and c.n = old.n;

-- name: forget_keys
-- Ids begin with their time: below $1 are those of longer ago.
with old as (
    select f.key, f.request_id from pipeline_key f where f.request_id < $1 order by f.request_id limit $2
    for no key update skip locked
), known as (
    delete from dedupe d using old where d.key = old.key and d.request_id = old.request_id
)
delete from pipeline_key k using old where k.key = old.key;

-- name: forget_calls
delete from route_call c using (
    select f.request_id, f.session_id, f.n from route_call f where f.at < clock_timestamp() - $1::interval
    order by f.at limit $2 for no key update skip locked
) old
where c.request_id = old.request_id and c.session_id = old.session_id and c.n = old.n;
