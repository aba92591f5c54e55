-- part: shown
-- The text is what came to the team of the reader, $2; null is an operator, who sees the whole.
select x.dead_letter_id, x.request_id, (select c.name from conversation c where c.conversation = x.conversation) as conversation, x.team_id, x.channel, x.category, x.reason, x.system_id, x.handler,
       x.status, x.handled_by_system_id, x.resolution, x.received_at, x.created_at, x.handled_at, x.rerouted_n,
       x.sender_told_at, x.emptied_at, x.payload #>> '{sender,identity}' as sender,
       left(coalesce(case when x.emptied_at is null then part_of(x.request_id, x.n, $2) end,
                     x.payload #>> '{payload,normalized_text}'), 200) as text,
       x.text as part

-- part: wanted
($3::text[] is null or team_id = any ($3)) and ($4::text is null or status = $4)
  and ($5::text is null or category = $5) and ($6::text is null or channel = $6) and ($7::text is null or system_id = $7)
  and ($8::timestamptz is null or created_at >= $8) and ($9::timestamptz is null or created_at < $9)
  and ($10::uuid[] is null or dead_letter_id = any ($10))

-- part: pending
select dead_letter_id from dead_letter
where status = 'pending' and ($1::uuid is null or dead_letter_id > $1)
  and {{wanted}}

-- name: list
-- This and the next two are planned each time (`planned`), by the given filters: pending ones, those of a team, of a
-- category and the newest of all are read by their indexes. Other filters, on any status, cost a walk from the
-- newest back until the page is full; `since` does not cut it short.
{{shown}}
from dead_letter x
where ($1::uuid is null or dead_letter_id < $1)
  and {{wanted}}
order by dead_letter_id desc limit $11;

-- name: pending_ids
{{pending}}
order by dead_letter_id limit $2;

-- name: count_pending
select count(*) from (
    {{pending}}
    limit $2
) x;

-- name: of_message
{{shown}}
from dead_letter x where x.request_id = $1 order by x.dead_letter_id;

-- name: get
{{shown}},
       x.payload, x.raw, part_of(x.request_id, x.n, $2) as seen
from dead_letter x where x.dead_letter_id = $1;

-- name: case
-- What is needed to decide about the message again, if it is still kept.
select x.dead_letter_id, x.request_id, (select c.name from conversation c where c.conversation = x.conversation) as conversation, x.team_id, x.status, x.handled_by_system_id, x.resolution,
       x.rerouted_n, coalesce(x.payload #>> '{control,policy_tier}', 'default') as tier,
       exists (select from message_inbox m where m.request_id = x.request_id) as kept,
       (select d.facts from decision d where d.request_id = x.request_id and d.n = 1) as facts,
       (select o.outbox_id from outbox o where o.lane = x.lane and o.seq = x.seq) as reply,
       array(select d.system_id from delivery d
             where d.request_id = x.request_id and d.state in ('pending', 'answered', 'declined')
               and (d.text is null or d.text = x.text)) as taken
from dead_letter x
where x.dead_letter_id = $1;

-- name: reroute
select outcome, n from reroute_dead_letter(
    $1, $2, $3, $4, $5, $6::smallint, $7::text[], $8::text[],
    $9::uuid[], $10::text[], $11::text[], $12::text[], $13::text[]);

-- name: rerouted
select lane_name(d.lane) as lane, d.seq, d.system_id, d.team_id
from delivery d where d.request_id = $1 and d.n = $2 order by d.system_id;

-- name: rerouted_to
-- The first step of a reroute says what was ordered.
select trail #> '{0,targets}' as targets from decision where request_id = $1 and n = $2;

-- name: handle
update dead_letter set status = 'handled', handled_by_system_id = $2, resolution = $3, handled_at = clock_timestamp()
where dead_letter_id = $1 and status = 'pending';

-- name: notices
select x.dead_letter_id, lane_name(n.lane) as lane, n.seq, n.team_id, n.system_id, n.state, n.error_class, n.created_at, n.settled_at,
       n.dead_letters, (select count(*) from attempt t where t.request_id = n.request_id and t.lane = n.lane and t.seq = n.seq) as attempts
from dead_letter x join notice n on n.lane = x.notice_lane and n.seq = x.notice_seq
where x.request_id = $1 order by n.created_at, n.system_id, n.seq;

-- name: waiting_handlers
select distinct handler from dead_letter
where handler is not null and notice_lane is null and status = 'pending' order by handler;

-- name: digest
select digest_dead_letters($1);

-- name: untold
select distinct on (x.request_id) x.request_id, m.channel, m.endpoint, m.envelope, w.raw, m.media_type, m.received_at
from dead_letter x
join message_inbox m on m.request_id = x.request_id
join message_raw w on w.request_id = x.request_id
where x.dead_letter_id >= $1 and x.status = 'pending' and x.sender_told_at is null and not x.sender_spared
  and x.channel <> 'notice'
  and not exists (
      select from dead_letter y
      where y.request_id = x.request_id
        and (y.status <> 'pending' or y.sender_told_at is not null or y.sender_spared)
  )
  and not exists (select from outbox o where o.request_id = x.request_id)
  and message_state(x.request_id) = 'dead'
order by x.request_id limit $2;

-- name: tell_sender
select tell_sender($1, $2, $3, $4);

-- name: spare_sender
update dead_letter set sender_spared = true where request_id = $1 and sender_told_at is null;

-- part: report
-- A dead letter without anything that the sender wrote: what a butler or a model gave as its reason may quote it.
x.dead_letter_id, x.request_id, x.team_id, x.channel, x.category, x.system_id, x.created_at,
coalesce(case when x.lane is null and x.category not in ('classification_failed', 'poison')
                   or x.category in ('reply_uncertain', 'reply_braked', 'reply_unreachable', 'reply_undelivered') then x.reason end,
         (select d.error_class from delivery d where d.lane = x.lane and d.seq = x.seq), x.category) as reason

-- name: log
update dead_letter x set logged_at = clock_timestamp()
where x.dead_letter_id in (
    select y.dead_letter_id from dead_letter y where y.logged_at is null
    order by y.dead_letter_id limit $1 for no key update skip locked
)
returning {{report}};

-- name: tell
-- The next attempt is set before this one is made: if it is cut off, there is another.
update dead_letter x set
    tell_attempts = x.tell_attempts + 1,
    tell_after = clock_timestamp() + least($3::interval, $2::interval * 2.0 ^ least(x.tell_attempts, 20))
where x.dead_letter_id in (
    select y.dead_letter_id from dead_letter y
    where y.status = 'pending' and y.told_at is null and y.tell_after <= statement_timestamp()
    order by y.tell_after limit $1 for no key update skip locked
)
returning {{report}};

-- name: told
update dead_letter set told_at = clock_timestamp() where dead_letter_id = $1;

-- name: empty
update dead_letter set payload = '{}', raw = '', text = null, emptied_at = clock_timestamp()
where dead_letter_id in (
    select x.dead_letter_id from dead_letter x
    where x.status = 'handled' and x.emptied_at is null and x.handled_at < clock_timestamp() - $1::interval
    order by x.handled_at limit $2 for no key update skip locked
);
