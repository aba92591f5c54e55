-- People who own a butler because they sent a code for owners, beside those whom its option `owners` names in the team file.
-- pairing_code.owner_of: the butler that the sender of the code will own; null: it only lets its sender in.
alter table pairing_code add column owner_of text;
create table contact_owner (
    contact_id uuid not null references contact on delete cascade,
    system_id text not null references member on delete cascade,
    since timestamptz not null default clock_timestamp(),
    primary key (contact_id, system_id)
);
create index contact_owner_of on contact_owner (system_id);

-- They have a parameter or a column more.
drop function if exists use_pairing_code(uuid, uuid);
drop function if exists hold_of_stranger(
    uuid, uuid, text, text, text, uuid, uuid, text, text, text, uuid, uuid, uuid, uuid, text, text, text, text, text, text,
    timestamptz, smallint, text, text, bytea);
