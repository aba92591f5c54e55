-- name: cards
select card, state from first_run;

-- name: settle
insert into first_run (card, state) values ($1, $2)
    on conflict (card) do update set state = excluded.state, at = clock_timestamp()
    where first_run.state <> excluded.state;

-- name: reopen
delete from first_run where card = $1;

-- name: somebody_was_answered
-- Among the newest 200 messages.
select exists (
    select from (select m.request_id from message_inbox m order by m.request_id desc limit 200) m
    join delivery d on d.request_id = m.request_id and d.state = 'answered'
);
