-- What cards are found by: the words of names, and keys of the ways to reach somebody. What is in the mirror already is
-- read again by the next sync.

alter table card add column words text not null default '';

create table way (
    account text not null,
    book text not null,
    name text not null,
    place integer not null,
    kind text not null,
    value text not null,
    key text not null,
    label text not null,
    preferred boolean not null,
    primary key (account, book, name, place),
    foreign key (account, book, name) references card on delete cascade
);

create index way_key on way (account, key);

update card set etag = '', check_again = true;
