-- part: called
-- What operators call the person who is reader r, and nobody else.
select coalesce((
    select names_of_person(h.person_id) from reader r join person_handle h on h.key = r.handle), '{}') as names

-- name: facts
-- What may be told in conversation $1 to $2 with the handle $5, $6, $7: by the butlers that answer there, and of the reader's own
-- facts by all. about_reader: of a person whom operators know under this name.
with reader as materialized (select k.handle, handles_of(k.handle) as handles from handle_key($5, $6, $7) k (handle)),
butlers as materialized (
    select l.system_id, bool_or(l.conversation = conversation_key($1)) as here from lane l
    where l.kind = 'turn' and l.system_id is not null group by l.system_id
), called as materialized ({{called}})
select f.fact_id, f.author, f.subject,
       case f.space when 'private' then 'private:' || f.author
                    when 'group' then 'group:' || coalesce(c.name, f.conversation::text) else 'shared' end as space,
       f.text, f.created_at, f.predicate, f.denied, f.said_at, f.valid_from, f.valid_to, f.importance,
       '{}'::uuid[] as contradicts,
       f.system_id, o.own, coalesce(lower(f.subject) = any (k.names), false) as about_reader
from reader r
cross join butlers b
cross join called k
cross join lateral visible(b.system_id, conversation_key($1), $2, $3, $4, r.handle) f
cross join lateral (select f.author = $2 or (f.handle is not null and f.handle = any (r.handles)) as own) o
left join conversation c on c.conversation = f.conversation
where b.here or o.own
order by f.fact_id desc limit $8;

-- name: switch
insert into learning_switch (conversation, since, learns)
    select m.conversation, m.request_id, g.learns from unnest($1::uuid[], $2::boolean[]) as g (request_id, learns)
    join message_inbox m on m.request_id = any (array[g.request_id])
    on conflict (conversation, since) do nothing;

-- name: is_learning
select is_learned_from(m.conversation, m.request_id) from message_inbox m where m.request_id = $1;

-- name: is_learning_in
select is_learned_from(conversation_key($1), $2);

-- name: may_change
-- Those of the facts $9 that the reader $3 with the handle $6, $7, $8 sees, and has said or is the subject of; $10: all they see.
with reader as materialized (select k.handle, handles_of(k.handle) as handles from handle_key($6, $7, $8) k (handle)),
called as materialized ({{called}})
select f.fact_id from reader r
cross join called k
cross join lateral visible($1, conversation_key($2), $3, $4, $5, r.handle) f
where f.fact_id = any ($9::uuid[])
  and ($10 or f.author = $3 or f.handle = any (r.handles) or lower(f.subject) = any (k.names));

-- name: forget
select forget_facts($1);
