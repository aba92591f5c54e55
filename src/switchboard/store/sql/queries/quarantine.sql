-- name: put
-- Again with another reason after a replay that failed: then it waits for an operator again.
insert into quarantine as q (quarantine_id, key, channel, endpoint, event_id, reason, raw, size_bytes)
values ($1, $2, $3, $4, $5, $6, $7, $8)
on conflict (key) do update set reason = excluded.reason, replay = false
returning quarantine_id, q.quarantine_id <> $1 as duplicate;

-- name: forget_oldest
-- Of an account that has more than $3 events, or $4 bytes, in quarantine.
with aged as (
    select quarantine_id, row_number() over newest as number, sum(size_bytes) over newest as bytes
    from quarantine where channel = $1 and endpoint = $2
    window newest as (order by quarantine_id desc)
)
delete from quarantine q using aged
where q.quarantine_id = aged.quarantine_id and (aged.number > $3 or aged.bytes > $4)
returning q.event_id;

-- part: shown
select quarantine_id, channel, endpoint, event_id, reason, size_bytes, replay, at

-- name: list
{{shown}}
from quarantine
where ($1::uuid is null or quarantine_id < $1) and ($3::text is null or channel = $3) and ($4::text is null or endpoint = $4)
  and ($5::boolean is null or replay = $5)
order by quarantine_id desc limit $2;

-- name: get
{{shown}}, raw
from quarantine where quarantine_id = $1;

-- name: count
select count(*) from quarantine;

-- name: account
select channel, endpoint from quarantine where quarantine_id = $1;

-- name: replay
update quarantine set replay = true where quarantine_id = $1 returning true;

-- name: discard
delete from quarantine where quarantine_id = $1 returning event_id;
