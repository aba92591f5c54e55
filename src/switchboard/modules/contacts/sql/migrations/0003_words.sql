-- An index of the words of names, so that a look-up reads no card whose name has no word that begins so.

create table word (
    account text not null,
    collection text not null,
    name text not null,
    word text collate "C" not null,
    primary key (account, collection, name, word),
    foreign key (account, collection, name) references card on delete cascade
);

insert into word (account, collection, name, word)
select distinct c.account, c.collection, c.name, x.word
from card c, regexp_split_to_table(c.words, '\s+') as x (word) where x.word <> '';

create index word_word on word (account, word, collection, name);
