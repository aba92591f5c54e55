-- name: order
select order_erased_files($1);

-- name: show_disk
-- Who carries out orders here. A disk that comes back after a long time, or is new, has everything before it.
-- It is written now and then only: an idle worker asks all the time.
insert into workspace_disk (disk, host)
select $1, $2 where not exists (
    select from workspace_disk d where d.disk = $1 and d.host = $2 and d.seen_at > clock_timestamp() - interval '10 minutes'
)
on conflict (disk) do update set host = excluded.host, seen_at = clock_timestamp();

-- name: ordered
select e.pattern, e.ordered_at from erased_files e
where e.ordered_at > greatest($2, (select d.erased_until from workspace_disk d where d.disk = $1))
order by e.ordered_at limit $3;

-- name: carried_out
update workspace_disk set erased_until = greatest(erased_until, $2) where disk = $1;

-- name: note_problem
-- Returns a row if it is another one than before.
update workspace_disk set problem = $2 where disk = $1 and problem is distinct from $2 returning disk;

-- name: pending
-- Disks where what was ordered is not done yet. One that no worker has shown for a month is gone; if it comes back, it is done.
select d.host, d.seen_at, d.problem from workspace_disk d
where d.seen_at > clock_timestamp() - interval '30 days'
  and exists (select from erased_files e where e.ordered_at > d.erased_until and e.ordered_at < clock_timestamp() - $1::interval)
order by d.host, d.disk;
