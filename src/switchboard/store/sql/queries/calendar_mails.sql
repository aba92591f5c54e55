-- name: arrived
-- Mails of calendar programs since message $1.
select m.request_id, m.sender, m.received_at from message_inbox m
where m.request_id >= $1 and m.channel = $2 and m.envelope #>> '{event,kind}' = 'calendar'
order by m.request_id limit $3;

-- name: note
-- What was done with a mail is a further decision about it, which gives it to nobody.
insert into decision (request_id, n, version, branches, trail, decided_at, facts)
select d.request_id, d.n + 1, d.version, 0, $2::text::json, clock_timestamp(), d.facts from decision d
where d.request_id = $1 and d.trail::text <> $2::text
  and not exists (select from decision l where l.request_id = d.request_id and l.n > d.n)
on conflict do nothing;
