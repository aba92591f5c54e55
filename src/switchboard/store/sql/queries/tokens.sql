-- name: create
-- Whoever removes its person waits for it, and then revokes it; or it waits for them, and there is no such person.
with whom as (select from person where person_id = $8 for key share)
insert into token (token_id, name, hash, role, channel, endpoint, system_id, person, created_at, expires_at)
select $1, $2, $3, $4, $5, $6, $7, $8, $9, $10 where $8 is null or exists (select from whom)
on conflict do nothing;

-- name: find
select token_id, name, role, channel, endpoint, system_id, person, created_at, expires_at, revoked_at from token where hash = $1;

-- name: list
select token_id, name, role, channel, endpoint, system_id, person, created_at, expires_at, revoked_at
from token where $1::uuid is null or token_id > $1 order by token_id limit $2::bigint;

-- name: revoke
-- A connector whose last token this was is not missed when it is silent.
with unheard as (
    delete from connector c using token t
    where t.name = $1 and t.revoked_at is null and t.role = 'connector' and c.channel = t.channel and c.endpoint = t.endpoint
      and not exists (select from token other where other.token_id <> t.token_id and other.role = 'connector'
                      and other.channel = t.channel and other.endpoint = t.endpoint and other.revoked_at is null)
)
update token set revoked_at = clock_timestamp() where name = $1 and revoked_at is null;

-- name: revoke_of
update token set revoked_at = clock_timestamp() where person = $1 and revoked_at is null;

-- name: was_revoked
select exists (select from token where name = $1 and revoked_at is not null);

-- name: next_operator
select count(*) + 1 from token where role = 'operator' and (name = 'operator' or name like 'operator-%');
