-- name: plan
insert into schedule (name, every) select * from unnest($1::text[], $2::interval[])
on conflict (name) do update set every = excluded.every where schedule.every <> excluded.every;

-- name: due
update schedule s set next_at = clock_timestamp() + s.every
from (select name from schedule where next_at <= clock_timestamp() and name = any ($1) order by name for update skip locked) d
where s.name = d.name
returning s.name;

-- name: done
update schedule set last_at = clock_timestamp(), last_error = $2 where name = $1;
