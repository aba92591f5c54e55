-- Each statement passes once over what it names; those of one day run in one snapshot (repeatable read), so they agree.
-- What takes $1 and $2 is of what was accepted in that range of request_ids. The range stands at every table, so that
-- partitions and indexes are pruned on both sides of a join. The other problems are of what is open, however old it is.
-- The problems are sentences, at most 20 of each kind.

-- part: counts
count(*) filter (where s.state = 'pending') as in_flight,
count(*) filter (where s.state = 'answered') as answered,
count(*) filter (where s.state = 'declined') as declined,
count(*) filter (where s.state = 'dead') as dead,
count(*) filter (where s.state = 'cancelled') as cancelled,
count(*) filter (where s.state = 'held') as held

-- name: messages
with state as (
    select s.request_id,
           case when bool_or(s.state = 'pending') then 'pending'
                when bool_or(s.state = 'answered') then 'answered'
                when bool_or(s.state = 'declined') then 'declined'
                when bool_or(s.state = 'dead') then 'dead'
                when bool_or(s.state = 'held') then 'held'
                else 'cancelled' end as state
    from (
        select d.request_id, case when d.error_class = 'handed_on' then 'cancelled' else d.state end as state
            from delivery d where d.request_id between $1 and $2
        union all
        select x.request_id, 'dead' from dead_letter x where x.lane is null and x.request_id between $1 and $2
        union all
        select r.request_id, 'pending' from routing r where r.state = 'pending' and r.request_id between $1 and $2
        union all
        select h.request_id, case when h.state = 'held' then 'held' else 'cancelled' end from held h where h.request_id between $1 and $2
    ) s
    group by s.request_id
)
select count(*) as accepted, {{counts}},
       count(*) filter (where s.state is null and exists (
           select from decision d where d.request_id = m.request_id and d.request_id between $1 and $2 and d.branches = 0
       )) as history
from message_inbox m left join state s on s.request_id = m.request_id
where m.request_id between $1 and $2;

-- name: targets
-- What waits to be classified is one target, until it is known how many there are; what is held has none yet.
select (coalesce((select sum(branches) from decision where request_id between $1 and $2), 0)
        + (select count(*) from routing where state = 'pending' and request_id between $1 and $2))::bigint as accepted,
       {{counts}}, 0::bigint as history
from (
    select d.state from delivery d where d.request_id between $1 and $2
    union all
    select 'dead' from dead_letter x where x.lane is null and x.request_id between $1 and $2
    union all
    select r.state from routing r where r.state = 'pending' and r.request_id between $1 and $2
) s;

-- name: outcomes
with dead as (
    select distinct x.request_id from dead_letter x
    where x.request_id between $1 and $2 and x.category not in ('reply_uncertain', 'reply_braked', 'reply_unreachable', 'reply_undelivered')
), classified as (
    select distinct c.request_id from classification c where c.request_id between $1 and $2 and c.error is null
), decided as (
    select d.request_id from decision d where d.request_id between $1 and $2 and d.n = 1 and d.branches > 0
)
select count(*) filter (where x.request_id is null and c.request_id is null) as routed,
       count(*) filter (where x.request_id is null and c.request_id is not null) as classified,
       count(x.request_id) as dead
from decided d left join dead x using (request_id) left join classified c using (request_id);

-- name: write_outcomes
insert into outcome (day, routed, classified, dead) values ($1, $2, $3, $4)
on conflict (day) do update set routed = excluded.routed, classified = excluded.classified, dead = excluded.dead;

-- name: write_tally
insert into tally (day, system_id, answered)
    select $1, system_id, count(*) from delivery where request_id between $2 and $3 and state = 'answered' group by system_id
on conflict (day, system_id) do update set answered = excluded.answered;

-- name: last_day
select max(day) from book;

-- name: tallies
-- Those answered on days before $1, of whose messages the first was $2, are on record; the others are few.
select system_id, sum(answered)::bigint as answered, sum(dead)::bigint as dead, sum(in_flight)::bigint as in_flight
from (
    select system_id, sum(answered) as answered, 0 as dead, 0 as in_flight from tally where day < $1 group by system_id
    union all
    select system_id, count(*), 0, 0 from delivery where state = 'answered' and request_id >= $2 group by system_id
    union all
    select system_id, 0, count(*) filter (where state = 'dead'), count(*) filter (where state = 'pending')
    from delivery where state <> 'answered' group by system_id
) d
group by system_id;

