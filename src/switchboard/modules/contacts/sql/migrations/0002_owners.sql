-- Whose accounts these are, for whoever hands out or erases what is kept of a person; and an index of the words of names,
-- so that a look-up reads no card whose name has no word that begins so.

create table owner (
    account text primary key,
    owner text not null
);

create table word (
    account text not null,
    collection text not null,
    name text not null,
    word text collate "C" not null,
    primary key (account, collection, name, word),
    foreign key (account, collection, name) references card on delete cascade
);

create index word_word on word (account, word, collection, name);
