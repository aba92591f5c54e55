-- name: needs
-- What waits for people, with the age of the oldest; no more is counted than anybody wants to know exactly.
select 'approvals' as kind, count(*) as number, min(at) as oldest from (
    select p.asked_at as at from awaited a join approval p on p.approval_id = a.key
    where a.decided_at is null and a.deadline_at is not null and p.kind = 'call' and approval_state(a) = 'pending' limit $1
) x
union all
select 'questions', count(*), min(at) from (
    select p.asked_at as at from awaited a join approval p on p.approval_id = a.key
    where a.decided_at is null and a.deadline_at is not null and p.kind = 'question' and approval_state(a) = 'pending' limit $1
) x
union all
select 'strangers', count(*), min(at) from (
    select first_seen_at as at from contact where state = 'stranger' and scope <> 'late' order by first_seen_at limit $1
) x
union all
select 'dead_letters', count(*), min(at) from (
    select created_at as at from dead_letter where status = 'pending' order by dead_letter_id limit $1
) x
union all
select 'replies', count(*), min(at) from (
    select created_at as at from outbox where state <> 'sent' and state in ('uncertain', 'failed', 'dead') order by outbox_id limit $1
) x;

-- name: hours
-- Messages by the hours that begin with these ids, among the newest $2. Ids begin with their time, so the index has it all.
select width_bucket(request_id, $1::uuid[]) as hour, count(*) as number
from (select request_id from message_inbox where request_id >= ($1::uuid[])[1] order by request_id desc limit $2) x
group by 1;
