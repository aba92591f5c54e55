-- Persons of the installation. person_id never changes, name may. No other table refers to a person: what is stored keeps
-- the handle under which it was said.
create table person (
    person_id text primary key,
    name text not null,
    created_at timestamptz not null default clock_timestamp()
);

-- What channels call a person. realm: the endpoint at which the identity is theirs; empty: at all of the channel.
create table person_handle (
    channel text not null,
    realm text not null,
    identity text not null,
    person_id text not null references person on delete cascade,
    linked_at timestamptz not null default clock_timestamp(),
    linked_by text not null,
    primary key (channel, realm, identity)
);
create index person_handle_of on person_handle (person_id);

create table person_group (
    person_id text not null references person on delete cascade,
    name text not null,
    primary key (person_id, name)
);

-- Counts the changes of these tables, for those who keep them in memory.
create table people_version (
    one boolean primary key default true check (one),
    version bigint not null
);

-- It has a column more.
drop function if exists look(integer, bigint, text[], text[], text, integer);
