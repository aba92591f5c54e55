-- part: long_missing
-- $2: those that the server names; one that is missing goes if it was missing $3 ago already.
c.account = $1 and not c.collection = any($2::text[]) and c.missing_at <= now() - $3::interval

-- name: all
-- With what is due by the database's clock: $2 is how old a full sync may be, $3 how old a doubt must be to count.
select collection, url, name, writable, shared, colour, zone, cursor, complete, synced_at, doubted, now() as started,
       full_at is null or full_at < now() - $2::interval or doubted_at is not null as full_due,
       missing_at is not null as missing,
       coalesce(doubted_at <= now() - $3::interval, false) as ripe
from collection where account = $1 order by collection;

-- name: find
insert into collection (account, collection, url, name, writable, colour, zone) values ($1, $2, $3, $4, $5, $6, $7)
on conflict (account, collection) do update
set url = excluded.url, name = excluded.name, writable = excluded.writable, colour = excluded.colour,
    zone = excluded.zone, missing_at = null;

-- name: share
update collection set shared = collection = any($2::text[]) where account = $1;

-- name: leaving
select c.collection, o.name from collection c join object o using (account, collection) where {{long_missing}};

-- name: drop
delete from collection c where {{long_missing}};

-- name: miss
update collection set missing_at = coalesce(missing_at, now()), complete = false
where account = $1 and not collection = any($2::text[]);

-- name: doubt
-- Nothing of this is gone yet; the next sync is a full one. A doubt keeps its age if it has no name that is new.
update collection
set doubted_at = case when doubted @> $3::text[] then coalesce(doubted_at, now()) else now() end,
    doubted = $3::text[], cursor = '', complete = false
where account = $1 and collection = $2;

-- name: finish
update collection set cursor = $3, complete = $4, synced_at = now(), doubted = '{}', doubted_at = null,
       full_at = case when $5 then now() else full_at end
where account = $1 and collection = $2;
