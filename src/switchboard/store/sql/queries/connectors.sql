-- name: heartbeat
insert into connector (channel, endpoint, instance_id, version, state, error_message, counters)
values ($1, $2, $3, $4, $5, $6, $7)
on conflict (channel, endpoint) do update set instance_id = excluded.instance_id, version = excluded.version,
    state = excluded.state, error_message = excluded.error_message, counters = excluded.counters,
    last_seen_at = clock_timestamp();

-- name: list
select channel, endpoint, instance_id, version, state, error_message, counters, first_seen_at, last_seen_at,
       case when clock_timestamp() - last_seen_at < 2 * $1::interval then 'online'
            when clock_timestamp() - last_seen_at < 5 * $1::interval then 'stale'
            else 'offline' end as liveness
from connector
where $2::text is null or (channel, endpoint) > ($2, $3::text)
order by channel, endpoint limit $4::bigint;
