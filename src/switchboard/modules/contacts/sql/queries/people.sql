-- name: candidates
-- Cards with one of the keys $2, or with words that begin with all of $3 (patterns; none: by keys alone).
select c.collection, c.name, o.data,
       coalesce((select array_agg(distinct w.key) from way w
                 where w.account = c.account and w.collection = c.collection and w.name = c.name
                   and w.key = any($2::text[])),
                '{}') as keys
from card c join object o using (account, collection, name)
where c.account = $1
  and (exists (select from way w where w.account = c.account and w.collection = c.collection and w.name = c.name
               and w.key = any($2::text[]))
       or (cardinality($3::text[]) > 0 and c.words like all($3::text[])))
order by keys desc, c.shown, c.collection, c.name
limit $4;

-- name: forget_card
delete from card where account = $1 and collection = $2 and name = $3;

-- name: find_card
insert into card (account, collection, name, shown, words) values ($1, $2, $3, $4, $5);

-- name: find_ways
insert into way (account, collection, name, place, kind, value, key, label, preferred)
select $1, $2, $3, w.place, w.kind, w.value, w.key, w.label, w.preferred
from unnest($4::integer[], $5::text[], $6::text[], $7::text[], $8::text[], $9::boolean[])
     as w (place, kind, value, key, label, preferred);
