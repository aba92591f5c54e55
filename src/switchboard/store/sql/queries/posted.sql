-- name: lock
-- One at a time for an account, so that a higher number is never seen before a lower one, and none is counted too late.
select pg_advisory_xact_lock(hashtextextended('posted ' || $1::text || '/' || $2::text, 0));

-- name: put
-- Nothing if $5 events wait already; the number of the one with the mark $6 if that is among them. After `lock`, in a statement of
-- its own, which sees what was put before.
with known as (
    select posted_id from posted_event where channel = $1 and endpoint = $2 and mark = $6
), put as (
    insert into posted_event (channel, endpoint, raw, size_bytes, mark)
    select $1, $2, $3, $4, $6
    where not exists (select from known)
      and (select count(*) from (select from posted_event where channel = $1 and endpoint = $2 limit $5) waiting) < $5
    returning posted_id
)
select posted_id from known union all select posted_id from put;

-- name: next
-- Oldest first: at most $4 events, and $5 bytes unless the first has more.
select posted_id, raw from (
    select posted_id, raw, sum(size_bytes) over oldest as bytes, row_number() over oldest as number
    from (
        select posted_id, raw, size_bytes from posted_event
        where channel = $1 and endpoint = $2 and posted_id > $3 order by posted_id limit $4
    ) page
    window oldest as (order by posted_id)
) counted
where number = 1 or bytes <= $5 order by posted_id;

-- name: settle
delete from posted_event where channel = $1 and endpoint = $2 and posted_id <= $3;

-- name: forget
with old as (delete from posted_event where at < now() - $1::interval returning true) select count(*) from old;
