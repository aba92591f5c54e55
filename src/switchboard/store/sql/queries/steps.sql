-- name: load
select path, state, effect, idempotency_key, result::text as result, tokens_in, tokens_out, cost from step
where request_id = $3 and lane = $1 and seq = $2;

-- name: write
select ord from write_steps($1, $2::step_write[]);

-- name: expect
select expect_event($1, $2, $3, $4, $5, $6, $7, $8);

-- name: park
select park_item($1, $2, $3, $4, $5::uuid[]);

-- name: decide
select result, fresh from decide_event($1, $2::json);

-- name: forget_events
-- An item has ended when its lane is past it and it is not parked; both are said as in decide_event.
delete from awaited a using (
    select w.key from awaited w
    where w.request_id < $1 and not exists (select from lane l where l.key = w.lane and l.done_seq < w.seq)
      and not exists (select from parked p where p.lane = w.lane and p.seq = w.seq)
    order by w.key limit $2 for no key update skip locked
) old
where a.key = old.key;
