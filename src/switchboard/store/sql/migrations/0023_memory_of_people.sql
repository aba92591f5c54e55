-- The handle that certainly said an entry, or to whom it was said, as facts have it: who is linked with it searches it, too.
-- Entries of before have none, and are found under the handle of their author alone.
alter table entry add column handle uuid;

-- From which message on a conversation is not learned from, and from which on it is again; the last one before a message counts.
create table learning_switch (
    conversation uuid not null,
    since uuid not null,
    learns boolean not null,
    primary key (conversation, since)
);

-- Other names of whom and what facts are about, by butler. Facts keep the words that were said: an alias is looked up when they
-- are read. name_key, alias_key: what is the same of names that differ in case or punctuation.
create table entity_alias (
    system_id text not null,
    name text not null,
    alias text not null,
    name_key text not null check (name_key <> ''),
    alias_key text not null check (alias_key <> '' and alias_key <> name_key),
    since timestamptz not null default clock_timestamp(),
    until timestamptz,
    linked_by text not null
);
create unique index entity_alias_now on entity_alias (system_id, name_key, alias_key) where until is null;
