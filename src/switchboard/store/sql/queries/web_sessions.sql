-- part: shown
select s.session_id, t.name, t.role, t.channel, t.endpoint, s.label, s.created_at, s.used_at, s.expires_at
from web_session s join token t using (token_id)

-- part: token_holds
t.revoked_at is null and (t.expires_at is null or t.expires_at > clock_timestamp())

-- part: holds
s.expires_at > clock_timestamp() and s.used_at > clock_timestamp() - interval '7 days' and {{token_holds}}

-- name: make_link
-- Links and sessions that nobody can use any more are removed whenever a new link is made.
with old_links as (
    delete from web_link where expires_at <= clock_timestamp()
), old_sessions as (
    delete from web_session s using token t where t.token_id = s.token_id and not ({{holds}})
)
insert into web_link (hash, token_id, expires_at)
select $1, t.token_id, clock_timestamp() + $3::interval from token t where t.name = $2 and {{token_holds}}
returning expires_at;

-- name: token_named
select token_id, name, role, channel, endpoint, system_id, person, created_at, expires_at, revoked_at
from token t where t.name = $1 and {{token_holds}};

-- name: token_of_link
select t.token_id, t.name, t.role, t.channel, t.endpoint, t.system_id, t.person, t.created_at, t.expires_at, t.revoked_at
from web_link l join token t using (token_id)
where l.hash = $1 and l.expires_at > clock_timestamp() and {{token_holds}};

-- name: open_by_link
with used as (
    delete from web_link l using token t
    where l.hash = $1 and l.expires_at > clock_timestamp() and t.token_id = l.token_id and {{token_holds}}
    returning t.token_id
)
insert into web_session (session_id, hash, token_id, label, expires_at)
select $2, $3, token_id, $4, clock_timestamp() + $5::interval from used;

-- name: open_by_token
insert into web_session (session_id, hash, token_id, label, expires_at)
select $2, $3, t.token_id, $4, clock_timestamp() + $5::interval from token t where t.hash = $1 and {{token_holds}};

-- name: keep_newest
-- Of the token of this session, the $2 others that were used last; all beyond are ended.
delete from web_session where session_id in (
    select o.session_id from web_session s join web_session o using (token_id)
    where s.session_id = $1 and o.session_id <> $1 order by o.used_at desc offset $2);

-- name: find
{{shown}} where s.hash = $1 and {{holds}};

-- name: live
select s.session_id from web_session s join token t using (token_id) where s.session_id = any($1::uuid[]) and {{holds}};

-- name: touch
update web_session set used_at = clock_timestamp() where session_id = $1;

-- name: list
{{shown}} where {{holds}} and ($1::uuid is null or s.session_id < $1) order by s.session_id desc limit $2;

-- name: end
delete from web_session where session_id = $1;

-- name: end_all
delete from web_session where session_id is distinct from $1;
