-- name: ours
-- What the driver knows of composite types must not be what it knows of others with the same numbers.
select t.typarray::bigint, t.oid::bigint, a.attname::text, a.atttypid::bigint
from pg_type t join pg_attribute a on a.attrelid = t.typrelid
where t.oid in (to_regtype('settlement'), to_regtype('step_write')) and a.attnum > 0
order by t.typarray, a.attnum;
