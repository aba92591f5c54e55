-- Each statement passes once over the tables it names; all run in one snapshot (repeatable read), so they agree.
-- Every statement below `problems` gives sentences, at most 20 of each kind.

-- name: messages
with state as (
    select s.request_id,
           case when bool_or(s.state = 'pending') then 'in_flight'
                when bool_or(s.state = 'answered') then 'answered'
                when bool_or(s.state = 'declined') then 'declined'
                when bool_or(s.state = 'dead') then 'dead'
                else 'cancelled' end as state
    from (
        select d.request_id, d.state from delivery d
        union all
        select x.request_id, 'dead' from dead_letter x where x.lane is null
        union all
        select r.request_id, 'pending' from routing r where r.state = 'pending'
    ) s
    group by s.request_id
)
select count(*) as accepted,
       count(*) filter (where s.state = 'in_flight') as in_flight,
       count(*) filter (where s.state = 'answered') as answered,
       count(*) filter (where s.state = 'declined') as declined,
       count(*) filter (where s.state = 'dead') as dead,
       count(*) filter (where s.state = 'cancelled') as cancelled
from message_inbox m left join state s on s.request_id = m.request_id;

-- name: targets
-- What waits to be classified is one target, until it is known how many there are.
select (coalesce((select sum(branches) from decision), 0)
        + (select count(*) from routing where state = 'pending'))::bigint as accepted,
       count(*) filter (where s.state = 'pending') as in_flight,
       count(*) filter (where s.state = 'answered') as answered,
       count(*) filter (where s.state = 'declined') as declined,
       count(*) filter (where s.state = 'dead') as dead,
       count(*) filter (where s.state = 'cancelled') as cancelled
from (
    select d.state from delivery d
    union all
    select 'dead' from dead_letter x where x.lane is null
    union all
    select r.state from routing r where r.state = 'pending'
) s;

-- name: problem_no_decision
select format('message %s has no decision', m.request_id) as problem
from message_inbox m
where not exists (select from decision d where d.request_id = m.request_id and d.conversation = m.conversation)
  and not exists (select from routing r where r.request_id = m.request_id and r.state = 'pending') limit 20;

-- name: problem_route
select case
        when d.request_id is not null then format('message %s waits to be routed (%s #%s), but is decided already', r.request_id, r.lane, r.seq)
        when l.key is null then format('message %s waits to be routed in %s, which does not exist', r.request_id, r.lane)
        when r.seq > l.last_seq then format('%s #%s of message %s lies beyond the end of its lane (%s)', r.lane, r.seq, r.request_id, l.last_seq)
        when r.state = 'pending' then format('message %s waits to be routed, but %s is already at %s', r.request_id, r.lane, l.done_seq)
        else format('message %s is routed as %s #%s, but the lane is only at %s', r.request_id, r.lane, r.seq, l.done_seq)
       end as problem
from routing r
left join lane l on l.key = r.lane
left join decision d on r.state = 'pending' and d.request_id = r.request_id and d.conversation = r.conversation and d.n = 1
where l.key is null or (r.state = 'pending') = (r.seq <= l.done_seq) or r.seq > l.last_seq or d.request_id is not null limit 20;

-- name: problem_branches
select format('message %s was decided to go %s ways, and %s are on the books', d.request_id, d.branches, coalesce(s.n, 0)) as problem
from (select request_id, sum(branches) as branches from decision group by request_id) d
left join (
    select request_id, count(*) as n
    from (select request_id from delivery union all select request_id from dead_letter where lane is null) x
    group by request_id
) s on s.request_id = d.request_id
where d.branches <> coalesce(s.n, 0) limit 20;

-- name: problem_no_message
select format('%s %s belongs to message %s, which is not in the inbox', x.what, x.id, x.request_id) as problem
from (
    select 'delivery' as what, lane || ' #' || seq as id, request_id, conversation from delivery
    union all select 'dead letter', dead_letter_id::text, request_id, conversation from dead_letter
    union all select 'decision', n::text, request_id, conversation from decision
    union all select 'reply', outbox_id::text, request_id, conversation from outbox
    union all select 'dedupe key', key, request_id, conversation from dedupe
    union all select 'waiting', lane || ' #' || seq, request_id, conversation from routing
) x
where not exists (select from message_inbox m where m.request_id = x.request_id and m.conversation = x.conversation) limit 20;

-- name: problem_delivery_lane
select case
        when l.key is null then format('delivery %s #%s of message %s has no lane', d.lane, d.seq, d.request_id)
        when d.state = 'pending' then format('delivery %s #%s of message %s is pending, but its lane is already at %s', d.lane, d.seq, d.request_id, l.done_seq)
        when l.done_seq < d.seq then format('delivery %s #%s of message %s is %s, but its lane is only at %s', d.lane, d.seq, d.request_id, d.state, l.done_seq)
        else format('delivery %s #%s of message %s lies beyond the end of its lane (%s)', d.lane, d.seq, d.request_id, l.last_seq)
       end as problem
from delivery d left join lane l on l.key = d.lane
where l.key is null or (d.state = 'pending') = (d.seq <= l.done_seq) or d.seq > l.last_seq limit 20;

-- name: problem_no_turn
select format('delivery %s #%s of message %s is %s without a turn that says so', d.lane, d.seq, d.request_id, d.state) as problem
from delivery d
where d.state in ('answered', 'declined')
  and not exists (select from turn t where t.lane = d.lane and t.seq = d.seq and t.outcome = d.state) limit 20;

