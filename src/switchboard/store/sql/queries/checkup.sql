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
from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = any ($1::text[]) and c.relkind in ('r', 'm');

-- name: data
-- Without indexes, which are in no backup.
select coalesce(sum(pg_table_size(c.oid)), 0)::int8
from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = any ($1::text[]) and c.relkind = 'r';

-- name: schemas
-- Ours and those of modules; a schema of somebody else may have a name that begins like them.
select n.nspname as name from pg_namespace n where n.nspname in (select component from switchboard.migration) order by 1;

-- name: migration
select coalesce(max(number), 0) from migration where component = 'switchboard';

-- name: open_work
-- For a database that has just been restored.
select (select count(*) from delivery where state = 'pending') + (select count(*) from routing where state = 'pending') as messages,
       (select count(*) from outbox where state = 'uncertain') as replies;

-- name: doubt_replies
-- In the transaction of a restore, so the schema may be any that a backup has: no functions. What waits to be sent may have been
-- sent since the backup was made, so a person decides. People are told as by settle_send.
with doubted as (
    update outbox o set
        state = 'uncertain', error = 'it was unsent when the backup was made, and may have been sent since',
        settled_at = clock_timestamp(),
        untold = case when o.system_id <> 'switchboard' or exists (
            select from message_inbox m where m.request_id = o.request_id and m.channel = 'notice') then 'uncertain' end
        where o.state in ('pending', 'sending')
        returning o.outbox_id, o.lane
), parts as (
    update outbox_part p set state = 'uncertain' from doubted d where p.outbox_id = d.outbox_id and p.state = 'intent'
)
update lane l set done_seq = l.last_seq, attempts = 0, owner = null, lease_until = null, delayed = false,
                  state = case when l.state = 'paused' then l.state else 'idle' end
    where l.key in (select d.lane from doubted d);

-- name: others
select count(*) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and application_name like 'switchboard%';

-- name: connections
select pid, application_name as name, coalesce(host(client_addr), 'this machine') as host from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and application_name like 'switchboard%' order by pid;

-- name: accepted
select m.request_id, m.channel, m.sender, m.received_at,
       (select count(*) from outbox o where o.request_id = m.request_id and o.state = 'sent') as replies_sent
from message_inbox m where not exists (select from unnest($1::uuid[]) as known where known = m.request_id)
order by m.request_id;

-- name: messages
select count(*) from message_inbox;

-- name: withdrawn
-- Statements for a schema that may be older: the tables of 0001, and owners where there are some.
select format('update switchboard.token set revoked_at = %L where token_id = %L and revoked_at is null;', t.revoked_at, t.token_id)
    as statement
from token t where t.revoked_at is not null
union all
select format('update switchboard.contact set state = %L, decided_at = %L, decided_by = %L where contact_id = %L and state = %L;',
              c.state, c.decided_at, c.decided_by, c.contact_id, 'approved')
from contact c where c.state <> 'approved' and c.decided_at is not null
union all
select format('do $$ begin if to_regclass(%L) is not null then delete from switchboard.contact_owner where contact_id = %L'
              ' and system_id <> all (%L::text[]); end if; end $$;', 'switchboard.contact_owner', c.contact_id,
              array(select o.system_id from contact_owner o where o.contact_id = c.contact_id))
from contact c where c.decided_at is not null;

-- name: require_alone
do $$ begin
    if exists (
        select from pg_stat_activity where datname = current_database() and application_name like 'switchboard%'
    ) then
        raise exception 'a process of Switchboard has connected meanwhile; stop it and repeat the rollback';
    end if;
end $$;

-- name: require_messages
-- For psql, which has no parameters: $1 is put in.
do $$ begin
    if (select count(*) from switchboard.message_inbox) <> $1 then
        raise exception 'messages have been accepted meanwhile; repeat the rollback';
    end if;
end $$;
