-- name: remove
delete from process where process_id = $1;

-- name: list
select process_id, role, kinds, host, pid, version, started_at, beat, beat + ttl >= clock_timestamp() as alive
from process where $1::text is null or role = $1 order by process_id;

-- name: alive
select process_id, role, host, pid, version, beat from process where beat + ttl >= clock_timestamp() order by process_id;
