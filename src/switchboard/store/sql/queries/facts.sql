-- part: shown
f.fact_id, f.author, f.subject,
       case f.space when 'private' then 'private:' || f.author
                    when 'group' then 'group:' || coalesce(c.name, f.conversation::text) else 'shared' end as space,
       f.text, f.created_at

-- part: told
{{shown}}, f.predicate, f.denied, f.said_at, f.valid_from, f.valid_to, '{}'::uuid[] as contradicts

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
with seen as materialized (
    select f.* from handle_key($7, $8, $9) k (handle) cross join visible($1, conversation_key($2), $3, $4, $5, k.handle) f
)
select f.fact_id, f.author, coalesce((select min(h::text) from unnest(handles_of(f.handle)) h), f.author) as person, f.subject,
       f.space, f.conversation, f.text, f.predicate, f.value, f.denied, f.said_by, f.valid_from, f.valid_to, s.said_at
from seen f
cross join lateral (select f.said_at union select s.said_at from fact_source s where s.fact_id = f.fact_id) s
where f.fact_id = any ($6) or f.rivals in (select g.rivals from seen g where g.fact_id = any ($6));

-- name: find
-- Of the facts that may be told where a turn answers those of the reader, who is $3 and the handle $8, $9, $10, that have any of
-- the words of $6, the best first. A word of four letters and more finds its inflections: of longer ones the last two letters do not count.
with reader as materialized (select k.handle, handles_of(k.handle) as handles from handle_key($8, $9, $10) k (handle)),
query as (
    select string_agg('''' || replace(replace(w.lexeme, '\', '\\'), '''', '''''') || w.more, ' | ')::tsquery as q
    from (
        select case when length(u.lexeme) > 4 then left(u.lexeme, greatest(4, length(u.lexeme) - 2)) else u.lexeme end as lexeme,
               case when length(u.lexeme) > 3 then ''':*' else '''' end as more
        from unnest(to_tsvector('simple', left($6, 1000))) u
        order by length(u.lexeme) desc, u.lexeme limit 40
    ) w
)
select {{told}}, true as own
from query
cross join reader r
cross join visible($1, conversation_key($2), $3, $4, $5, r.handle) f
cross join lateral (select to_tsvector('simple', f.subject || ' ' || f.text) as words) w
left join conversation c on c.conversation = f.conversation
where (f.author = $3 or f.handle = any (r.handles)) and w.words @@ query.q
order by ts_rank_cd(w.words, query.q, 1) desc, f.fact_id desc limit $7;

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

-- name: list
select f.system_id, {{shown}}
from facts_for_operator($1, $2, $3, $4) f left join conversation c on c.conversation = f.conversation
order by f.fact_id desc;

-- name: get
select f.system_id, {{shown}}
from fact_for_operator($1) f left join conversation c on c.conversation = f.conversation;

-- name: sources
-- The entries that a fact cites; the text of those that are still there.
select e.request_id, s.position, e.text, e.created_at
from fact_source s left join entry e on e.lane = s.lane and e.position = s.position
where s.fact_id = $1 order by s.lane, s.position;
