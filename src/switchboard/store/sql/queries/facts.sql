-- part: shown
f.fact_id, f.author, f.subject,
       case f.space when 'private' then 'private:' || f.author
                    when 'group' then 'group:' || coalesce(c.name, f.conversation::text) else 'shared' end as space,
       f.text, f.created_at

-- part: told
{{shown}}, f.predicate, f.denied, f.said_at, f.valid_from, f.valid_to, '{}'::uuid[] as contradicts, f.importance

-- name: visible
-- $3 and the handle $7, $8, $9, or nulls: the reader; own: whether it is theirs.
with reader as materialized (select k.handle, handles_of(k.handle) as handles from handle_key($7, $8, $9) k (handle))
select {{told}}, (f.author = $3 or (f.handle is not null and f.handle = any (r.handles))) as own
from reader r cross join visible($1, conversation_key($2), $3, $4, $5, r.handle) f
left join conversation c on c.conversation = f.conversation
order by f.fact_id desc limit $6;

-- name: statements
-- What was said and when: of the facts $6, and of all that may take their place, confirm or contradict them, as far as the reader
-- may see it. person: the same for all handles of a person.
with asked as materialized (
    select array_agg(f.rivals) as rivals
    from handle_key($7, $8, $9) k (handle) cross join visible($1, conversation_key($2), $3, $4, $5, k.handle, $6) f
), seen as materialized (
    select f.* from asked a cross join handle_key($7, $8, $9) k (handle)
    cross join visible($1, conversation_key($2), $3, $4, $5, k.handle, $6, a.rivals) f
)
select f.fact_id, f.author, coalesce((select 'person ' || h.person_id from person_handle h where h.key = f.handle), f.author) as person,
       f.subject, f.space, f.conversation, f.text, f.predicate, f.value, f.denied, f.said_by, s.valid_from, s.valid_to, s.said_at
from seen f
cross join lateral (
    select f.said_at, f.valid_from, f.valid_to
    union
    select s.said_at, s.valid_from, s.valid_to from fact_source s where s.fact_id = f.fact_id
) s;

-- name: among
-- Those of the facts $6 that may be told to the reader, as for visible.
with reader as materialized (select k.handle, handles_of(k.handle) as handles from handle_key($7, $8, $9) k (handle))
select {{told}}, (f.author = $3 or (f.handle is not null and f.handle = any (r.handles))) as own
from reader r cross join visible($1, conversation_key($2), $3, $4, $5, r.handle, $6) f
left join conversation c on c.conversation = f.conversation;

-- part: spaces
visible_spaces($1, conversation_key($2), $3, $4, $5, handle_key($6, $7, $8))

-- name: spaces_seen
select s.space_id, s.facts from {{spaces}} s;

-- name: statistics
-- What is counted of the facts that a reader, as for visible, may be told: in how many of them each form $9 and trigram $10 is.
with seen as materialized (select s.space_id, s.facts, s.words from {{spaces}} s),
counted as (
    select c.kind, c.term, sum(c.facts) as facts
    from seen s
    cross join lateral (
        select unnest($9::text[]) as term, 'form' as kind union all select unnest($10::text[]), 'trigram') t
    join fact_term_count c on c.space_id = s.space_id and c.kind = t.kind and c.term = t.term
    group by c.kind, c.term
)
select (select coalesce(array_agg(s.space_id order by s.space_id), '{}') from seen s) as spaces,
       (select coalesce(sum(s.facts), 0) from seen s)::bigint as texts,
       (select coalesce(sum(s.words), 0) from seen s)::bigint as words,
       (select json_object_agg(c.term, c.facts) from counted c where c.kind = 'form') as forms,
       (select json_object_agg(c.term, c.facts) from counted c where c.kind = 'trigram') as trigrams;

-- name: similar_forms
-- For each word of $2, a JSON array of word, trigrams, fewest, most and begins: the forms in these spaces that have at least `fewest`
-- of its trigrams, and that one with which it begins or at least `most`; at most $3.
select w.word, n.term, n.facts
from json_to_recordset($2::text::json) as w (word integer, trigrams text[], fewest integer, most integer, begins text)
cross join lateral (
    select c.term, sum(c.facts)::bigint as facts
    from fact_term_count c
    cross join lateral (select count(*) as shared from unnest(c.trigrams) t where t = any (w.trigrams)) s
    where c.kind = 'form' and c.space_id = any ($1::integer[]) and c.trigrams && w.trigrams
      and s.shared >= w.fewest and (s.shared >= w.most or w.begins = any (c.trigrams))
    group by c.term
    order by max(s.shared) desc, c.term limit $3) n;

