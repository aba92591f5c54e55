-- name: lease
select * from lease_next_replies($1, $2, $3, $4);

-- name: record_part
select record_part($1, $2, $3, $4, $5, $6, $7, $8, $9);

-- name: parts
select p.part, p.parts as of, p.state, p.key, p.platform_message_id, p.error,
       extract(epoch from clock_timestamp() - p.at)::float8 as age_s
from outbox_part p where p.outbox_id = $1 order by p.part;

-- name: settle
select settle_send($1, $2, $3, $4, $5, $6, $7, $8, $9, $10);

-- name: keep_late_failure
insert into late_failure (late_failure_id, channel, endpoint, platform_message_id, reason, because, at)
values ($1, $2, $3, $4, $5, $6, $7) on conflict do nothing;

-- name: fail_late
-- After `keep_late_failure` is committed: a receipt that comes at the same time finds it there, or is found here.
select fail_late($1, $2, $3);

-- name: forget_late_failures
-- Those older than $1, and than $2 if no reply has sent such a message.
with old as (
    delete from late_failure
    where received_at < now() - least($1::interval, $2::interval)
      and received_at < now() - case when outbox_id is null then $2::interval else $1::interval end
    returning true
) select count(*) from old;

-- name: expire_leases
select expire_leases($1);

-- name: resend
select resend_reply($1);

-- name: untold
select o.outbox_id, o.untold as why,
       coalesce(
           (select d.team_id from delivery d where d.request_id = o.request_id and d.system_id = o.system_id order by d.n desc limit 1),
           (select m.team_id from member m where m.system_id = o.system_id)
       ) as team_id,
       is_mail(o) as mail
from outbox o where o.untold is not null order by o.outbox_id limit $1;

-- name: tell
select tell_of_reply($1, $2, $3, $4, $5, $6, $7);

-- part: shown
select o.outbox_id, o.lane, o.seq, c.name as conversation, o.request_id, o.system_id, o.channel, o.endpoint, o.thread, o.recipient,
       o.reply_to, o.text, o.files, o.state, o.platform_message_id, o.error, o.created_at, o.settled_at,
       case when l.next_seq = o.seq then l.attempts else 0 end as attempts,
       case when l.next_seq = o.seq and l.state = 'running' then l.epoch else 0 end as lease

-- name: by_id
{{shown}}
from outbox o join lane l on l.key = o.lane join conversation c using (conversation)
where o.outbox_id = $1;

-- name: by_item
{{shown}}
from outbox o join lane l on l.key = o.lane join conversation c using (conversation)
where o.lane = $1 and o.seq = $2;

-- name: of_message
-- The state of a message, and all its replies; one row without a reply if there is none.
select s.message_state, r.* from (select message_state($1) as message_state) s
left join ({{shown}} from outbox o join lane l on l.key = o.lane join conversation c using (conversation)
           where o.request_id = $1) r on true
order by r.outbox_id;

-- name: page
-- Planned each time (`planned`): what is not sent yet has an index of its own.
{{shown}}
from (
    select * from outbox
    where ($1::text is null or state = $1) and ($2::uuid is null or outbox_id < $2)
    order by outbox_id desc limit $3
) o join lane l on l.key = o.lane join conversation c using (conversation)
order by o.outbox_id desc;

-- name: unsent
select state, count(*) as replies from outbox where state in ('uncertain', 'failed', 'dead') group by state order by state;

-- name: open
select state, count(*) as replies, extract(epoch from clock_timestamp() - min(created_at))::float8 as oldest_s
from outbox where state <> 'sent' group by state;

-- name: waiting
select o.channel, o.endpoint, count(*) as replies, min(o.created_at) as since
from outbox o join lane l on l.key = o.lane
where o.state <> 'sent' and o.state in ('pending', 'sending') and l.pool like 'pull:%'
group by o.channel, o.endpoint order by min(o.created_at) limit $1;

-- name: receipts
select r.outbox_id, r.epoch, r.outcome, r.platform_message_id, r.error, r.at
from outbox o join receipt r on r.request_id = o.request_id and r.outbox_id = o.outbox_id
where o.request_id = $1 order by r.at;
