-- part: given
-- Columns of texts, joined by $1: that costs the caller a third of arrays. An empty one is null.
    string_to_array($2, $1, ''), string_to_array($3, $1, '')::uuid[], string_to_array($4, $1, '')::uuid[],
    string_to_array($5, $1, '')::uuid[], string_to_array($6, $1, '')::uuid[], string_to_array($7, $1, ''),
    string_to_array($8, $1, ''), string_to_array($9, $1, ''), string_to_array($10, $1, ''),
    string_to_array($11, $1, ''), string_to_array($12, $1, ''), string_to_array($13, $1, '')::timestamptz[],
    string_to_array($14, $1, '')::smallint[], string_to_array($15, $1, '')::bigint[], string_to_array($16, $1, '')::smallint[],
    string_to_array($17, $1, ''), string_to_array($18, $1, ''), string_to_array($19, $1, ''), string_to_array($20, $1, '')::boolean[],
    string_to_array($21, $1, '')::integer[], string_to_array($22, $1, '')::integer[], $23::bytea,
    string_to_array($24, $1, '')::integer[], string_to_array($25, $1, '')::uuid[], string_to_array($26, $1, ''),
    string_to_array($27, $1, ''), $28::integer[], $29::uuid[], $30::text[], $31::text[], $32::text[], $33::text[]

-- name: accept
select ord, request_id, waits, differs from accept_messages(
{{given}});

-- name: accept_for_program
select ord, request_id, waits, differs from accept_for_program(
    $34::bigint,
{{given}});

-- name: reserve
insert into dedupe (key, body, request_id)
    select e.key, e.body, e.request_id from unnest($1::uuid[], $2::uuid[], $3::uuid[]) as e (key, body, request_id)
    order by e.key on conflict do nothing;

-- name: split
-- What was just accepted ($2: when) of the message, in parts: of butlers, of teams that have a dead letter, of all teams.
with parts as (
    update delivery d set text = p.text, segment = p.n
    from unnest($3::text[], $4::text[]) with ordinality as p (system_id, text, n)
    where d.request_id = $1 and d.n = 1 and d.created_at = $2 and d.system_id = p.system_id
), lost as (
    update dead_letter x set text = p.text
    from (select distinct on (team_id) team_id, text from unnest($5::text[], $6::text[]) as p (team_id, text)) p
    where x.request_id = $1 and x.lane is null and x.team_id = p.team_id
)
update decision d set parts = $7::text::jsonb where d.request_id = $1 and d.n = 1 and d.decided_at = $2;

-- name: authors
select i.ord, o.system_id
from unnest($1::text[], $2::text[]) with ordinality as i (conversation, replied_to, ord)
join lateral (
    select o.system_id
    from (
        select w.system_id, w.created_at, w.outbox_id from outbox w
        where w.lane = lane_key('send', null, conversation_key(i.conversation)) and w.platform_message_id in (i.replied_to, '<' || i.replied_to || '>')
        union all
        select w.system_id, w.created_at, w.outbox_id from outbox_part p join outbox w using (outbox_id)
        where p.lane = lane_key('send', null, conversation_key(i.conversation)) and p.platform_message_id in (i.replied_to, '<' || i.replied_to || '>')
    ) o
    where o.system_id <> 'switchboard' or exists (
        select from approval p join awaited a on a.key = p.approval_id
        where p.told_in = o.outbox_id and p.kind = 'question' and approval_state(a) = 'pending'
    )
    order by o.created_at desc limit 1
) o on true;

-- name: have_written
select i.ord
from unnest($1::text[], $2::text[]) with ordinality as i (conversation, system_id, ord)
where exists (
    select from outbox o
    where o.lane = lane_key('send', null, conversation_key(i.conversation)) and o.system_id = i.system_id
);

-- name: place
select ord, conversation, name
from place_in_correspondence($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::text[], $6::text[], $7::integer[], $8::uuid[],
                             $9::integer[], $10::text[], $11::integer[], $12::uuid[], $13);

-- name: first_of_event
select request_id from dedupe where key = $1::uuid;

-- name: forget_events
-- In the order of keys, as all that write them.
with old as (
    select d.key from dedupe d join unnest($1::uuid[], $2::uuid[]) as g (key, since) using (key)
    where d.request_id < g.since order by d.key for update of d
)
delete from dedupe d using old where d.key = old.key;

-- name: known_events
select key, body, request_id from dedupe where key = any($1::uuid[]);

-- part: shown
select m.request_id, c.name as conversation, m.channel, m.endpoint, m.sender, m.thread, m.envelope, m.media_type, m.received_at,
       message_state(m.request_id) as state,
       array(select d.system_id from delivery d where d.request_id = m.request_id group by d.system_id order by min(d.created_at), 1) as went_to,
       exists (select from held h where h.request_id = m.request_id and h.state = 'code') as is_code

-- name: get
{{shown}}
from message_inbox m join conversation c using (conversation) where m.request_id = $1;

-- name: raw
select w.raw, m.media_type from message_inbox m join message_raw w using (request_id) where m.request_id = $1;

-- name: backlog
-- Replies that wait for a connector are not counted: an absent connector must not block new messages for everyone.
select coalesce(sum(last_seq - done_seq), 0) from lane where state <> 'idle' and state <> 'paused' and pool in ('work', 'route');

-- name: crowded
-- Which endpoint the upper half of a flow stands for is told by any conversation of it.
select m.channel, m.endpoint
from (
    select min(conversation::text)::uuid as conversation from lane
    where state <> 'idle' and state <> 'paused' and pool in ('work', 'route') and conversation is not null
    group by flow >> 32 having sum(last_seq - done_seq) >= $1
) c
cross join lateral (
    select i.channel, i.endpoint from message_inbox i where i.conversation = c.conversation order by i.request_id limit 1
) m;