-- name: outcomes_of
select routed, classified, dead from outcome where day = $1;

-- name: problem_no_decision
select format('message %s has no decision', m.request_id) as problem
from message_inbox m
where m.request_id between $1 and $2
  and not exists (select from decision d where d.request_id = m.request_id and d.request_id between $1 and $2)
  and not exists (select from routing r where r.request_id = m.request_id and r.request_id between $1 and $2 and r.state = 'pending')
  and not exists (select from held h where h.request_id = m.request_id and h.request_id between $1 and $2) limit 20;

-- name: problem_route
select case
        when l.key is null then format('message %s waits to be routed in %s, which does not exist', r.request_id, r.lane)
        when r.seq > l.last_seq then format('%s #%s of message %s lies beyond the end of its lane (%s)', lane_name(r.lane), r.seq, r.request_id, l.last_seq)
        else format('message %s is routed as %s #%s, but the lane is only at %s', r.request_id, lane_name(r.lane), r.seq, l.done_seq)
       end as problem
from routing r left join lane l on l.key = r.lane
where r.request_id between $1 and $2 and r.state <> 'pending'
  and (l.key is null or r.seq > l.done_seq or (l.parked > 0 and is_parked(r.lane, r.seq))) limit 20;

-- name: problem_branches
select format('message %s was decided to go %s ways, and %s are on the books', d.request_id, d.branches, coalesce(s.n, 0)) as problem
from (select request_id, sum(branches) as branches from decision where request_id between $1 and $2 group by request_id) d
left join (
    select request_id, count(*) as n
    from (select request_id from delivery where request_id between $1 and $2
          union all select request_id from dead_letter where lane is null and request_id between $1 and $2) x
    group by request_id
) s on s.request_id = d.request_id
where d.branches <> coalesce(s.n, 0) limit 20;

-- name: problem_no_message
select format('%s %s belongs to message %s, which is not in the inbox', x.what, x.id, x.request_id) as problem
from (
    select 'delivery' as what, lane || ' #' || seq as id, request_id from delivery where request_id between $1 and $2
    union all select 'dead letter', dead_letter_id::text, request_id from dead_letter where request_id between $1 and $2
    union all select 'decision', n::text, request_id from decision where request_id between $1 and $2
    union all select 'reply', outbox_id::text, request_id from outbox where request_id between $1 and $2
    union all select 'dedupe key', key::text, request_id from dedupe where request_id between $1 and $2
    union all select 'waiting', lane || ' #' || seq, request_id from routing where request_id between $1 and $2
) x
where not exists (select from message_inbox m where m.request_id = x.request_id and m.request_id between $1 and $2)
  and not exists (select from pipeline_key k where k.request_id = x.request_id and k.done) limit 20;

-- name: problem_delivery_lane
select case
        when l.key is null then format('delivery %s #%s of message %s has no lane', coalesce(lane_name(d.lane), d.lane::text), d.seq, d.request_id)
        when l.done_seq < d.seq then format('delivery %s #%s of message %s is %s, but its lane is only at %s', lane_name(d.lane), d.seq, d.request_id, d.state, l.done_seq)
        else format('delivery %s #%s of message %s is %s, but it is parked', lane_name(d.lane), d.seq, d.request_id, d.state)
       end as problem
from delivery d left join lane l on l.key = d.lane
where d.request_id between $1 and $2 and d.state <> 'pending'
  and (l.key is null or d.seq > l.done_seq or (l.parked > 0 and is_parked(d.lane, d.seq))) limit 20;

-- name: problem_no_turn
select format('delivery %s #%s of message %s is %s without a turn that says so', coalesce(lane_name(d.lane), d.lane::text), d.seq, d.request_id, d.state) as problem
from delivery d
where d.request_id between $1 and $2 and d.state in ('answered', 'declined')
  and not exists (select from attempt t where t.request_id = d.request_id and t.request_id between $1 and $2 and t.lane = d.lane and t.seq = d.seq and t.outcome = d.state) limit 20;

