-- The whole names of cards stand among their words, as digests, so that whoever is called just so is found before the
-- many who have the words in a longer name. Groups of contacts are not found by words. Long words are cut.

delete from word w using card c
where c.account = w.account and c.collection = w.collection and c.name = w.name and left(c.words, 1) = '=';

delete from word where length(word) > 100;

insert into word (account, collection, name, word)
select c.account, c.collection, c.name, '=' || md5(string_agg(x.word, ' ' order by x.word collate "C"))
from card c,
     regexp_split_to_table(c.words, '[\n\t]') with ordinality as line (text, n),
     regexp_split_to_table(line.text, ' ') as x (word)
where left(c.words, 1) <> '=' and line.n > 1 and x.word <> ''
group by c.account, c.collection, c.name, line.n
on conflict do nothing;
