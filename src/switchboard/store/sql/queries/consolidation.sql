-- name: claim
select * from claim_consolidations($1, $2, $3, $4) as lane;

-- name: news
-- What was said since facts were last looked for, in at most $2 turns.
select l.system_id, f.after, r.last, compaction_mark(l.key, f.after + 1, r.last) as mark
from lane l
cross join lateral (select coalesce((select c.position from consolidation c where c.lane = l.key), 0) as after) f
cross join lateral (
    select max(t.last) as last from (
        select max(e.position) as last from entry e
        where e.lane = l.key and e.position > f.after and e.request_id > begun_anew(l.key)
        group by e.request_id order by min(e.position) limit $2
    ) t
) r
where l.key = $1 and r.last is not null;

-- name: lines
-- Those between $2 and $3 for which no summary stands. A reply of an older release may have been written after others' words were
-- read if tools were called for it.
select e.position, e.role, e.text, e.person, e.private, e.created_at, e.learn, e.own,
       coalesce(e.told, case e.role when 'assistant' then e.calls is not null end) as told, e.request_id
from entry e cross join begun_anew($1) as since
where e.lane = $1 and e.position between $2 and $3 and e.compacted_at is null and e.request_id > since order by e.position;

-- name: begin
select begin_consolidation_run($1, $2, $3, $4, $5, $6, $7, $8);

-- name: note
-- What a run has cost.
update consolidation_run r set model = $2, tokens = $3, cost_usd = $4 where r.run = $1;

-- name: end
update consolidation_run r set outcome = $2, reason = $3, ended_at = clock_timestamp() where r.run = any ($1::uuid[]);

-- name: postpone
-- The tokens of the day are used up, which is no failure.
update consolidation c set tries = greatest(c.tries - 1, 0), ready_at = clock_timestamp() + $2::interval where c.lane = $1;

-- name: commit
select commit_consolidation($1, $2, $3, $4, $5);

-- name: list
-- Runs, the newest first.
select r.run, r.system_id, coalesce(n.name, '') as conversation, r.person, r.first_position, r.last_position, r.episodes, r.model,
       r.tokens, r.cost_usd, r.outcome, r.reason, r.facts, r.started_at, r.ended_at, r.undone_at
from consolidation_run r
join lane l on l.key = r.lane left join conversation n on n.conversation = l.conversation
where ($1::text is null or r.system_id = $1) and ($2::uuid is null or r.run < $2)
order by r.run desc limit $3;

-- name: failing
-- Conversations in which facts were looked for in vain three times in a row, and why the last time.
select count(*)::integer as conversations, coalesce((
        select r.reason from consolidation_run r join consolidation k using (lane)
        where k.tries >= 3 and r.outcome <> 'kept' order by r.run desc limit 1), '') as reason
from consolidation c where c.tries >= 3
having count(*) > 0;

-- name: undo
select undo_consolidation_run($1);

-- name: forget
-- Runs before an id, of at most $2: what they found stays.
delete from consolidation_run r where r.run in (select x.run from consolidation_run x where x.run < $1 order by x.run limit $2);
