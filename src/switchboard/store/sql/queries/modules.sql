-- name: schemas
select nspname as name from pg_namespace;

-- name: database
select current_database();

-- name: room
-- What there is of a module's schema ($1) and role ($2), and what our role may make.
select n.nspname is not null as schema, coalesce(pg_has_role(current_user, n.nspowner, 'usage'), false) as ours,
       exists (select from pg_roles where rolname = $2) as role,
       has_database_privilege(current_database(), 'create') as may_make_schema,
       (select rolcreaterole or rolsuper from pg_roles where rolname = current_user) as may_make_role
from (values ($1::text)) as asked (name) left join pg_namespace n on n.nspname = asked.name;

-- name: statements
-- DDL takes no parameters: what it is about is put in here. $1: the schema, $2: the role,
select $1::text as schema, $2::text as role, format('create schema %I', $1::text) as make_schema,
       format('create schema %I authorization %I', $1::text, current_user) as make_schema_for_us,
       format('create role %I nologin', $2::text) as make_role,
       format('create role %I nologin role %I', $2::text, current_user) as make_role_for_us,
       format('grant %I to %I', $2::text, current_user) as join_role,
       format('set local role %I', $2::text) as enter,
       format('set local search_path = %I', $1::text) as look,
       array[format('grant usage on schema %I to %I', $1::text, $2::text),
             format('grant select, insert, update, delete on all tables in schema %I to %I', $1::text, $2::text),
             format('grant usage on all sequences in schema %I to %I', $1::text, $2::text),
             format('grant execute on all functions in schema %I to %I', $1::text, $2::text)] as grants;

-- name: last_migration
select coalesce(max(number), 0) from switchboard.migration where component = $1;

-- name: note_migration
insert into switchboard.migration (component, number, name) values ($1, $2, $3);

-- name: is_kept
-- Whether there are tables in the schema $1 of a module.
select exists (select from switchboard.migration where component = $1);
