-- name: candidates
-- Cards with one of the keys $2, or with words that begin with all of $3; $4 is after whatever begins so. Those with a
-- key come first, then those that are called just as the digest $5 says, then those with these words. Cards are read
-- one by one, and only those that are told: a plan for any words would read all of the table.
with keyed as (
    select w.collection, w.name, array_agg(distinct w.key) as keys from way w
    where w.account = $1 and w.key = any ($2::text[]) group by w.collection, w.name
), named as (
    select x.collection, x.name, count(distinct s.n) filter (where x.word = s.word) as whole
    from unnest($3::text[]) with ordinality as s (word, n)
    join word x on x.account = $1 and x.word >= s.word and x.word < s.word || $4
    group by x.collection, x.name having count(distinct s.n) = cardinality($3)
), best as (
    select collection, name, coalesce(k.keys, '{}') as keys
    from named n
    full join keyed k using (collection, name)
    left join (select x.collection, x.name from word x where x.account = $1 and x.word = $5) as called
        using (collection, name)
    order by k.keys is null, called.name is null, n.whole desc nulls last, collection, name
    limit $6
)
select b.collection, b.name, o.uid, c.shown, c.words, b.keys,
       array(select w.key from way w where w.account = $1 and w.collection = b.collection and w.name = b.name) as ways
from best b
cross join lateral (
    select x.shown, x.words from card x
    where x.account = $1 and x.collection = b.collection and x.name = b.name limit 1
) as c
cross join lateral (
    select x.uid from object x where x.account = $1 and x.collection = b.collection and x.name = b.name limit 1
) as o
where left(c.words, 1) <> '=';

-- name: cards_of
-- The cards $3 in the collections $2.
select o.collection, o.name, o.etag, o.data, o.written_at
from unnest($2::text[], $3::text[]) as x (collection, name)
join object o on o.account = $1 and o.collection = x.collection and o.name = x.name
where o.problem = '';

-- name: forget_card
delete from card where account = $1 and collection = $2 and name = $3;

-- name: find_card
with kept as (insert into card (account, collection, name, shown, words) values ($1, $2, $3, $4, $5))
insert into word (account, collection, name, word) select $1, $2, $3, x.word from unnest($6::text[]) as x (word);

-- name: find_ways
insert into way (account, collection, name, place, kind, value, key, label, preferred)
select $1, $2, $3, w.place, w.kind, w.value, w.key, w.label, w.preferred
from unnest($4::integer[], $5::text[], $6::text[], $7::text[], $8::text[], $9::boolean[])
     as w (place, kind, value, key, label, preferred);

-- name: of_person
-- What is kept for a person: their own accounts.
select x.account, b.name as book, x.name, x.data as card
from origin o join object x using (account) join collection b using (account, collection)
where o.account = $1 and o.owner = any($2::text[]) order by x.collection, x.name;

-- name: erase_of_person
-- The objects are counted; with the collections goes from where the next sync would ask, and with the origin whose it was.
with forgotten as (
    delete from origin g where g.account = $1 and g.owner = any ($2::text[])
), gone as (
    delete from collection b using origin o where b.account = $1 and o.account = b.account and o.owner = any($2::text[])
)
delete from object x using origin o where x.account = $1 and o.account = x.account and o.owner = any($2::text[]);
