-- part: sums
coalesce(sum(attempts), 0)::bigint as attempts, coalesce(sum(failed), 0)::bigint as failed,
coalesce(sum(tokens_in), 0)::bigint as tokens_in, coalesce(sum(tokens_out), 0)::bigint as tokens_out

-- part: ranked
ranked as (
    select s.*, coalesce(s.cost, -1) as dear, s.tokens_in + s.tokens_out as many from summed s
)

-- part: page
select key, messages, attempts, failed, tokens_in, tokens_out, cost / 1e6::float8 as cost_usd from ranked
where $8::text is null or (dear, many, coalesce(key, '')) < ($6::bigint, $7::bigint, $8)
order by dear desc, many desc, coalesce(key, '') desc limit $5

-- part: asked
-- What models were asked for a message: classifications by their time, answers in turns by when the message came.
asked as (
    select c.request_id, c.at, 'classification' as asker, c.team_id, null::text as system_id, c.model,
           (c.error is not null)::integer as failed, c.tokens_in, c.tokens_out, c.cost
    from classification c where c.at >= $1 and c.at < $2
    union all
    select d.request_id, s.started_at, 'turn', d.team_id, d.system_id, s.result -> 'reply' ->> 'model',
           (s.state = 'failed')::integer, s.tokens_in, s.tokens_out, s.cost
    from step s join delivery d using (lane, seq, request_id)
    where s.request_id >= $3::uuid and s.request_id < $4::uuid and s.path like 'request:%'
    union all
    select d.request_id, s.started_at, 'plan', d.team_id, d.system_id,
           coalesce(s.result -> 'reply' ->> 'model', s.result -> 'usage' -> 0 ->> 'model'),
           (s.state = 'failed')::integer, s.tokens_in, s.tokens_out, s.cost
    from step p join step s using (lane, seq, request_id) join delivery d using (lane, seq, request_id)
    where p.request_id >= $3::uuid and p.request_id < $4::uuid and p.path = 'plan:route' and s.tokens_out > 0
)

-- part: booked
-- Everything that models were asked, by whole days.
booked as (
    select u.*, to_char(u.day, 'YYYY-MM-DD') as date from model_usage u
    where u.day >= ($1 at time zone 'UTC')::date and u.day <= (($2 - interval '1 microsecond') at time zone 'UTC')::date
)

-- name: usage
-- By message or team: what was asked for it.
with {{asked}}, summed as (
    select case $9::text when 'team' then a.team_id else a.request_id::text end as key,
           count(distinct a.request_id) as messages, count(*) as attempts, sum(a.failed)::bigint as failed,
           sum(a.tokens_in)::bigint as tokens_in, sum(a.tokens_out)::bigint as tokens_out, sum(a.cost)::bigint as cost
    from asked a group by 1
), {{ranked}}
{{page}};

-- part: of_butlers
-- What was spent for each butler. What the classification of a message has cost is shared evenly, to the last token, by the
-- butlers of its first decision; null: nobody. All else is booked for its butler.
spent as (
    select a.request_id, count(*) as attempts, sum(a.failed)::bigint as failed, sum(a.tokens_in)::bigint as tokens_in,
           sum(a.tokens_out)::bigint as tokens_out, sum(a.cost)::bigint as cost
    from asked a where a.asker = 'classification' group by a.request_id
), shared as (
    select s.*, g.system_id, count(*) over (partition by s.request_id) as sharers,
           row_number() over (partition by s.request_id order by g.system_id) as place
    from spent s
    left join lateral (
        select distinct d.system_id from delivery d where d.request_id = s.request_id and d.n = 1
    ) g on true
), of_messages as (
    select s.system_id, s.request_id, s.attempts, s.failed,
           s.tokens_in / s.sharers + (s.place <= s.tokens_in % s.sharers)::integer as tokens_in,
           s.tokens_out / s.sharers + (s.place <= s.tokens_out % s.sharers)::integer as tokens_out,
           s.cost / s.sharers + (s.place <= s.cost % s.sharers)::integer as cost
    from shared s
    union all
    select distinct a.system_id, a.request_id, 0, 0, 0, 0, null::bigint from asked a where a.asker <> 'classification'
), of_butlers as (
    select m.system_id, m.request_id, m.attempts, m.failed, m.tokens_in, m.tokens_out, m.cost from of_messages m
    union all
    select nullif(b.butler, ''), null, b.attempts, b.failed, b.tokens_in, b.tokens_out, nullif(b.cost, 0)
    from booked b where b.asker <> 'classification'
)

-- name: usage_by_butler
with {{asked}}, {{booked}}, {{of_butlers}}, summed as (
    select e.system_id as key, count(distinct e.request_id) as messages, {{sums}}, sum(e.cost)::bigint as cost
    from of_butlers e group by 1
), {{ranked}}
{{page}};

-- name: usage_total_by_butler
with {{asked}}, {{booked}}, {{of_butlers}}
select count(distinct e.request_id) as messages, {{sums}}, sum(e.cost) / 1e6::float8 as cost_usd
from of_butlers e;

