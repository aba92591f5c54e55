-- name: message
select lane, seq from stop_message($1);

-- name: before
select lane, seq from stop_before($1);

-- name: wanted
select is_stopped($1, $2);

-- name: wake
select wake_stopped($1);
