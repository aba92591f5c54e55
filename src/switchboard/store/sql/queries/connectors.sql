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

-- name: channels_in_use
-- Those of accounts that reported, and of messages: from one to the next by index, as each has many.
with recursive seen as (
    select min(channel) as channel from message_inbox
    union all
    select (select min(m.channel) from message_inbox m where m.channel > s.channel) from seen s where s.channel is not null
)
select channel from seen where channel is not null union select channel from connector order by 1;

-- name: open_work
-- What waits at accounts: of each kind the first 1,001 are looked at.
select o.channel, o.endpoint, 'waiting' as kind, count(*) as number
from (select channel, endpoint from outbox where state <> 'sent' and state = 'pending' order by outbox_id limit 1001) o group by 1, 2
union all
select c.channel, c.endpoint, 'held', sum(c.held) from (select channel, endpoint, held from contact where held > 0 limit 1001) c group by 1, 2
union all
select q.channel, q.endpoint, 'quarantined', count(*)
from (select channel, endpoint from quarantine order by quarantine_id limit 1001) q group by 1, 2;

-- name: last_traffic
-- When the last message of each account came in, and its last reply went out, if that is among the newest 2,000 of all.
select a.channel, a.endpoint, i.received_at as last_in, o.last_out, c.lease as starts
from unnest($1::text[], $2::text[]) as a (channel, endpoint)
left join lateral (
    select m.received_at from message_inbox m where m.channel = a.channel and m.endpoint = a.endpoint order by m.request_id desc limit 1
) i on true
left join connector_account c on c.channel = a.channel and c.endpoint = a.endpoint
left join (
    select n.channel, n.endpoint, max(n.settled_at) as last_out
    from (select channel, endpoint, state, settled_at from outbox order by outbox_id desc limit 2000) n
    where n.state = 'sent' group by 1, 2
) o on o.channel = a.channel and o.endpoint = a.endpoint;