-- name: usage_booked
-- By day, model or asker. Days by themselves, all others by what they cost.
with {{asked}}, {{booked}}, named as (
    select case $9::text when 'day' then b.date when 'model' then b.model else b.asker end as key, b.* from booked b
), summed as (
    select n.key, {{sums}}, nullif(sum(n.cost), 0)::bigint as cost
    from named n group by n.key
), messages as (
    select case $9 when 'day' then to_char(a.at at time zone 'UTC', 'YYYY-MM-DD')
                   when 'model' then a.model else a.asker end as key,
           count(distinct a.request_id) as messages
    from asked a group by 1
), ranked as (
    select s.*, coalesce(m.messages, 0) as messages, case when $9 = 'day' then 0 else coalesce(s.cost, -1) end as dear,
           case when $9 = 'day' then 0 else s.tokens_in + s.tokens_out end as many
    from summed s left join messages m using (key)
)
{{page}};

-- name: usage_total
-- Of all messages.
with {{asked}}
select count(distinct a.request_id) as messages, count(*) as attempts, coalesce(sum(a.failed), 0)::bigint as failed,
       coalesce(sum(a.tokens_in), 0)::bigint as tokens_in, coalesce(sum(a.tokens_out), 0)::bigint as tokens_out,
       sum(a.cost) / 1e6::float8 as cost_usd
from asked a;

-- name: usage_total_booked
with {{asked}}, {{booked}}
select (select count(distinct a.request_id) from asked a) as messages, {{sums}},
       nullif(sum(b.cost), 0) / 1e6::float8 as cost_usd
from booked b;

-- name: by_butler
select u.butler as system_id, sum(u.tokens_in + u.tokens_out)::bigint as tokens, nullif(sum(u.cost), 0) / 1e6::float8 as cost_usd
from model_usage u where u.day = $1 and u.butler <> '' group by u.butler;

-- name: day
select coalesce(d.tokens, 0) as tokens, coalesce(d.micros, 0) as micros, coalesce(d.refused, 0) as refused,
       coalesce(d.newcomer_tokens, 0) as newcomer_tokens, coalesce(d.senders_refused, 0) as senders_refused,
       coalesce(r.tokens, 0)::bigint as held_tokens, coalesce(r.micros, 0)::bigint as held_micros,
       coalesce(r.newcomer_tokens, 0)::bigint as held_newcomer_tokens
from (select $1::date as day) t
left join model_day d on d.day = t.day
left join lateral (
    select sum(h.tokens) filter (where h.flow is null) as tokens, sum(h.micros) as micros,
           sum(h.tokens) filter (where h.newcomer) as newcomer_tokens
    from model_reservation h where h.day = t.day and h.until > clock_timestamp()
) r on true;

-- name: models_of_day
select u.model, {{sums}},
       sum(u.cache_read)::bigint as cache_read, sum(u.cache_write)::bigint as cache_write,
       nullif(sum(u.cost), 0) / 1e6::float8 as cost_usd
from model_usage u where u.day = $1 group by u.model;

-- name: cooldown
insert into model_cooldown (model, process, until, why, for_all) values ($1, $2, clock_timestamp() + $3, $4, $5)
on conflict (model, process) do update set
    until = excluded.until, why = excluded.why, for_all = excluded.for_all, at = clock_timestamp();

-- name: limit_context
insert into model_cooldown (model, process, until, why, context, context_until)
values ($1, $2, clock_timestamp(), '', $3, clock_timestamp() + $4)
on conflict (model, process) do update set context = excluded.context, context_until = excluded.context_until;

-- name: contexts
select distinct on (r.model) r.model, r.context as tokens, r.context_until as until from model_cooldown r
where r.context_until > clock_timestamp() order by r.model, r.context;

-- name: cooldowns
select distinct on (r.model) r.model, r.until, r.why from model_cooldown r
where r.until > clock_timestamp() order by r.model, r.until desc;

-- name: forget_reservations
delete from model_reservation where until < clock_timestamp();

-- name: forget_cooldowns
delete from model_cooldown
where until < clock_timestamp() and (context_until is null or context_until < clock_timestamp());

-- name: refuse_key
insert into model_refused_key (model, key_hash, why) values ($1, $2, $3) on conflict do nothing;

-- name: refused_keys
select distinct on (k.model) k.model, k.at, k.why from model_refused_key k order by k.model, k.at desc;

-- name: trust_keys
delete from model_refused_key where model = $1;

-- name: forget_refused_keys
delete from model_refused_key where at < clock_timestamp() - interval '1 day';

-- name: take_slot
select taken, paused_s, refused, context, context_s from take_slot_of_model($1, $2, $3, $4, $5, $6, $7, $8, $9);

-- name: renew_slots
update model_lease set until = clock_timestamp() + $2 where lease_id = any($1::uuid[]);

-- name: free_slot
with locally as materialized (select set_config('synchronous_commit', 'off', true))
delete from model_lease using locally where lease_id = $1;

-- name: forget_slots
delete from model_lease where until < clock_timestamp();

-- name: admit
select flow, reached, wait_s from reserve_for_sender($1, $2, $3, $4, $5, $6, $7, $8);

-- name: settle
select settle_for_sender($1, $2, $3, $4);

-- name: forget_flows
delete from model_flow where day < (now() at time zone 'UTC')::date - $1::integer;
