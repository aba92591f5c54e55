-- name: list
-- Among the newest $2 messages before an id, those that are the last of their conversation. How far was looked is told, too.
with walked as materialized (
    select m.request_id, m.conversation from message_inbox m
    where $1::uuid is null or m.request_id < $1 order by m.request_id desc limit $2
), newest as (
    select distinct on (conversation) request_id, conversation from walked order by conversation, request_id desc
), last as (
    select w.request_id from newest w
    where $1::uuid is null
       or not exists (select from message_inbox n where n.conversation = w.conversation and n.request_id > w.request_id)
    order by w.request_id desc limit $3
)
select m.request_id, c.name as conversation, m.channel, m.endpoint, m.sender, m.received_at,
       left(m.envelope #>> '{payload,normalized_text}', 300) as text, message_state(m.request_id) as state
from last l join message_inbox m using (request_id) join conversation c on c.conversation = m.conversation
order by m.request_id desc;

-- name: walked_until
-- The oldest of the newest $2 messages before an id; null if there are fewer.
select m.request_id from message_inbox m
where $1::uuid is null or m.request_id < $1 order by m.request_id desc offset $2 - 1 limit 1;