-- name: problem_entry
-- What was saved outside of turns has an id, and is no message.
select format('message %s is in the history of %s, but its turn has not ended', e.request_id, coalesce(lane_name(e.lane), e.lane::text)) as problem
from (select distinct request_id, lane from entry where request_id between $1 and $2) e
where not exists (select from delivery d where d.request_id = e.request_id and d.lane = e.lane and d.state <> 'pending')
  and exists (select from message_inbox m where m.request_id = e.request_id and m.request_id between $1 and $2) limit 20;

-- name: problem_no_reply
-- One by one, by index: before the tables are analyzed, two counts are joined row by row.
select format('message %s was answered by %s, but %s of its %s replies are in the outbox', d.request_id, d.system_id, o.n, d.n) as problem
from (select request_id, system_id, count(*) as n from delivery where request_id between $1 and $2 and state = 'answered' group by 1, 2) d
cross join lateral (select count(*) as n from outbox o where o.request_id = d.request_id and o.system_id = d.system_id) o
where o.n < d.n limit 20;

-- name: problem_no_dead_letter
select format('delivery %s #%s of message %s is dead, but there is no dead letter', coalesce(lane_name(d.lane), d.lane::text), d.seq, d.request_id) as problem
from delivery d
where d.request_id between $1 and $2 and d.state = 'dead'
  and not exists (select from dead_letter x where x.request_id = d.request_id and x.lane = d.lane and x.seq = d.seq) limit 20;

-- name: problem_notice
select format('dead letter %s was to be told to %s, but there is no notice', x.dead_letter_id, x.handler) as problem
from dead_letter x
where x.request_id between $1 and $2 and x.notice_lane is not null
  and not exists (select from notice n where n.lane = x.notice_lane and n.seq = x.notice_seq) limit 20;

-- name: problem_digest
-- One by one, by index: the dead letters of a digest may be of any day.
select format('notice %s #%s tells of %s dead letters, and %s are on the books', lane_name(n.lane), n.seq, n.dead_letters, x.dead_letters) as problem
from notice n
cross join lateral (
    select count(*) as dead_letters from dead_letter d where d.notice_lane = n.lane and d.notice_seq = n.seq
) x
where n.request_id between $1 and $2 and n.dead_letters <> x.dead_letters limit 20;

-- name: problem_dead_letter
select case
        when x.handled_at is null then format('dead letter %s is handled, but nobody says when', x.dead_letter_id)
        else format('dead letter %s was rerouted by decision %s of message %s, which does not exist', x.dead_letter_id, x.rerouted_n, x.request_id)
       end as problem
from dead_letter x
left join decision d on d.request_id = x.request_id and d.n = x.rerouted_n
where x.request_id between $1 and $2 and x.status = 'handled'
  and (x.handled_at is null or (x.rerouted_n is not null and d.n is null)) limit 20;

-- name: problem_reroute
select format('decision %s of message %s rerouted a dead letter, and none says so', d.n, d.request_id) as problem
from decision d
where d.request_id between $1 and $2 and d.n > 1 and d.trail #>> '{0,reason}' = 'reroute'
  and not exists (
      select from dead_letter x
      where x.request_id = d.request_id and x.rerouted_n = d.n
  ) limit 20;

-- name: problem_route_pending
select case
        when d.request_id is not null then format('message %s waits to be routed (%s #%s), but is decided already', r.request_id, coalesce(lane_name(r.lane), r.lane::text), r.seq)
        when l.key is null then format('message %s waits to be routed in %s, which does not exist', r.request_id, r.lane)
        when r.seq > l.last_seq then format('%s #%s of message %s lies beyond the end of its lane (%s)', lane_name(r.lane), r.seq, r.request_id, l.last_seq)
        when l.state = 'idle' then format('message %s waits to be routed, but %s is idle', r.request_id, lane_name(r.lane))
        else format('message %s waits to be routed, but %s is already at %s', r.request_id, lane_name(r.lane), l.done_seq)
       end as problem
from routing r
left join lane l on l.key = r.lane
left join decision d on d.request_id = r.request_id and d.n = 1
where r.state = 'pending' and (
    l.key is null or r.seq > l.last_seq or d.request_id is not null
    or (r.seq <= l.done_seq and not (l.parked > 0 and is_parked(r.lane, r.seq)))
    or (r.seq > l.done_seq and l.state = 'idle')
) limit 20;

