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
