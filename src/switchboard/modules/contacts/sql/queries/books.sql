-- name: all
-- With what is due by the database's clock: $2 is how old a full sync may be, $3 how old a doubt must be to count.
select book, url, name, writable, cursor, complete, synced_at, doubted, now() as started,
       full_at is null or full_at < now() - $2::interval or doubted_at is not null as full_due,
       missing_at is not null as missing,
       coalesce(doubted_at <= now() - $3::interval, false) as ripe
from book where account = $1 order by book;

-- name: find
insert into book (account, book, url, name, writable) values ($1, $2, $3, $4, $5)
on conflict (account, book) do update
set url = excluded.url, name = excluded.name, writable = excluded.writable, missing_at = null;

-- name: miss
-- A book that the server does not name: it goes, if it was missing $3 ago already.
with gone as (
    delete from book where account = $1 and not book = any($2::text[]) and missing_at <= now() - $3::interval
    returning book
)
update book b set missing_at = coalesce(b.missing_at, now()), complete = false
where b.account = $1 and not b.book = any($2::text[]) and not exists (select from gone g where g.book = b.book);

-- name: doubt
-- Nothing of this is gone yet; the next sync is a full one. A doubt keeps its age if it has no name that is new.
update book set doubted_at = case when doubted @> $3::text[] then coalesce(doubted_at, now()) else now() end,
       doubted = $3::text[], cursor = '', complete = false
where account = $1 and book = $2;

-- name: finish
update book set cursor = $3, complete = $4, synced_at = now(), doubted = '{}', doubted_at = null,
       full_at = case when $5 then now() else full_at end
where account = $1 and book = $2;
