-- name: accept
-- $17 is null where this process knows nobody who classifies. It may not have heard yet: where a message of one of these
-- conversations waits all the same, nobody is asked here, and what comes later waits behind it.
select ord, request_id, waits from accept_messages(
    $1::text[], $2::text[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::bytea[],
    $10::text[], $11::timestamptz[], $12::smallint[], $13::bigint[], $14::smallint[], $15::text[],
    $16::text[],
    coalesce($17::boolean[], case
        when exists (select from routing r where r.state = 'pending') and exists (
            select from unnest($1::text[]) as m (conversation) join lane l on l.key = 'route:' || m.conversation
            where l.last_seq > l.done_seq)
        then array_fill(false, array[cardinality($1::text[])]) end),
    $18::text[],
    $19::integer[], $20::text[], $21::text[], $22::text[],
    $23::integer[], $24::uuid[], $25::text[], $26::text[], $27::text[], $28::text[]);

-- name: authors
select i.ord, o.system_id
from unnest($1::text[], $2::text[]) with ordinality as i (conversation, replied_to, ord)
join lateral (
    select o.system_id from outbox o
    where o.conversation = i.conversation and o.platform_message_id in (i.replied_to, '<' || i.replied_to || '>')
    order by o.created_at desc limit 1
) o on true;

-- name: get
select m.request_id, m.conversation, m.channel, m.endpoint, m.sender, m.thread, m.envelope, m.media_type, m.received_at,
       message_state(m.request_id) as state
from message_inbox m where m.request_id = $1;

-- name: raw
select m.raw, m.media_type from message_inbox m where m.request_id = $1;

-- name: list
select m.request_id, m.conversation, m.channel, m.endpoint, m.sender, m.thread, m.envelope, m.media_type, m.received_at,
       message_state(m.request_id) as state
from message_inbox m
where ($1::uuid is null or m.request_id < $1)
  and ($3::text is null or m.channel = $3) and ($4::text is null or m.endpoint = $4)
order by m.request_id desc limit $2;

-- name: backlog
-- Replies that wait for a connector are not counted: a connector that is away must not close the doors for everyone.
select coalesce(sum(last_seq - done_seq), 0) from lane where state <> 'idle' and state <> 'paused' and pool in ('work', 'route');
