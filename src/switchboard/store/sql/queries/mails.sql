-- part: state
-- What became of the mail, as its reply in the outbox says.
select m.key, m.request_id, m.message_id, o.state, o.error
from mail m join outbox o on o.outbox_id = m.outbox_id

-- name: by_key
{{state}}
where m.key = $1;

-- name: lock
-- Whoever writes mails from an account waits here for the others.
select pg_advisory_xact_lock(hashtextextended('mail ' || $1::text || '/' || $2::text, 0));

-- name: count_lately
select count(*) filter (where m.created_at > clock_timestamp() - interval '1 hour') as within_hour, count(*) as within_day
from mail m where m.channel = $1 and m.endpoint = $2 and m.created_at > clock_timestamp() - interval '24 hours';

-- name: queue
select queue_mail($1, $2, $3, $4, $5, $6, $7, $8::uuid[], $9, $10::uuid, $11, $12, $13, $14, $15);

-- name: answered
-- Which mail each message (by ord) answers: it names its Message-ID at the account that has sent it, within $5 of then, and its
-- author ($4) was one of the recipients.
select distinct on (i.ord) i.ord, m.request_id, m.system_id,
       (select q.envelope #>> '{event,reply_address,mail,calendar}' is not null
        from message_inbox q where q.request_id = m.request_id) as calendar
from unnest($1::integer[], $2::text[], $3::text[], $4::uuid[]) as i (ord, account, message_id, author)
join mail m on m.message_id = any (array[i.message_id])
where m.channel || '/' || m.endpoint = i.account and i.author = any (m.recipients)
  and m.created_at > clock_timestamp() - $5::interval
order by i.ord, m.created_at desc;

-- name: invited
-- Whether an account has mailed somebody ($3) something for their calendar, within $4 of now.
select exists (
    select from mail m join message_inbox q on q.request_id = m.request_id
    where m.channel = $1 and m.endpoint = $2 and $3::uuid = any (m.recipients)
      and m.created_at > clock_timestamp() - $4::interval
      and q.envelope #>> '{event,reply_address,mail,calendar}' is not null);

-- part: record
select m.system_id, m.message_id, m.origin::text as origin, m.created_at, o.settled_at, o.error,
       (select i.envelope #> '{event,reply_address,mail}' from message_inbox i where i.request_id = m.request_id) as written
from mail m join outbox o on o.outbox_id = m.outbox_id

-- name: of_message
{{record}}
where m.request_id = $1;

-- name: of_reply
{{record}}
where m.outbox_id = $1;

-- name: accounts
-- The accounts of a channel through which mails can be sent: those that a connector has served in the last 30 days.
select distinct a.endpoint from connector_account a
where a.channel = $1 and a.lease_until > clock_timestamp() - interval '30 days' order by a.endpoint;

-- name: forget
-- Those of which nobody is told anything any more.
with old as (delete from mail m where m.created_at < now() - $1::interval returning true) select count(*) from old;
