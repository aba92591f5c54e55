-- name: list
select dead_letter_id, request_id, conversation, team_id, channel, category, reason, system_id, handler, status,
       handled_by_system_id, resolution, received_at, created_at
from dead_letter
where ($1::uuid is null or dead_letter_id < $1) and ($2::text is null or team_id = $2)
  and ($3::text is null or status = $3) and ($4::text is null or category = $4)
order by dead_letter_id desc limit $5;

-- name: of_message
select dead_letter_id, request_id, conversation, team_id, channel, category, reason, system_id, handler, status,
       handled_by_system_id, resolution, received_at, created_at
from dead_letter where request_id = $1 order by dead_letter_id;

-- name: get
select dead_letter_id, request_id, conversation, team_id, channel, category, reason, system_id, handler, status,
       handled_by_system_id, resolution, received_at, created_at, payload, raw
from dead_letter where dead_letter_id = $1;

-- name: notices
select n.dead_letter_id, n.lane, n.seq, n.team_id, n.system_id, n.state, n.error_class, n.created_at, n.settled_at,
       (select count(*) from turn t where t.lane = n.lane and t.seq = n.seq) as attempts
from notice n where n.request_id = $1 order by n.created_at, n.lane, n.seq;

-- name: pending
select count(*) from dead_letter where status = 'pending';
