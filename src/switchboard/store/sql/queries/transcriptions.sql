-- name: begin
select * from begin_transcription($1, $2, $3, $4, $5, $6::smallint, $7, $8, $9, $10, $11, $12, $13, $14);

-- name: end
select end_transcription($1, $2, $3, $4, $5, $6::smallint, $7, $8, $9, $10, $11);

-- name: of_message
select t.n, t.state, t.tries, t.text, t.spoken, t.error, t.host, t.model, t.language, t.seconds, t.first_at, t.ended_at,
       t.asked_on is not null as paid
from transcription t where t.request_id = $1 order by t.n;

-- name: last_butler
-- Who was last given a message of this sender in this conversation.
select d.system_id from message_inbox m join delivery d using (request_id)
where m.conversation = (select c.conversation from message_inbox c where c.request_id = $1)
  and m.sender = (select c.sender from message_inbox c where c.request_id = $1)
  and m.request_id < $1
order by m.request_id desc, d.segment limit 1;
