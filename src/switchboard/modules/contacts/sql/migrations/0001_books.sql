-- The address books of accounts, and every card in them as the server has it.
--
-- Laws:
--   * A cursor is written in the transaction after which the cards are those of the listing that it ends. Whoever is
--     killed before asks again from the older one.
--   * A card goes only because the server says that it is gone, or because a whole listing lacks it. If that would take
--     all cards, or more than half of 20 or more, their names are doubted first, and a second whole listing that comes
--     5 minutes later or more must lack them, too.
--   * What a tool has written is not overwritten by what a sync had read before; such a card is checked again by the
--     next sync.

create table book (
    account text not null,
    book text not null,
    url text not null,
    name text not null,
    writable boolean,
    cursor text not null default '',
    complete boolean not null default false,
    synced_at timestamptz,
    full_at timestamptz,
    doubted text[] not null default '{}',
    doubted_at timestamptz,
    missing_at timestamptz,
    primary key (account, book)
);

create table card (
    account text not null,
    book text not null,
    name text not null,
    etag text not null,
    uid text not null,
    shown text not null,
    data bytea not null,
    problem text not null default '',
    written_at timestamptz,
    replaced text not null default '',
    check_again boolean not null default false,
    primary key (account, book, name),
    foreign key (account, book) references book on delete cascade
);
