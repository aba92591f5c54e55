-- name: heartbeat
-- One that has ended, or that nobody has heard of for long, is forgotten when another one of its account reports. No row: as
-- many of the account as may report do so already ($10, and the one that holds the lease).
with gone as (
    delete from connector c where c.channel = $1 and c.endpoint = $2 and c.instance_id <> $3
        and (c.state = 'stopped' or c.last_seen_at < clock_timestamp() - 5 * $9::interval)
)
insert into connector as c (channel, endpoint, instance_id, version, state, error_message, counters, behind_since)
select $1, $2, $3, $4, $5, $6, $7, clock_timestamp() - $8::interval
where exists (select from connector c where c.channel = $1 and c.endpoint = $2 and c.instance_id = $3)
   or (select count(*) from connector c
       where c.channel = $1 and c.endpoint = $2 and c.state <> 'stopped' and c.last_seen_at >= clock_timestamp() - 5 * $9::interval)
      < $10::integer + (select count(*) from connector_account a where a.channel = $1 and a.endpoint = $2 and a.instance_id = $3)
on conflict (channel, endpoint, instance_id) do update set version = excluded.version,
    state = excluded.state, error_message = excluded.error_message, counters = excluded.counters,
    since = case when c.state = excluded.state then c.since else clock_timestamp() end,
    behind_since = excluded.behind_since, last_seen_at = clock_timestamp()
returning true;

-- name: list
-- The one that holds the lease serves its account; where nobody ever leased it, each does.
select c.channel, c.endpoint, c.instance_id, c.version, c.state, c.error_message, c.counters, c.since, c.first_seen_at, c.last_seen_at,
       extract(epoch from clock_timestamp() - c.behind_since)::float8 as lag_s,
       case when c.state = 'stopped' then 'offline'
            when clock_timestamp() - c.last_seen_at < 2 * $1::interval then 'online'
            when clock_timestamp() - c.last_seen_at < 5 * $1::interval then 'stale'
            else 'offline' end as liveness,
       catching_up(c.channel, c.endpoint) as catching_up,
       coalesce(a.instance_id = c.instance_id and a.lease_until > clock_timestamp(), true) as serving
from connector c left join connector_account a on a.channel = c.channel and a.endpoint = c.endpoint
where $2::text is null or (c.channel, c.endpoint, c.instance_id) > ($2, $3::text, $4::text)
order by c.channel, c.endpoint, c.instance_id limit $5::bigint;
