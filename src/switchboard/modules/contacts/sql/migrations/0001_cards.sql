-- What cards are found by: the words of names, and keys of the ways to reach somebody.

create table card (
    account text not null,
    collection text not null,
    name text not null,
    shown text not null,
    words text not null,
    primary key (account, collection, name),
    foreign key (account, collection, name) references object on delete cascade
);

create table way (
    account text not null,
    collection text not null,
    name text not null,
    place integer not null,
    kind text not null,
    value text not null,
    key text not null,
    label text not null,
    preferred boolean not null,
    primary key (account, collection, name, place),
    foreign key (account, collection, name) references card on delete cascade
);

create index way_key on way (account, key);
