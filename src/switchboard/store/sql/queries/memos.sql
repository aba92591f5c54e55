-- name: file
insert into memo (conversation, memo_id, system_id, request_id, person, private, text)
values (conversation_key($1), $2, $3, $4, $5, $6, $7)
on conflict do nothing;

-- name: nearest
-- The words of the text, the longest first because they say most, as alternatives. They come out of the parser as
-- lexemes and go back in as quoted lexemes, so nothing in them is ever read as an operator.
with query as (
    select string_agg('''' || replace(replace(w.lexeme, '\', '\\'), '''', '''''') || '''', ' | ')::tsquery as q
    from (
        select u.lexeme from unnest(to_tsvector('simple', left($5, 10000))) u
        order by length(u.lexeme) desc, u.lexeme limit 40
    ) w
), candidate as (
    -- Ranking reads the whole memo, so only the latest that share a word are ranked.
    select m.conversation, m.memo_id, m.words, m.request_id
    from memo m, query
    where m.system_id = $1 and m.request_id < $2 and m.words @@ query.q
      and case when $3::text is null then m.conversation = conversation_key($4) and not m.private else m.person = $3 end
    order by m.request_id desc limit 500
)
select m.memo_id, m.created_at, left(m.text, 1000) as text
from candidate c
join query on true
join memo m on m.conversation = c.conversation and m.memo_id = c.memo_id
order by ts_rank_cd(c.words, query.q, 1) desc, c.request_id desc
limit $6;