-- name: problem_delivery_pending
select case
        when l.key is null then format('delivery %s #%s of message %s has no lane', coalesce(lane_name(d.lane), d.lane::text), d.seq, d.request_id)
        when d.seq > l.last_seq then format('delivery %s #%s of message %s lies beyond the end of its lane (%s)', lane_name(d.lane), d.seq, d.request_id, l.last_seq)
        when d.seq > l.done_seq then format('delivery %s #%s of message %s is pending, but its lane is idle', lane_name(d.lane), d.seq, d.request_id)
        else format('delivery %s #%s of message %s is pending, but its lane is already at %s', lane_name(d.lane), d.seq, d.request_id, l.done_seq)
       end as problem
from delivery d left join lane l on l.key = d.lane
where d.state = 'pending' and (
    l.key is null or d.seq > l.last_seq
    or (d.seq <= l.done_seq and not (l.parked > 0 and is_parked(d.lane, d.seq)))
    or (d.seq > l.done_seq and l.state = 'idle')
) limit 20;

-- name: problem_dead_letter_pending
select case
        when x.rerouted_n is not null
            then format('dead letter %s was rerouted by decision %s, but is still pending', x.dead_letter_id, x.rerouted_n)
        else format('dead letter %s was emptied before anybody handled it', x.dead_letter_id)
       end as problem
from dead_letter x
where x.status = 'pending' and (x.rerouted_n is not null or x.emptied_at is not null) limit 20;

-- name: problem_reply_lane
select format('reply %s is %s, but its lane is already at %s', o.outbox_id, o.state, l.done_seq) as problem
from outbox o join lane l on l.key = o.lane
where o.state in ('pending', 'sending') and o.seq <= l.done_seq and not (l.parked > 0 and is_parked(o.lane, o.seq)) limit 20;

-- name: problem_lane_state
select case
        when l.done_seq > l.last_seq then format('lane %s is at %s, beyond its end (%s)', lane_name(l.key), l.done_seq, l.last_seq)
        else format('lane %s is %s, but nothing is in it', lane_name(l.key), l.state)
       end as problem
from lane l
where l.state <> 'idle' and (
    l.done_seq > l.last_seq or (l.state in ('ready', 'running') and l.last_seq = l.done_seq and l.resumed_seq is null)
) limit 20;

-- name: problem_lane_item
select format('lane %s waits for item %s, which does not exist', lane_name(l.key), l.next_seq) as problem
from lane l
where l.state <> 'idle' and l.last_seq >= l.next_seq and l.kind in ('turn', 'send', 'notice', 'route')
  and not exists (select from delivery d where d.lane = l.key and d.seq = l.next_seq)
  and not exists (select from outbox o where o.lane = l.key and o.seq = l.next_seq)
  and not exists (select from notice n where n.lane = l.key and n.seq = l.next_seq)
  and not exists (select from routing r where r.lane = l.key and r.seq = l.next_seq) limit 20;

-- name: problem_lane_paused
select format('lane %s is paused with %s items waiting; resume it when the cause is fixed', lane_name(l.key), l.last_seq - l.done_seq) as problem
from lane l where l.state = 'paused' limit 20;

-- name: problem_parked
select case
        when l.key is null then format('item %s of lane %s is parked, but there is no such lane', p.seq, p.lane)
        when p.seq > l.last_seq then format('item %s of lane %s is parked, beyond the end of the lane (%s)', p.seq, lane_name(l.key), l.last_seq)
        else format('item %s of lane %s was decided at %s, but the lane is %s', p.seq, lane_name(l.key), p.decided_at, l.state)
       end as problem
from parked p left join lane l on l.key = p.lane
where l.key is null or p.seq > l.last_seq
   or (p.decided_at is not null and l.resumed_seq is null and l.state in ('idle', 'ready')) limit 20;

