-- part: fields
m.uid, m.recurrence, m.sequence, m.method, m.recipient, m.turn, m.sender, m.subject, m.words, m.ics, m.queued

-- name: note
-- What another step has noted under the same key, and could not send, is this step's now.
insert into mail as m (account, uid, recurrence, sequence, method, recipient, turn, step, place, sender, subject, words, ics,
                       made_by)
select $1::text, $2::text, $3::text, $4::integer, $5::text, $6::text,
       case when $5 = 'REPLY' then (
           select count(*) from mail k
           where k.account = $1 and k.uid = $2 and k.recurrence = $3 and k.sequence = $4 and k.method = $5
             and k.recipient = $6 and k.queued and k.step <> $7)
       else 0 end,
       $7::uuid, $8::integer, $9::text, $10::text, $11::text, $12::bytea, $13::text
on conflict (account, uid, recurrence, sequence, method, recipient, turn) do update
set step = excluded.step, place = excluded.place, sender = excluded.sender, subject = excluded.subject,
    words = excluded.words, ics = excluded.ics, made_by = excluded.made_by, made_at = now()
where not m.queued;

-- name: of_step
select {{fields}} from mail m where m.account = $1 and m.step = $2 order by m.place;

-- name: queued
update mail set queued = true
where account = $1 and uid = $2 and recurrence = $3 and sequence = $4 and method = $5 and recipient = $6 and turn = $7;

-- name: drop
-- Of a step whose writes are taken back.
delete from mail where account = $1 and step = $2 and not queued;

-- name: latest
-- Which versions of an event others may have been told.
select coalesce(max(m.sequence), -1) as sequence from mail m where m.account = $1 and m.uid = $2 and m.method <> 'REPLY';

-- name: told
-- The latest version of which somebody was told.
select coalesce(max(m.sequence), -1) as sequence from mail m
where m.account = $1 and m.uid = $2 and m.recurrence in ($3, '') and m.recipient = $4 and m.method = 'REQUEST';

-- name: forget
-- What can still be undone needs its versions for 30 days; answers come later than that, but no message does.
delete from mail where account = $1 and made_at < now() - interval '400 days';

-- name: erase_of_person
-- What they have had mailed, and whatever was mailed for their own accounts.
with gone as (
    delete from answer a using origin g where a.account = $1 and g.account = a.account and g.owner = any ($2::text[])
)
delete from mail m where m.account = $1
  and (m.made_by = any ($2::text[]) or exists (
      select from origin g where g.account = m.account and g.owner = any ($2::text[])));

-- name: erase
with gone as (delete from answer where account = $1)
delete from mail where account = $1;
