-- part: page
select key, messages, attempts, failed, tokens_in, tokens_out, cost / 1e6::float8 as cost_usd from ranked
where $6::text is null or (dear, many, coalesce(key, '')) < ($4::bigint, $5::bigint, $6)
order by dear desc, many desc, coalesce(key, '') desc limit $3

-- name: usage
-- Days by themselves, all others by what they cost.
with spent as (
    select case $7::text
               when 'day' then to_char(c.at at time zone 'UTC', 'YYYY-MM-DD')
               when 'model' then c.model
               when 'team' then c.team_id
               when 'message' then c.request_id::text
           end as key,
           count(distinct c.request_id) as messages, count(*) as attempts, count(c.error) as failed,
           sum(c.tokens_in)::bigint as tokens_in, sum(c.tokens_out)::bigint as tokens_out, sum(c.cost)::bigint as cost
    from classification c where c.at >= $1 and c.at < $2
    group by 1
), ranked as (
    select s.*, case when $7 = 'day' then 0 else coalesce(s.cost, -1) end as dear,
           case when $7 = 'day' then 0 else s.tokens_in + s.tokens_out end as many
    from spent s
)
{{page}};

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
), summed as (
    select s.system_id as key, count(*) as messages, sum(s.attempts)::bigint as attempts, sum(s.failed)::bigint as failed,
           sum(s.tokens_in / s.sharers + (s.place <= s.tokens_in % s.sharers)::integer)::bigint as tokens_in,
           sum(s.tokens_out / s.sharers + (s.place <= s.tokens_out % s.sharers)::integer)::bigint as tokens_out,
           sum(s.cost / s.sharers + (s.place <= s.cost % s.sharers)::integer)::bigint as cost
    from shared s group by 1
), ranked as (
    select s.*, coalesce(s.cost, -1) as dear, s.tokens_in + s.tokens_out as many from summed s
)
{{page}};

-- name: usage_by_asker
-- Of whole days; a message counts where it was classified.
with summed as (
    select u.asker as key,
           case u.asker when 'classification' then (
               select count(distinct c.request_id) from classification c where c.at >= $1 and c.at < $2
           ) else 0 end as messages,
           sum(u.attempts)::bigint as attempts, sum(u.failed)::bigint as failed, sum(u.tokens_in)::bigint as tokens_in,
           sum(u.tokens_out)::bigint as tokens_out, nullif(sum(u.cost), 0)::bigint as cost
    from model_usage u
    where u.day >= ($1 at time zone 'UTC')::date and u.day <= (($2 - interval '1 microsecond') at time zone 'UTC')::date
    group by u.asker
), ranked as (
    select s.*, coalesce(s.cost, -1) as dear, s.tokens_in + s.tokens_out as many from summed s
)
{{page}};

-- name: usage_total
select count(distinct c.request_id) as messages, count(*) as attempts, count(c.error) as failed,
       coalesce(sum(c.tokens_in), 0)::bigint as tokens_in, coalesce(sum(c.tokens_out), 0)::bigint as tokens_out,
       sum(c.cost) / 1e6::float8 as cost_usd
from classification c where c.at >= $1 and c.at < $2;

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
select u.model, sum(u.attempts)::bigint as attempts, sum(u.failed)::bigint as failed,
       sum(u.tokens_in)::bigint as tokens_in, sum(u.tokens_out)::bigint as tokens_out,
       sum(u.cache_read)::bigint as cache_read, sum(u.cache_write)::bigint as cache_write,
       nullif(sum(u.cost), 0) / 1e6::float8 as cost_usd
from model_usage u where u.day = $1 group by u.model;

-- name: cooldown
insert into model_cooldown (model, process, until, why, for_all) values ($1, $2, clock_timestamp() + $3, $4, $5)
on conflict (model, process) do update set
    until = excluded.until, why = excluded.why, for_all = excluded.for_all, at = clock_timestamp();

-- name: cooldowns
select distinct on (r.model) r.model, r.until, r.why from model_cooldown r
where r.until > clock_timestamp() order by r.model, r.until desc;

-- name: forget_reservations
delete from model_reservation where until < clock_timestamp();

-- name: forget_cooldowns
delete from model_cooldown where until < clock_timestamp();

-- name: refuse_key
insert into model_refused_key (model, key_hash, why) values ($1, $2, $3) on conflict do nothing;

-- name: refused_keys
select distinct on (k.model) k.model, k.at, k.why from model_refused_key k order by k.model, k.at desc;

-- name: trust_keys
delete from model_refused_key where model = $1;

-- name: forget_refused_keys
delete from model_refused_key where at < clock_timestamp() - interval '1 day';

-- name: take_slot
select taken, paused_s, refused from take_slot_of_model($1, $2, $3, $4, $5, $6, $7);

-- name: renew_slots
update model_lease set until = clock_timestamp() + $2 where lease_id = any($1::uuid[]);

-- name: free_slot
delete from model_lease where lease_id = $1;

-- name: forget_slots
delete from model_lease where until < clock_timestamp();

-- name: admit
select flow, reached, wait_s from reserve_for_sender($1, $2, $3, $4, $5, $6, $7, $8);

-- name: settle
select settle_for_sender($1, $2, $3, $4);

-- name: forget_flows
delete from model_flow where day < (now() at time zone 'UTC')::date - $1::integer;
