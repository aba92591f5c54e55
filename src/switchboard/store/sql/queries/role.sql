-- name: to_set
-- The statements that set on our role, for this database, what is not set yet.
select format('alter role %I in database %I set %I = %L', current_user, current_database(), s.name, s.value)
from unnest($1::text[], $2::text[]) as s (name, value)
where not exists (
    select from pg_db_role_setting g join pg_database d on d.oid = g.setdatabase
    where d.datname = current_database() and g.setrole = current_user::regrole and s.name || '=' || s.value = any (g.setconfig));
