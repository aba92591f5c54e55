-- name: recent
-- Who has written in which conversation since message $1, among the newest $3 messages of these channels.
with latest as (
    select m.request_id, m.conversation, m.channel, m.endpoint, m.sender from message_inbox m
    where m.request_id >= $1 and m.channel = any ($2::text[]) order by m.request_id desc limit $3
)
select l.conversation, l.channel, l.endpoint, l.sender, max(l.request_id::text)::uuid as last, count(*) as messages
from latest l group by l.conversation, l.channel, l.endpoint, l.sender;

-- name: names
-- What the senders of these messages call themselves.
select m.request_id, coalesce(m.envelope #>> '{sender,display_name}', '') as name from message_inbox m
where m.request_id = any ($1::uuid[]);
