-- name: list
select m.system_id, m.promised, case jsonb_typeof(m.options -> 'beats') when 'boolean' then (m.options ->> 'beats')::boolean end as told, m.last_seen_at, m.announced, m.endpoint, m.own_endpoint,
       m.quarantined_by, m.quarantine_reason,
       extract(epoch from clock_timestamp() - greatest(coalesce(m.last_seen_at, m.since), l.since))::float8 as silence
from member m left join listening l on true
where m.engine = 'mcp' and m.active and ($1::text is null or m.system_id = $1) order by m.system_id;

-- name: announced
-- For how many seconds more nothing else may be announced; the row is held.
select extract(epoch from announced_at + $2::interval - clock_timestamp())::float8 as wait from member where system_id = $1;

-- name: hold
select system_id, team_id, number, engine, options, description, capabilities, active, announced, endpoint, own_endpoint
from member where system_id = $1 for no key update;

-- name: beat
update member set promised = true, last_seen_at = clock_timestamp(), announced = $2,
                  announced_at = case when $3::boolean then clock_timestamp() else announced_at end
where system_id = $1;

-- name: move
update member set endpoint = $2, own_endpoint = $3 where system_id = $1;

-- name: endpoint
select endpoint, own_endpoint from member where system_id = $1;

-- name: seen
-- At most one write a second, however often it answers.
update member set last_seen_at = clock_timestamp()
where system_id = $1 and (last_seen_at is null or last_seen_at < clock_timestamp() - interval '1 s');

-- name: quarantine
update member set quarantined_by = $2, quarantine_reason = $3 where system_id = $1 and engine = 'mcp'
       and (quarantined_by, quarantine_reason) is distinct from ($2, $3);

-- name: listen
insert into listening default values
on conflict (one) do update set at = clock_timestamp(),
    since = case when listening.at < clock_timestamp() - $1::interval then clock_timestamp() else listening.since end;
