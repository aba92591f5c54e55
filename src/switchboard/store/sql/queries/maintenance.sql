-- The table keeps the name by which processes of earlier releases know it; a schedule is otherwise a time window, or a module.

-- name: plan
insert into schedule (name, every) select * from unnest($1::text[], $2::interval[])
on conflict (name) do update set every = excluded.every where schedule.every <> excluded.every;

-- name: due
-- A task that has nothing to do stays due: it begins as soon as it has.
update schedule s set next_at = clock_timestamp() + s.every
from (select name from schedule where next_at <= clock_timestamp() and name = any ($1) and has_work(name) order by name for update skip locked) d
where s.name = d.name
returning s.name;

-- name: done
update schedule set last_at = clock_timestamp(), last_error = $2 where name = $1;

-- name: failed
-- Lately: a task that this release no longer has stays as it ended.
select name, last_at as at, last_error as error from schedule
where last_error is not null and last_at > clock_timestamp() - greatest(2 * every, interval '1 hour')
order by name;
