-- name: remove
delete from process where process_id = $1;

-- name: list
select process_id, role, kinds, host, pid, version, started_at, beat, beat + ttl >= clock_timestamp() as alive
from process where $1::text is null or role = $1 order by process_id;

-- name: oldest_snapshot
-- What a role that is no superuser may not see of others' sessions is null.
select coalesce(extract(epoch from clock_timestamp() - min(xact_start)), 0)::float8
from pg_stat_activity where datname = current_database() and backend_xmin is not null and pid <> pg_backend_pid();

-- name: alive
select process_id, role, host, pid, version, beat from process where beat + ttl >= clock_timestamp() order by process_id;
