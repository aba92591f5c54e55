-- name: make
-- Yesterday's as well: in the first hours of a month there are processes whose clock is behind.
select make_partitions(coalesce($1::timestamptz, now()) - interval '1 day', coalesce($1::timestamptz, now()) + interval '3 months');

-- name: missing
select n.name
from pg_class c
cross join lateral (select coalesce($1::timestamptz, now()) at time zone 'UTC' as now) t
cross join generate_series(date_trunc('month', t.now), t.now + interval '1 month', interval '1 month') as m (month)
cross join lateral (select format('%s_%s', c.relname, to_char(m.month, 'YYYY_MM')) as name) n
where c.relkind = 'p' and c.relnamespace = 'switchboard'::regnamespace
  and not exists (select from pg_inherits i join pg_class p on p.oid = i.inhrelid where i.inhparent = c.oid and p.relname = n.name)
order by n.name;
