-- The collections of accounts, calendars or address books, and every object in them as the server has it.
--
-- Laws:
--   * A cursor is written in the transaction after which the objects are those of the listing that it ends. Whoever is
--     killed before asks again from the older one.
--   * An object goes only because the server says that it is gone, or because a whole listing lacks it. If that would
--     take all objects, or more than half of 20 or more, their names are doubted first, and a second whole listing that
--     comes 5 minutes later or more must lack them, too.
--   * What a tool has written is not overwritten by what a sync had read before; such an object is checked again by the
--     next sync.
--   * What a module makes of an object is written in the transaction that keeps the object.

create table collection (
    account text not null,
    collection text not null,
    url text not null,
    name text not null,
    writable boolean,
    colour text not null default '',
    zone text not null default '',
    cursor text not null default '',
    complete boolean not null default false,
    synced_at timestamptz,
    full_at timestamptz,
    doubted text[] not null default '{}',
    doubted_at timestamptz,
    missing_at timestamptz,
    primary key (account, collection)
);

create table object (
    account text not null,
    collection text not null,
    name text not null,
    etag text not null,
    uid text not null,
    data bytea not null,
    problem text not null default '',
    written_at timestamptz,
    replaced text not null default '',
    check_again boolean not null default false,
    primary key (account, collection, name),
    foreign key (account, collection) references collection on delete cascade
);

create index object_uid on object (account, uid);
