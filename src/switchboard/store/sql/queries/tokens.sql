-- name: create
insert into token (token_id, name, hash, role, channel, endpoint, system_id, created_at, expires_at)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
on conflict do nothing;

-- name: find
select token_id, name, role, channel, endpoint, system_id, created_at, expires_at, revoked_at from token where hash = $1;

-- name: list
select token_id, name, role, channel, endpoint, system_id, created_at, expires_at, revoked_at
from token where $1::uuid is null or token_id > $1 order by token_id limit $2::bigint;

-- name: revoke
update token set revoked_at = clock_timestamp() where name = $1 and revoked_at is null;

-- name: next_operator
select count(*) + 1 from token where role = 'operator' and (name = 'operator' or name like 'operator-%');
