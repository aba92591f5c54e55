-- part: place
with place as materialized (select lane_key('turn', $1, conversation_key($2)) as lane, conversation_key($2) as conversation)

-- name: changes
-- Of a conversation of butler $1, what was edited or deleted since its 20th turn before message $3; of each sender the latest.
-- taken: the butler is to answer the edit anew.
{{place}}
select c.request_id, c.envelope, c.received_at, c.taken
from (
    select m.request_id, m.envelope::text as envelope, m.received_at,
           exists (select from delivery d where d.request_id = m.request_id and d.lane = p.lane) as taken,
           row_number() over (partition by m.sender order by m.request_id desc) as n
    from place p
    cross join lateral (
        select coalesce((array_agg(b.request_id order by b.request_id))[1], '00000000-0000-0000-0000-000000000000') as request_id
        from (select d.request_id from delivery d where d.lane = p.lane and d.request_id < $3 order by d.seq desc limit 20) b
    ) since
    cross join lateral (
        select i.request_id, i.sender, i.envelope, i.received_at from message_inbox i
        where i.conversation = p.conversation and i.request_id > since.request_id
        order by i.request_id desc limit 1000
    ) m
    where strpos(m.envelope::text, '"refers_to"') > 0 and m.envelope #>> '{event,refers_to}' is not null
      and coalesce(m.envelope #>> '{event,kind}', 'message') in ('message', 'edit', 'delete') and m.request_id <> $3
) c
where c.n <= 50
order by c.request_id;

-- name: heard
-- What was said in the group of message $3 since the last turn of butler $1 there or the conversation's beginning, and is
-- not in its history, newest first.
{{place}}
select m.request_id, m.envelope::text as envelope, m.received_at
from place p
cross join lateral (
    select i.request_id, i.envelope, i.received_at from message_inbox i
    where i.conversation = p.conversation and i.request_id < $3 and i.request_id > coalesce(greatest(
        (select d.request_id from delivery d where d.lane = p.lane and d.request_id < $3 order by d.seq desc limit 1),
        (select c.since from conversation_start c where c.conversation = p.conversation)),
        '00000000-0000-0000-0000-000000000000')
    order by i.request_id desc limit 200
) m
where m.envelope #>> '{sender,chat_type}' = any ($6)
  and coalesce(m.envelope #>> '{control,ingestion_tier}', 'full') in ('full', 'history')
  and coalesce(m.envelope #>> '{event,kind}', 'message') = 'message' and m.envelope #>> '{event,refers_to}' is null
  and (m.envelope #>> '{payload,normalized_text}' <> '' or json_array_length(m.envelope #> '{payload,attachments}') > 0)
  and not exists (select from held h where h.request_id = m.request_id)
  and not exists (select from delivery d where d.request_id = m.request_id and d.lane = p.lane)
order by m.request_id desc
limit coalesce((select least(a.heard, $7) from connector_account a where a.channel = $4 and a.endpoint = $5), 0);

-- name: read
-- The latest messages of people that butler $1 remembers and this reader may see; edit: the one whose text its turn read.
{{place}}
select m.request_id, m.envelope::text as envelope, m.received_at, x.edit
from place p
cross join lateral (
    select e.request_id from visible_entries(p.lane, 0, $3, $4, $5) e where e.role = 'user' order by e.position desc limit 20
) e
join message_inbox m on m.request_id = any (array[e.request_id])
left join lateral (
    select (coalesce(s.result #>> '{around,edited,request_id}', s.result #>> '{frozen,around,edited,request_id}'))::uuid as edit
    from step s where s.request_id = e.request_id and s.lane = p.lane and s.path in ('start', 'plan:start') limit 1
) x on true
order by m.request_id;

-- name: was_read
-- Whether a turn of butler $1 before that of edit $3 has read its text, or a newer one, as that of the edited message ($4).
{{place}}
select exists (
    select from place p
    cross join lateral (
        select d.request_id, d.seq from delivery d
        where d.lane = p.lane and d.request_id < $3 and d.state <> 'dead' order by d.seq desc limit 50
    ) d
    join step s on s.request_id = d.request_id and s.lane = p.lane and s.seq = d.seq and s.path in ('start', 'plan:start')
    cross join lateral (select coalesce(s.result #> '{around,edited}', s.result #> '{frozen,around,edited}') as edited) e
    where e.edited ->> 'refers_to' = $4 and (e.edited ->> 'request_id')::uuid >= $3
);

-- name: record
-- What this reader ($3 person, $4 private, $5 authentic) may see of a conversation of butler $1, oldest first: what that butler
-- remembers of it, and our replies with these platform ids ($6), which come last. The wall comes before each limit, so that what
-- others may see changes nothing. is_replied: it has the id $7, of ours also in brackets; told: it may have others' words.
{{place}}, answered as (
    select o.outbox_id, o.request_id, o.system_id, o.text, o.platform_message_id
    from place p join outbox o on o.lane = lane_key('send', null, p.conversation) and o.platform_message_id = any ($6)
    union all
    select o.outbox_id, o.request_id, o.system_id, o.text, w.platform_message_id
    from place p
    join outbox_part w on w.lane = lane_key('send', null, p.conversation) and w.platform_message_id = any ($6)
    join outbox o using (outbox_id)
), texts as (
    select a.text, true as answered, bool_or(a.platform_message_id in ($7, '<' || $7 || '>')) as is_replied, null::text as author, null::bigint as position,
           bool_or(x.told) as told
    from answered a
    cross join place p
    cross join lateral (
        select coalesce(bool_or(e.told is distinct from false), true) as told from entry e
        where e.request_id = a.request_id and e.lane = lane_key('turn', a.system_id, p.conversation) and e.role = 'assistant'
    ) x
    where $5 and a.system_id <> 'switchboard' and exists (
        select from entry e
        where e.request_id = a.request_id and e.lane = lane_key('turn', a.system_id, p.conversation)
          and (not e.private or ($4 and e.person = $3)))
    group by a.outbox_id, a.text
    union all
    select e.text, false, e.role = 'user' and $7 in (m.envelope #>> '{event,reply_address,message}', m.envelope #>> '{event,external_event_id}'),
           case when e.role = 'user' then coalesce(m.envelope #>> '{sender,display_name}', '') end, e.position, true
    from place p
    cross join lateral (
        select v.request_id, v.role, v.text, v.position from visible_entries(p.lane, 0, $3, $4, $5) v order by v.position desc limit 20
    ) e
    left join message_inbox m on $7 is not null and e.role = 'user' and m.request_id = any (array[e.request_id])
), measured as (
    select t.*, row_number() over newest as n, sum(length(t.text)) over newest as total
    from texts t window newest as (order by t.answered desc, t.position desc)
)
select m.text, m.answered, coalesce(m.is_replied, false) as is_replied, m.author, m.told from measured m
where m.n <= 20 and m.total <= 262144
order by m.answered, m.position;
