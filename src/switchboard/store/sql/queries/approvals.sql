-- part: shown
p.approval_id, p.kind, approval_state(a) as state, p.system_id, p.tool, p.arguments, p.why, p.digest,
       a.request_id, m.channel, m.endpoint, m.sender, left(m.envelope #>> '{payload,normalized_text}', 1000) as message,
       p.asked_at, a.deadline_at, case when a.result is not null then a.decided_at end as decided_at,
       a.result #>> '{value,by}' as decided_by, a.result #>> '{value,text}' as answer, p.effect, p.risk
from approval p
join awaited a on a.key = p.approval_id
join message_inbox m on m.request_id = a.request_id

-- name: ask
select ask_people_about($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13::json, $14, $15, $16);

-- name: list
-- Those that nobody has decided are found by their deadlines, which all have.
select {{shown}}
where ($1::text is null or approval_state(a) = $1)
  and ($1 is distinct from 'pending' or (a.decided_at is null and a.deadline_at is not null))
  and ($2::timestamptz is null or (p.asked_at, p.approval_id) < ($2, $3::uuid))
order by p.asked_at desc, p.approval_id desc limit $4;

-- name: get
select {{shown}}
where p.approval_id = $1;

-- name: of_message
select {{shown}}
where (a.lane, a.seq) in (select d.lane, d.seq from delivery d where d.request_id = $1)
order by p.asked_at, p.approval_id;

-- name: of_readers
-- What these readers may see in chat, with ids that begin so: first what nobody has decided.
select {{shown}}
where p.readers = $1 and p.approval_id between $2 and $3
order by approval_state(a) = 'pending' desc, p.asked_at desc, p.approval_id desc limit $4;

-- name: asked_in
-- The questions of one of our messages in a conversation, by the id that the platform gave it.
select {{shown}}
join (
    select o.outbox_id from outbox o
    where o.lane = lane_key('send', null, conversation_key($1)) and o.platform_message_id in ($2, '<' || $2 || '>')
    union
    select o.outbox_id from outbox_part o
    where o.lane = lane_key('send', null, conversation_key($1)) and o.platform_message_id in ($2, '<' || $2 || '>')
) o on p.told_in = o.outbox_id
where p.kind = 'question'
order by p.asked_at, p.approval_id;

-- name: pending
-- What earlier messages of this conversation of a butler wait for, unless it began anew since.
select {{shown}}
where a.lane = lane_key('turn', $1, conversation_key($2)) and a.request_id <> $3 and p.readers = $4 and approval_state(a) = 'pending'
  and a.request_id > begun_anew(a.lane)
order by p.asked_at, p.approval_id limit $5;

-- name: count_of
-- How much this conversation of a butler waits for.
select count(*) from awaited a join approval p on p.approval_id = a.key
where a.lane = lane_key('turn', $1, conversation_key($2)) and approval_state(a) = 'pending';

-- name: count
select count(*) as approvals, coalesce(extract(epoch from clock_timestamp() - min(p.asked_at)), 0)::float8 as oldest_s
from awaited a join approval p on p.approval_id = a.key
where a.decided_at is null and a.deadline_at is not null and approval_state(a) = 'pending';

-- name: untold
-- What a running item waits for and its conversation has not heard of.
select {{shown}}
where a.lane = $1 and a.seq = $2 and a.decided_at is null and p.told_in is null
order by p.asked_at, p.approval_id;

-- name: presses_of
-- Which of these replies answer the press of a button, what the button says, and what the person is called to whom each goes.
select o.outbox_id, case when m.envelope #>> '{event,kind}' = 'button' then m.envelope #>> '{payload,normalized_text}' end as pressed,
       coalesce(m.envelope #>> '{sender,display_name}', '') as name
from outbox o join message_inbox m on m.request_id = o.request_id
where o.outbox_id = any ($1::uuid[]);

-- name: told_with
-- What was asked in these replies ($1), or in the same reply as one of these requests ($2), and the lane of that reply.
select t.outbox_id as told_in, t.lane as told_lane, p.readers, {{shown}}
join outbox t on t.outbox_id = p.told_in
where p.told_in = any ($1::uuid[] || array(select q.told_in from approval q where q.approval_id = any ($2::uuid[])))
order by p.asked_at, p.approval_id;

-- name: tell
select tell_of_approvals($1, $2, $3, $4, $5::uuid[], $6, $7, $8);
