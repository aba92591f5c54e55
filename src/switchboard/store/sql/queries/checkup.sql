-- name: server
select current_setting('server_version_num')::int / 10000 as major, split_part(current_setting('server_version'), ' ', 1) as version,
       current_setting('fsync') as fsync, current_setting('synchronous_commit') as synchronous_commit,
       current_setting('full_page_writes') as full_page_writes;

-- name: clock
select clock_timestamp();

-- name: schema
select (select count(*) from pg_tables where schemaname = 'switchboard') as tables,
       to_regclass('switchboard.migration') is not null as migrated;

-- name: size
select coalesce(sum(pg_total_relation_size(c.oid)), 0)::int8
from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = 'switchboard' and c.relkind in ('r', 'm');

-- name: migration
select coalesce(max(number), 0) from migration where component = 'switchboard';

-- name: open_work
-- For a database that has just been restored.
select (select count(*) from delivery where state = 'pending') + (select count(*) from routing where state = 'pending') as messages,
       (select count(*) from outbox where state in ('pending', 'sending')) as replies;

-- name: others
select count(*) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and application_name like 'switchboard%';
