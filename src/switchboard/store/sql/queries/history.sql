-- name: facts
-- What rules saw of a message.
select d.facts from decision d where d.request_id = $1 and d.n = 1;

-- name: last
-- The position of the last entry of a butler in a conversation, and the lane of both.
select lane_key('turn', $1, conversation_key($2)) as lane,
       coalesce((select e.position from entry e where e.lane = lane_key('turn', $1, conversation_key($2))
                 order by e.position desc limit 1), 0) as position;

-- name: load
select e.role, e.text, e.person, e.calls, e.position, e.created_at
from visible_entries($1, $2, $3, $4, $5) e order by e.position;
