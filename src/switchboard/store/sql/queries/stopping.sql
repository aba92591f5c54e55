-- name: message
select lane, seq from stop_message($1);

-- name: before
select lane, seq from stop_before($1);

-- name: wanted
select exists (select from stopped where lane = $1 and seq = $2);