-- name: problem_parked_count
select format('lane %s has %s parked items, and %s are on the books', lane_name(coalesce(l.key, p.lane)), coalesce(l.parked, 0), coalesce(p.items, 0)) as problem
from (select key, parked, resumed_seq from lane where parked > 0 or state <> 'idle') l
full join (select lane, count(*) as items from parked group by lane) p on p.lane = l.key
where coalesce(l.parked, 0) <> coalesce(p.items, 0)
   or (l.resumed_seq is not null and not is_parked(l.key, l.resumed_seq)) limit 20;

-- name: problem_lane_owner
select case
        when l.owner is null and l.lease_until is null then format('lane %s runs, but belongs to nobody and has no lease', lane_name(l.key))
        when l.owner is null then format('lane %s has a lease that ran out at %s and nobody takes it back: is a worker running?', lane_name(l.key), l.lease_until)
        else format('lane %s runs on worker %s, who is not registered', lane_name(l.key), l.owner)
       end as problem
from lane l
where l.state = 'running' and case
    when l.owner is not null then not exists (select from process w where w.process_id = l.owner)
    else l.lease_until is null or l.lease_until < clock_timestamp() - $1::interval end limit 20;

-- name: problem_lane_waiting
select format('lane %s has waited for a worker since %s; is one running?', lane_name(l.key), l.ready_at) as problem
from lane l where l.state = 'ready' and l.pool in ('work', 'route') and l.ready_at < clock_timestamp() - $1::interval limit 20;

-- name: problem_overdue
select format('item %s of lane %s was due at %s and nobody woke it: is a worker running?', p.seq, lane_name(p.lane), p.due_at) as problem
from (
    select p.lane, p.seq, p.due_at from parked p where p.decided_at is null
    union all
    select a.lane, a.seq, a.deadline_at from awaited a where a.decided_at is null
) p
where p.due_at < clock_timestamp() - $1::interval limit 20;

-- name: problem_untold
select format('dead letter %s has waited to be told to %s since %s; is a worker running?', x.dead_letter_id, x.handler, x.created_at) as problem
from dead_letter x
where x.handler is not null and x.notice_lane is null and x.status = 'pending'
  and x.created_at < clock_timestamp() - $1::interval limit 20;

-- name: problem_lane_idle
-- One pass over all lanes: an idle one with items that wait is also found by its items, a lane without items only here.
select case
        when l.done_seq > l.last_seq then format('lane %s is at %s, beyond its end (%s)', lane_name(l.key), l.done_seq, l.last_seq)
        else format('lane %s is idle with %s items waiting', lane_name(l.key), l.last_seq - l.done_seq)
       end as problem
from lane l where l.state = 'idle' and l.last_seq <> l.done_seq limit 20;

-- name: first
select request_id from message_inbox order by request_id limit 1;

-- name: turns
-- When each day was balanced, and when all its checks were made. While it lasted does not count.
select day, min(checked_at) filter (where checked_at >= (day + 1)::timestamp at time zone 'UTC') as checked_at,
       min(audited_at) filter (where audited_at >= (day + 1)::timestamp at time zone 'UTC') as audited_at
from book group by day;

-- name: write
insert into book (day, kind, accepted, in_flight, answered, declined, dead, cancelled, held, history, audited_at)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, case when $11 then clock_timestamp() end)
on conflict (day, kind) do update
set accepted = excluded.accepted, in_flight = excluded.in_flight, answered = excluded.answered,
    declined = excluded.declined, dead = excluded.dead, cancelled = excluded.cancelled, held = excluded.held,
    history = excluded.history,
    checked_at = excluded.checked_at, audited_at = coalesce(excluded.audited_at, book.audited_at);

-- name: write_balance
insert into balance (problems) values ($1)
on conflict (one) do update set problems = excluded.problems, at = excluded.at;

-- name: balance
select at, clock_timestamp() - at as age, problems from balance;

-- name: sums
select kind, sum(accepted)::bigint as accepted, sum(in_flight)::bigint as in_flight, sum(answered)::bigint as answered,
       sum(declined)::bigint as declined, sum(dead)::bigint as dead, sum(cancelled)::bigint as cancelled, sum(held)::bigint as held,
       sum(history)::bigint as history
from book group by kind;

-- name: unbalanced
select day, kind, accepted, in_flight, answered, declined, dead, cancelled, held, history from book
where accepted <> in_flight + answered + declined + dead + cancelled + held + history order by day desc limit 20;
