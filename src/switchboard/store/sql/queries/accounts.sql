-- name: lease
-- Another instance takes over only when the lease has run out; its number is the fence: a new one for each time that it is held,
-- and for each process of an instance ($5).
insert into connector_account as a (channel, endpoint, instance_id, lease, lease_until, heard)
values ($1, $2, $3, 1, clock_timestamp() + $4::interval, coalesce($6::integer, 0))
on conflict (channel, endpoint) do update set
    lease = case when a.instance_id = excluded.instance_id and a.lease_until > clock_timestamp() and not $5 then a.lease else a.lease + 1 end,
    instance_id = excluded.instance_id, lease_until = clock_timestamp() + $4::interval, heard = coalesce($6::integer, a.heard)
    where a.instance_id = excluded.instance_id or a.lease_until <= clock_timestamp()
returning lease, cursor, moved, since, heard, (select count(*) from quarantine q where q.channel = $1 and q.endpoint = $2 and q.replay) as replays;

-- name: answering
-- Of the turns that run, those for this account: few run at a time, whatever waits.
select distinct on (l.conversation) c.name as conversation, m.envelope #> '{event,reply_address}' as address
from lane l
join delivery d on d.lane = l.key and d.seq = l.next_seq and d.state = 'pending'
join message_inbox m on m.request_id = d.request_id
join conversation c on c.conversation = l.conversation
where l.state = 'running' and l.owner is not null and l.kind = 'turn' and m.channel = $1 and m.endpoint = $2
  and json_typeof(m.envelope #> '{event,reply_address}') = 'object'
order by l.conversation, d.request_id desc limit $3;

-- name: recent
-- The last replies of an account. Their ids are in the order in which they were made: by these they are found.
select o.outbox_id, c.name as conversation, o.recipient, extract(epoch from clock_timestamp() - o.created_at)::float8 as made_s,
       case when o.state = 'sent' then extract(epoch from clock_timestamp() - o.settled_at)::float8 end as sent_s,
       exists (select from receipt r where r.request_id = o.request_id and r.outbox_id = o.outbox_id and r.outcome = 'failed') as failed
from outbox o join lane l on l.key = o.lane join conversation c using (conversation)
where o.outbox_id >= $3 and o.channel = $1 and o.endpoint = $2
order by o.outbox_id desc limit $4;

-- name: lock
select instance_id from connector_account where channel = $1 and endpoint = $2 for no key update;

-- name: lock_replies
-- Those that are leased. Before `end_replies`, which so sees every part that was begun by then.
select l.key from lane l
where l.pool = $1 and l.state <> 'idle' and l.state = 'running' and l.owner is null and l.lease_until > clock_timestamp()
order by l.key for no key update;

-- name: end_replies
-- Leases of replies that the last process of the instance had ($2); their parts say what may have been sent. Else those whose answer
-- its session may not have got, so that it was no attempt; what it began to send may still be on its way to the platform.
update lane l set lease_until = clock_timestamp(), attempts = l.attempts - (not $2)::integer
where l.key = any ($1)
  and ($2 or exists (select from outbox o where o.lane = l.key and o.seq = l.next_seq and o.idempotent
                                            and not exists (select from outbox_part p where p.outbox_id = o.outbox_id)));

-- name: holder
select instance_id, extract(epoch from lease_until - clock_timestamp())::float8 as left_s
from connector_account where channel = $1 and endpoint = $2 and lease_until > clock_timestamp();

-- name: release
update connector_account set lease_until = clock_timestamp()
where channel = $1 and endpoint = $2 and lease = $3 and lease_until > clock_timestamp() returning true;

-- name: save_cursor
update connector_account set cursor = $4
where channel = $1 and endpoint = $2 and lease = $3 and lease_until > clock_timestamp() returning true;

-- name: move
-- What has moved before keeps its first name.
update connector_account a set moved = a.moved || case
    when a.moved ? $5 or coalesce(a.moved ->> $4, $4) = $5 then '{}' else jsonb_build_object($5, coalesce(a.moved ->> $4, $4)) end
where a.channel = $1 and a.endpoint = $2 and a.lease = $3 and a.lease_until > clock_timestamp() returning true;

-- name: moves
select distinct a.channel, m.value as first, m.key as now
from connector_account a cross join lateral jsonb_each_text(a.moved) m order by 1, 2, 3;

-- name: fence
-- Until the end of the transaction nobody takes over.
select true from connector_account
where channel = $1 and endpoint = $2 and lease = $3 and lease_until > clock_timestamp() for share;

-- name: forget
-- Cursors of accounts that nobody has served, and for which no token has been valid, for that long.
with removed as (
    select channel, endpoint from token where role = 'connector' group by channel, endpoint
    having bool_and(revoked_at is not null) and max(revoked_at) < now() - $1::interval
), forgotten as (
    delete from connector_account a using removed r
    where a.channel = r.channel and a.endpoint = r.endpoint and a.lease_until < now() - $1::interval returning true
)
select count(*) from forgotten;
