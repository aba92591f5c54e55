-- name: load
select path, state, effect, idempotency_key, result::text as result, tokens_in, tokens_out, cost from step
where request_id = $3 and lane = $1 and seq = $2;

-- name: write
select array_agg(ord) from write_steps($1, $2::step_write[]);

-- name: expect
select expect_event($1, $2, $3, $4, $5, $6, $7, $8);

-- name: park
select park_item($1, $2, $3, $4, $5::uuid[]);

-- name: decide
select result, fresh from decide_event($1, $2::json);

-- name: forget_events
-- With what people were asked.
with old as (
    select w.key from awaited w where w.request_id < $1 and not has_not_ended(w.lane, w.seq)
    order by w.key limit $2 for no key update skip locked
), asked as (
    delete from approval p using old where p.approval_id = old.key
)
delete from awaited a using old where a.key = old.key;
