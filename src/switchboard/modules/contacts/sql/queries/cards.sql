-- part: older
(c.written_at is not null and (c.written_at >= $9::timestamptz
    or (c.written_at >= $9::timestamptz - interval '10 minutes' and c.replaced = excluded.etag)))

-- name: etags
select name, etag, check_again from card where account = $1 and book = $2;

-- name: keep
-- $9 is when the sync began. What was written since, and what was replaced in the last 10 minutes, is not overwritten.
-- $10: it is to be read again.
insert into card as c (account, book, name, etag, uid, shown, problem, data, check_again)
values ($1, $2, $3, $4, $5, $6, $7, $8, $10)
on conflict (account, book, name) do update
set etag = case when {{older}} then c.etag else excluded.etag end,
    uid = case when {{older}} then c.uid else excluded.uid end,
    shown = case when {{older}} then c.shown else excluded.shown end,
    data = case when {{older}} then c.data else excluded.data end,
    problem = case when {{older}} then c.problem else excluded.problem end,
    check_again = {{older}} or $10
returning check_again;

-- name: spare
-- Those that a tool has written in the last 10 minutes: a listing that lacks them may be older.
update card set check_again = true
where account = $1 and book = $2 and name = any($3::text[]) and written_at >= $4::timestamptz - interval '10 minutes';

-- name: drop
delete from card
where account = $1 and book = $2 and name = any($3::text[])
  and (written_at is null or written_at < $4::timestamptz - interval '10 minutes');

-- name: write
-- What a tool has written, as the server has it now; $8 is the ETag that it has replaced.
insert into card (account, book, name, etag, uid, shown, data, replaced, written_at)
values ($1, $2, $3, $4, $5, $6, $7, $8, now())
on conflict (account, book, name) do update
set etag = excluded.etag, uid = excluded.uid, shown = excluded.shown, data = excluded.data, problem = '',
    replaced = excluded.replaced, written_at = now(), check_again = false;

-- name: all
select book, name, etag, uid, shown, data, problem from card where account = $1 order by book, name;
