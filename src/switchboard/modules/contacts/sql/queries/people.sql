-- name: candidates
-- Cards with one of the keys $2, or with a word from $6 to below $7, and with words that begin with all of $3 (patterns).
-- Those whose name is like $4 come before the others.
with keyed as (
    select w.collection, w.name, array_agg(distinct w.key) as keys from way w
    where w.account = $1 and w.key = any($2::text[]) group by w.collection, w.name
), found as (
    select k.collection, k.name from keyed k
    union
    select x.collection, x.name from word x where x.account = $1 and x.word >= $6 and x.word < $7
), best as (
    select c.collection, c.name, c.shown, c.words, coalesce(k.keys, '{}') as keys
    from found f
    join card c on c.account = $1 and c.collection = f.collection and c.name = f.name
    left join keyed k on k.collection = f.collection and k.name = f.name
    where left(c.words, 1) <> '=' and (k.keys is not null or c.words like all($3::text[]))
    order by k.keys is null, c.words not like $4, c.shown, c.collection, c.name
    limit $5
)
select b.collection, b.name, o.uid, b.shown, b.words, b.keys
from best b join object o on o.account = $1 and o.collection = b.collection and o.name = b.name;

-- name: keys_of
-- The ways of the cards $3 in the collections $2.
select w.collection, w.name, array_agg(w.key) as keys
from unnest($2::text[], $3::text[]) as x (collection, name)
join way w on w.account = $1 and w.collection = x.collection and w.name = x.name
group by w.collection, w.name;

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
insert into word (account, collection, name, word)
select distinct $1, $2, $3, x.word from regexp_split_to_table($5, '\s+') as x (word) where x.word <> '';

-- name: find_ways
insert into way (account, collection, name, place, kind, value, key, label, preferred)
select $1, $2, $3, w.place, w.kind, w.value, w.key, w.label, w.preferred
from unnest($4::integer[], $5::text[], $6::text[], $7::text[], $8::text[], $9::boolean[])
     as w (place, kind, value, key, label, preferred);

-- name: own
-- Whose account it is: `person:ann` or `group:family`.
insert into owner (account, owner) values ($1, $2)
on conflict (account) do update set owner = excluded.owner where owner.owner <> excluded.owner;

-- name: of_person
-- What is kept for a person: their own accounts.
select x.account, b.name as book, x.name, encode(x.data, 'escape') as card
from owner o join object x using (account) join collection b using (account, collection)
where o.account = $1 and o.owner = any($2::text[]) order by x.collection, x.name;

-- name: erase_of_person
-- The objects are counted; with the collections goes from where the next sync would ask.
with gone as (
    delete from collection b using owner o where b.account = $1 and o.account = b.account and o.owner = any($2::text[])
)
delete from object x using owner o where x.account = $1 and o.account = x.account and o.owner = any($2::text[]);
