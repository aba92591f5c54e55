-- name: facts
-- What rules saw of a message.
select d.facts from decision d where d.request_id = $1 and d.n = 1;

-- name: last
-- The lane of a butler in a conversation, the position of its last entry, and up to which they are compacted or erased.
select l.lane, last_position(l.lane) as position,
       greatest((select s.position from summary s where s.lane = l.lane and s.restored_at is null
                   and s.since = begun_anew(l.lane)
                 order by s.position desc limit 1), erased_position(l.lane)) as compacted
from (select lane_key('turn', $1, conversation_key($2)) as lane) l;

-- name: summary
select s.text, s.position, s.created_at, s.told from visible_summary($1, $2, $3, $4) s;

-- name: load
-- But for what was erased, see erase_entries.
select e.role, e.text, e.person, e.calls, e.position, e.created_at, e.own, e.name, e.told
from visible_entries($1, $2, $3, $4, $5) e where e.text <> '' or e.learn order by e.position;

-- name: begin_anew
select begin_anew($1);

-- name: erase
select erase_history($1, $2);

-- name: save
-- Add an entry to the lane of butler $1 in conversation $2, which need not have begun. $3: an id as a message has, by its age.
select save_entry(enter_lane($1, $2), $3, $4, $5, $6, $7);

-- name: saved
-- What was saved outside of turns: there is no message of it, nor a turn.
select l.system_id, c.name as conversation, e.role, e.person, e.text, e.created_at
from entry e join lane l on l.key = e.lane join conversation c using (conversation)
where e.request_id = $1 and not exists (select from delivery d where d.request_id = e.request_id)
order by e.position limit 1;

-- name: held
-- Of these messages those whose turns have not ended, or that a history still has: what their tools found is kept.
select k.request_id from unnest($1::uuid[]) as k (request_id)
where exists (select from delivery d where d.request_id = k.request_id and d.state = 'pending')
   or exists (select from entry e where e.request_id = k.request_id and e.compacted_at is null and e.learn);

-- name: awaited_files
-- What messages since $1 have attached whose turns have not ended, or whose dead letters may be handled yet.
select distinct a.value::text as attachment
from delivery d
join message_inbox m on m.request_id = d.request_id
cross join lateral json_array_elements(m.envelope #> '{payload,attachments}') a
where d.request_id >= $1 and d.state in ('pending', 'dead') and a.value ->> 'storage_ref' is not null;

-- name: search
-- Of what the reader $3 with the handle $6, $7, $8 may search of butler $1, the $14 messages that have any of the words $9, with what
-- was answered, or the newest, if there are no words: from $10 to before $11, of the person $12, on channel $13. A word of more
-- than four letters is found whatever its last two are. What memory_store_episode noted for a reply is read as its end.
with reader as materialized (select handle_key($6, $7, $8) as handle),
seen as materialized (
    select v.lane, v.request_id, v.position, v.role, v.person, v.name, t.text, v.created_at,
           to_tsvector('simple', t.text) as words
    from reader r cross join visible_history($1, conversation_key($2), $3, $4, $5, r.handle) v
    cross join lateral (
        select string_agg(distinct c ->> 'result', E'\n') as noted from json_array_elements(v.calls) c
        where c ->> 'name' = 'memory_store_episode' and (c ->> 'ok')::boolean) n
    cross join lateral (select concat_ws(E'\n', nullif(v.text, ''), n.noted) as text) t
    where t.text <> ''
), query as (
    select any_of_words($9) as q
), found as (
    select s.lane, s.request_id, coalesce(max(ts_rank_cd(s.words, q.q, 1)), 0) as rank, max(s.created_at) as at
    from seen s cross join query q
    where ($9 = '' or s.words @@ q.q)
      and ($10::timestamptz is null or s.created_at >= $10) and ($11::timestamptz is null or s.created_at < $11)
      and ($12 = '' or s.person in (
          select p.person from seen p
          where p.role = 'user' and strpos(lower(p.name || E'\n' || p.person), lower($12)) > 0))
      and ($13 = '' or split_part(s.person, '/', 1) = $13)
    group by s.lane, s.request_id
    order by rank desc, at desc, s.request_id desc limit $14
)
select s.request_id, s.role, s.person, s.name, s.text, s.created_at
from found f join seen s using (lane, request_id)
order by f.rank desc, f.at desc, f.request_id desc, s.position;
