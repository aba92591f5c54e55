-- part: older
(o.written_at is not null and (o.written_at >= $8::timestamptz
    or (o.written_at >= $8::timestamptz - interval '10 minutes' and o.replaced = excluded.etag)))

-- name: etags
select name, etag, check_again from object where account = $1 and collection = $2;

-- name: keep
-- $8 is when the sync began. What was written since, and what was replaced in the last 10 minutes, is not overwritten.
-- $9: it is to be read again. `taken`: what is kept is this.
insert into object as o (account, collection, name, etag, uid, problem, data, check_again)
values ($1, $2, $3, $4, $5, $6, $7, $9)
on conflict (account, collection, name) do update
set etag = case when {{older}} then o.etag else excluded.etag end,
    uid = case when {{older}} then o.uid else excluded.uid end,
    data = case when {{older}} then o.data else excluded.data end,
    problem = case when {{older}} then o.problem else excluded.problem end,
    check_again = {{older}} or $9
returning problem = $6 and data = $7 as taken;

-- name: spoil
-- Why what is kept cannot be read.
update object set problem = $4 where account = $1 and collection = $2 and name = $3;

-- name: spare
-- Those that a tool has written in the last 10 minutes: a listing that lacks them may be older.
update object set check_again = true
where account = $1 and collection = $2 and name = any($3::text[])
  and written_at >= $4::timestamptz - interval '10 minutes';

-- name: drop
delete from object
where account = $1 and collection = $2 and name = any($3::text[])
  and (written_at is null or written_at < $4::timestamptz - interval '10 minutes')
returning name;

-- name: write
-- What a tool has written; $7 is the ETag that it has replaced. Servers order the lines of an event anew, though they
-- answer with a strong ETag: the next sync reads what they have made of it.
insert into object (account, collection, name, etag, uid, data, replaced, written_at, check_again)
values ($1, $2, $3, $4, $5, $6, $7, now(), true)
on conflict (account, collection, name) do update
set etag = excluded.etag, uid = excluded.uid, data = excluded.data, problem = '', replaced = excluded.replaced,
    written_at = now(), check_again = true;

-- name: forget
-- What a tool has deleted on the server.
delete from object where account = $1 and collection = $2 and name = $3;

-- name: of_uid
select collection, name, etag, uid, data, problem from object where account = $1 and uid = $2 order by collection, name;

-- name: all
select collection, name, etag, uid, data, problem from object where account = $1 order by collection, name;
