-- name: write
insert into delta (request_id, system_id, epoch, n, step, kept, text, tool)
select * from unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[], $8::text[]);

-- name: remove
delete from delta d using unnest($1::uuid[], $2::text[], $3::bigint[]) as e (request_id, system_id, epoch)
where d.request_id = e.request_id and d.system_id = e.system_id and d.epoch <= e.epoch;

-- name: read
select d.system_id, d.epoch, d.n, d.step, d.kept, d.text, d.tool as doing
from delta d left join unnest($2::text[], $3::bigint[], $4::bigint[]) as s (system_id, epoch, n) using (system_id)
where d.request_id = $1 and (s.system_id is null or (d.epoch, d.n) > (s.epoch, s.n))
order by d.system_id, d.epoch, d.n limit 1000;

-- name: writing_turns
-- The turns that run for people who write to this account alone, the newest of each conversation.
select distinct on (l.conversation) c.name as conversation, m.envelope #> '{event,reply_address}' as address,
       d.request_id, d.system_id, l.epoch
from lane l
join delivery d on d.lane = l.key and d.seq = l.next_seq and d.state = 'pending'
join message_inbox m on m.request_id = d.request_id
join conversation c on c.conversation = l.conversation
where l.state = 'running' and l.owner is not null and l.kind = 'turn' and m.channel = $1 and m.endpoint = $2
  and json_typeof(m.envelope #> '{event,reply_address}') = 'object' and m.envelope #>> '{sender,chat_type}' = 'private'
order by l.conversation, d.request_id desc limit $3;

-- name: new_pieces
-- What these attempts have written beyond the given pieces.
select d.request_id, d.system_id, d.epoch, d.n, d.step, d.kept, d.text, d.tool as doing
from unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[]) as s (request_id, system_id, epoch, n)
join delta d using (request_id, system_id, epoch)
where d.n > s.n
order by d.request_id, d.system_id, d.n limit 2000;

-- name: look
-- Turns that wait for another attempt, with why the one before has failed, and those that wait for people, with what they ask.
select message_state($1) as state, (select count(*) from outbox o where o.request_id = $1) as replies,
       array(
           select array[d.system_id, coalesce(t.engine, ''), coalesce(t.error_class, '')]
           from delivery d
           join lane l on l.key = d.lane and l.next_seq = d.seq and l.state = 'ready' and l.delayed
           cross join lateral (
               select a.engine, a.error_class from attempt a
               where a.request_id = d.request_id and a.lane = d.lane and a.seq = d.seq order by a.finished_at desc limit 1
           ) t
           where d.request_id = $1 and d.state = 'pending' order by d.system_id
       ) as waiting,
       array(
           select array[p.system_id, p.approval_id::text, p.kind, p.tool]
           from delivery d
           join parked q on (q.lane, q.seq) = (d.lane, d.seq)
           join awaited a on (a.lane, a.seq) = (d.lane, d.seq) and a.decided_at is null
           join approval p on p.approval_id = a.key
           where d.request_id = $1 and d.state = 'pending' order by p.asked_at, p.approval_id
       ) as asked;

-- name: forget
delete from delta where at < clock_timestamp() - $1::interval;