-- part: matched
-- The facts that have any of the forms $1, letters and digits behind their space, which are of the words $2 and as rare as $3, and how
-- well: a word counts by its rarest form; long texts are marked down, $4 words are usual.
select h.fact_id, sum(h.rarity) / (1.3 + 0.9 * h.words / $4::real) as rating
from (
    select t.fact_id, t.words, w.word, max(w.rarity) as rarity
    from unnest($1::text[], $2::integer[], $3::real[]) as w (form, word, rarity)
    join fact_terms t on t.forms @@ ('''' || w.form || '''')::tsquery
    group by t.fact_id, t.words, w.word
) h
group by h.fact_id, h.words

-- name: by_words
-- The best first.
select m.fact_id from ({{matched}}) m order by m.rating desc, m.fact_id desc limit $5;

-- name: own_by_words
-- Those of them that the reader has said, as for visible from $6 on.
with reader as materialized (select k.handle, handles_of(k.handle) as handles from handle_key($11, $12, $13) k (handle)),
matched as materialized ({{matched}})
select m.fact_id
from reader r
cross join visible($6, conversation_key($7), $8, $9, $10, r.handle, array(select m.fact_id from matched m)) f
join matched m on m.fact_id = f.fact_id
where f.author = $8 or f.handle = any (r.handles)
order by m.rating desc, m.fact_id desc limit $5;

-- name: latest
-- The latest facts of those that a reader, as for visible, may be told: by which somebody may come to harm if they are not known,
-- and all.
select t.fact_id, t.safety
from {{spaces}} s
cross join lateral (
    (select t.fact_id, true as safety from fact_terms t where t.space_id = s.space_id and t.safety order by t.fact_id desc limit $9)
    union
    (select t.fact_id, false from fact_terms t where t.space_id = s.space_id order by t.fact_id desc limit $9)) t;

-- name: reading
select read_as from fact_reading;

-- name: change_reading
select change_reading($1);

-- name: unread
select fact_id, subject, text, predicate from unread_facts($1);

-- name: put_terms
select put_terms($1);

-- name: enter_model
select enter_model($1, $2, $3);

-- name: find_model
select model_id, pgvector from find_model($1, $2, $3);

-- name: unembedded
select fact_id, subject, text, predicate from unembedded_facts($1, $2);

-- name: is_entered
select exists (select from fact_model where model_id = $1);

-- name: complete_model
select complete_model($1);

-- name: due_vector_index
select due_vector_index($1, $2);

-- name: put_vectors
select put_vectors($1, $2, $3, $4);

-- name: nearest
select fact_id, cosine from nearest_facts($1, $2, $3, $4, $5, $6);

-- name: vectors
select fact_id, vector from fact_vector where model_id = $1 and space_id = any ($2::integer[]);

-- name: sampled_vectors
select subject, text, predicate, vector, numbers from sampled_vectors($1, $2, $3, $4);

-- name: vector_standing
-- How many facts wait for their words and for vectors, and where vectors are.
select (select count(*) from fact_unread) as unread, (select count(*) from fact_unembedded) as unembedded,
       (select count(*) from fact_model) as models, vector_schema() is not null as pgvector;

-- name: is_forgotten
-- Whether a fact with one of the marks $1, or with the words $6 of the same rank under another handle than $7, $8, $9 of its
-- author, was forgotten, or the entry $4 of butler $2 in conversation $3, from which it is. 0: the entry of the message $5, which
-- has one if a turn of it failed.
select exists (
        select from unnest($1::uuid[], $6::uuid[]) as t (mark, words)
        where was_forgotten(t.mark, handle_key($7, $8, $9), t.words))
    or exists (
        select from entry e
        where e.lane = lane_key('turn', $2, conversation_key($3)) and not e.learn
          and (e.position = $4::bigint or ($4::bigint = 0 and e.request_id = $5)));

-- name: share
select share_fact($1, $2, $3, $4, $5, handle_key($6, $7, $8));

-- name: save
select save_facts($1, $2);

-- name: learn
-- The same for butler $1 in conversation $2, which need not have begun.
select save_facts(enter_lane($1, $2), $3);

-- name: forget
select forget_fact($1);

-- name: undo
select undo_fact($1);

-- name: forget_again
select forget_again();

-- name: forgotten
select g.fact_id, g.mark from forgotten g order by g.fact_id;

-- part: of_operators
f.system_id, {{shown}}, f.predicate, f.denied, f.said_by, f.said_at, f.valid_from, f.valid_to, f.run, f.undone_at

-- name: list
select {{of_operators}}
from facts_for_operator($1, $2, $3, $4) f left join conversation c on c.conversation = f.conversation
order by f.fact_id desc;

-- name: search
-- Of those of butler $1, or of all, the $4 newest below $2 that have any of the words $3.
select {{of_operators}}
from facts_for_operator($1, null, $2, null) f left join conversation c on c.conversation = f.conversation
where to_tsvector('simple', f.subject || ' ' || f.text) @@ any_of_words($3)
order by f.fact_id desc limit $4;

-- name: get
select {{of_operators}}
from fact_for_operator($1) f left join conversation c on c.conversation = f.conversation;

-- name: named
select {{of_operators}}
from unnest($1::uuid[]) as n (fact_id)
cross join lateral fact_for_operator(n.fact_id) f left join conversation c on c.conversation = f.conversation
order by f.fact_id;

-- name: counted
select system_id, author, facts, newest from count_facts($1);

-- name: sources
-- The entries that a fact cites; the text of those that are still there.
select e.request_id, s.position, e.text, e.created_at
from fact_source s left join entry e on e.lane = s.lane and e.position = s.position
where s.fact_id = $1 order by s.lane, s.position;
