-- name: claim
-- Up to $1 lanes that are due, for $2; after three tries a lane waits for its next turn.
update compaction c set tries = c.tries + 1, ready_at = clock_timestamp() + $2::interval
where c.lane in (
    select x.lane from compaction x where x.ready_at <= clock_timestamp() and x.tries < 3
    order by x.ready_at limit $1 for update skip locked
)
returning c.lane;

-- name: claim_of
-- The same for the lanes of butler $1 in the conversations $2, for $3.
update compaction c set tries = c.tries + 1, ready_at = clock_timestamp() + $3::interval
where c.lane in (select lane_key('turn', $1, conversation_key(x)) from unnest($2::text[]) x)
  and c.ready_at <= clock_timestamp() and c.tries < 3
returning c.lane;

-- name: standings
-- How the lanes of butler $1 in the conversations $2 stand that have entries without a summary.
select l.lane, not_compacted(l.lane) as entries, coalesce(c.tries, 0)::integer as tries
from (select lane_key('turn', $1, conversation_key(x)) as lane from unnest($2::text[]) x) l
left join compaction c on c.lane = l.lane
where not_compacted(l.lane) > 0;

-- name: range
-- The oldest $2 entries of a lane that no summary has stood for, if it has $3 or more such, and the summary before them.
select l.system_id, f.first, f.first + $2 - 1 as last, compaction_mark(l.key, f.first, f.first + $2 - 1) as mark,
       s.person, s.private, s.text, s.told
from lane l
cross join lateral (select first_not_compacted(l.key) as first) f
left join lateral (
    select x.person, x.private, x.text, x.told from summary x
    where x.lane = l.key and x.restored_at is null and x.since = begun_anew(l.key)
    order by x.position desc limit 1
) s on true
where l.key = $1 and not_compacted(l.key) >= $3;

-- name: lines
-- A reply of an older release may have been written after others' words were read if tools were called for it.
select e.position, e.role, e.text, e.person, e.private, e.created_at, e.learn, e.own,
       coalesce(e.told, case e.role when 'assistant' then e.calls is not null end) as told
from entry e cross join begun_anew($1) as since
where e.lane = $1 and e.position between $2 and $3 and e.request_id > since order by e.position;

-- name: commit
select commit_compaction($1, $2, $3, $4, $5, $6, $7, $8, $9, $10);

-- name: note_told
-- Whether a summary stands for entries that have others' words, or were written after others' words were read.
update summary s set told = $2 where s.summary_id = $1;

-- name: not_due
delete from compaction c where c.lane = $1 and not_compacted(c.lane) < $2;

-- name: list
-- Summaries, the newest first, with how many of their entries can still be restored.
select s.summary_id, l.system_id, coalesce(n.name, '') as conversation, s.first_position, s.position as last_position,
       s.text, s.created_at, s.restored_at,
       (select count(*) from entry e where e.lane = s.lane and e.position between s.first_position and s.position
                                       and e.compacted_at is not null and e.learn) as restorable
from summary s join lane l on l.key = s.lane left join conversation n on n.conversation = l.conversation
where ($1::text is null or l.system_id = $1) and ($2::uuid is null or s.summary_id < $2)
order by s.summary_id desc limit $3;

-- name: exists
select exists (select from summary s where s.summary_id = $1);

-- name: restore
select restore_entries($1);

-- name: erase_summaries
-- The text of summaries before an id, of at most $2.
update summary s set text = '' where s.summary_id in (
    select x.summary_id from summary x where x.summary_id < $1 and x.text <> '' order by x.summary_id limit $2
);

-- name: erase
-- Entries for which a summary has stood for $1, at most $2.
delete from entry e where (e.lane, e.position) in (
    select x.lane, x.position from entry x where x.compacted_at < clock_timestamp() - $1::interval order by x.compacted_at limit $2
);
