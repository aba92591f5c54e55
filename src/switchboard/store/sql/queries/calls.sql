-- name: open
-- How much of this conversation of a butler has not ended.
select last_seq - done_seq + parked from lane where key = lane_key('turn', $1, conversation_key($2));