-- name: problem_no_reply
select format('message %s was answered by %s, but %s of its %s replies are in the outbox', d.request_id, d.system_id, coalesce(o.n, 0), d.n) as problem
from (select request_id, system_id, count(*) as n from delivery where state = 'answered' group by 1, 2) d
left join (select request_id, system_id, count(*) as n from outbox group by 1, 2) o
    on o.request_id = d.request_id and o.system_id = d.system_id
where coalesce(o.n, 0) < d.n limit 20;

-- name: problem_no_dead_letter
select format('delivery %s #%s of message %s is dead, but there is no dead letter', d.lane, d.seq, d.request_id) as problem
from delivery d
where d.state = 'dead' and not exists (select from dead_letter x where x.lane = d.lane and x.seq = d.seq) limit 20;

-- name: problem_notice
select format('dead letter %s was to be told to %s, but there is no notice', x.dead_letter_id, x.handler) as problem
from dead_letter x
where x.notice_lane is not null
  and not exists (select from notice n where n.lane = x.notice_lane and n.seq = x.notice_seq) limit 20;

-- name: problem_digest
select format('notice %s #%s tells of %s dead letters, and %s are on the books', n.lane, n.seq, n.letters, coalesce(x.letters, 0)) as problem
from notice n
left join (
    select notice_lane, notice_seq, count(*) as letters from dead_letter where notice_lane is not null group by 1, 2
) x on x.notice_lane = n.lane and x.notice_seq = n.seq
where n.letters <> coalesce(x.letters, 0) limit 20;

-- name: problem_letter
select case
        when x.status = 'pending' and x.rerouted_n is not null
            then format('dead letter %s was rerouted by decision %s, but is still pending', x.dead_letter_id, x.rerouted_n)
        when x.status = 'pending' then format('dead letter %s was emptied before anybody handled it', x.dead_letter_id)
        when x.handled_at is null then format('dead letter %s is handled, but nobody says when', x.dead_letter_id)
        else format('dead letter %s was rerouted by decision %s of message %s, which does not exist', x.dead_letter_id, x.rerouted_n, x.request_id)
       end as problem
from dead_letter x
left join decision d on d.request_id = x.request_id and d.conversation = x.conversation and d.n = x.rerouted_n
where (x.status = 'pending' and (x.rerouted_n is not null or x.emptied_at is not null))
   or (x.status = 'handled' and x.handled_at is null)
   or (x.rerouted_n is not null and d.n is null) limit 20;

-- name: problem_reroute
select format('decision %s of message %s rerouted a dead letter, and none says so', d.n, d.request_id) as problem
from decision d
where d.n > 1 and d.trail #>> '{0,reason}' = 'reroute'
  and not exists (
      select from dead_letter x
      where x.request_id = d.request_id and x.conversation = d.conversation and x.rerouted_n = d.n
  ) limit 20;

-- name: problem_reply_lane
select format('reply %s is %s, but its lane is already at %s', o.outbox_id, o.state, l.done_seq) as problem
from outbox o join lane l on l.key = o.lane
where o.state in ('pending', 'sending') and o.seq <= l.done_seq limit 20;

-- name: problem_lane_state
select case
        when l.state = 'idle' then format('lane %s is idle with %s items waiting', l.key, l.last_seq - l.done_seq)
        when l.done_seq > l.last_seq then format('lane %s is at %s, beyond its end (%s)', l.key, l.done_seq, l.last_seq)
        else format('lane %s is %s, but nothing is in it', l.key, l.state)
       end as problem
from lane l
where (l.state = 'idle' and l.last_seq <> l.done_seq) or l.done_seq > l.last_seq
   or (l.state in ('ready', 'running') and l.last_seq = l.done_seq) limit 20;

-- name: problem_lane_item
select format('lane %s waits for item %s, which does not exist', l.key, l.done_seq + 1) as problem
from lane l
where l.state <> 'idle' and l.last_seq > l.done_seq and l.kind in ('turn', 'send', 'notice', 'route')
  and not exists (select from delivery d where d.lane = l.key and d.seq = l.done_seq + 1)
  and not exists (select from outbox o where o.lane = l.key and o.seq = l.done_seq + 1)
  and not exists (select from notice n where n.lane = l.key and n.seq = l.done_seq + 1)
  and not exists (select from routing r where r.lane = l.key and r.seq = l.done_seq + 1) limit 20;

-- name: problem_lane_owner
select case
        when l.owner is null and l.lease_until is null then format('lane %s runs, but belongs to nobody and has no lease', l.key)
        when l.owner is null then format('lane %s has a lease that ran out at %s and nobody takes it back: is a worker running?', l.key, l.lease_until)
        else format('lane %s runs on worker %s, who is not registered', l.key, l.owner)
       end as problem
from lane l
where l.state = 'running' and case
    when l.owner is not null then not exists (select from worker w where w.worker_id = l.owner)
    else l.lease_until is null or l.lease_until < clock_timestamp() - $1::interval end limit 20;

-- name: problem_lane_paused
select format('lane %s is paused with %s items waiting; resume it when the cause is mended', l.key, l.last_seq - l.done_seq) as problem
from lane l where l.state = 'paused' limit 20;

-- name: problem_lane_waiting
select format('lane %s has waited for a worker since %s; is one running?', l.key, l.ready_at) as problem
from lane l where l.state = 'ready' and l.pool in ('work', 'route') and l.ready_at < clock_timestamp() - $1::interval limit 20;

-- name: problem_untold
select format('dead letter %s has waited to be told to %s since %s; is a worker running?', x.dead_letter_id, x.handler, x.created_at) as problem
from dead_letter x
where x.handler is not null and x.notice_lane is null and x.status = 'pending'
  and x.created_at < clock_timestamp() - $1::interval limit 20;
