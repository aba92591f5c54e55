-- name: message
select lane, seq from stop_message($1);

-- name: earlier
select lane, seq from stop_earlier($1);

-- name: conversation
select lane, seq from stop_conversation(conversation_key($1));

-- name: by
select d.system_id from stopped s join delivery d on d.lane = s.lane and d.seq = s.seq where s.command = $1;

-- name: wanted
select is_stopped($1, $2);

-- name: wake
select wake_stopped($1);
