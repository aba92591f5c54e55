-- name: marks
-- Of each kind of what pages show, a text that is another one once there is something new. Each part is the end of an index,
-- or a bounded number of rows. $1: the interval of heartbeats; $2: how many rows are looked at, at most.
select
    concat_ws(' ',
        (select request_id from message_inbox order by request_id desc limit 1),
        (select outbox_id from outbox order by outbox_id desc limit 1),
        (select concat_ws(',', count(*), count(*) filter (where state = 'ready'), sum(done_seq), sum(epoch), sum(attempts))
         from (select state, done_seq, epoch, attempts from lane where state <> 'idle' limit $2) x),
        (select at from balance)
    ) as messages,
    concat_ws(' ',
        (select approval_id from approval order by asked_at desc, approval_id desc limit 1),
        (select count(*) from (select from awaited where decided_at is null and deadline_at is not null limit $2) x)
    ) as approvals,
    concat_ws(' ',
        (select dead_letter_id from dead_letter order by dead_letter_id desc limit 1),
        (select count(*) from (select from dead_letter where status = 'pending' order by dead_letter_id limit $2) x),
        (select count(*) filter (where state in ('uncertain', 'failed', 'dead'))
         from (select state from outbox where state <> 'sent' order by outbox_id limit $2) x),
        (select handled_at from dead_letter where status = 'handled' and emptied_at is null order by handled_at desc limit 1)
    ) as dead,
    concat_ws(' ',
        (select string_agg(process_id::text, ',' order by process_id) from process where beat + ttl >= clock_timestamp()),
        (select string_agg(concat_ws(',', channel, endpoint, instance_id, state, since, late), ';' order by channel, endpoint, instance_id)
         from (select *, last_seen_at < clock_timestamp() - 2 * $1::interval as late
               from connector order by channel, endpoint, instance_id limit $2) x),
        (select contact_id from contact order by first_seen_at desc, contact_id desc limit 1),
        (select concat_ws(',', count(*), sum(held), max(last_seen_at))
         from (select held, last_seen_at from contact where state = 'stranger' and scope <> 'late' order by first_seen_at limit $2) x),
        (select count(*) from (select from pairing_code limit $2) x)
    ) as connections,
    concat_ws(' ',
        (select concat_ws(',', request_id, lane) from step where path = 'plan:route' order by request_id desc, lane desc limit 1),
        (select concat_ws(',', count(*), count(s.ended_at))
         from (select key, next_seq from lane where state = 'running' and kind = 'turn' limit 50) l
         join delivery d on d.lane = l.key and d.seq = l.next_seq
         join step s on s.request_id = d.request_id and s.lane = d.lane and s.seq = d.seq
         where exists (select from step p where p.request_id = d.request_id and p.lane = d.lane and p.seq = d.seq
                       and p.path = 'plan:route')),
        (select sum(parked) from (select parked from lane where parked > 0 limit $2) x)
    ) as plans,
    (select version from rule_set order by version desc limit 1)::text as rules;
