-- name: since
-- From when on mails have to be looked at.
select a.since from arrivals a where a.account = $1;

-- name: looked
insert into arrivals (account, since) values ($1, $2)
on conflict (account) do update set since = excluded.since;

-- name: known
-- Those of these mails that were read before.
select a.request_id from arrived a where a.account = $1 and a.request_id = any ($2::uuid[]);

-- name: note
insert into arrived (account, request_id) values ($1, $2) on conflict do nothing;

-- name: answer_of
select a.sequence, a.made from answer a where a.account = $1 and a.uid = $2 and a.recurrence = $3 and a.attendee = $4;

-- name: answered
insert into answer (account, uid, recurrence, attendee, answer, sequence, made) values ($1, $2, $3, $4, $5, $6, $7)
on conflict (account, uid, recurrence, attendee) do update
set answer = excluded.answer, sequence = excluded.sequence, made = excluded.made, applied_at = now();

-- name: forget
delete from arrived where account = $1 and read_at < now() - interval '30 days';
