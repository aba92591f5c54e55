-- name: begin
select * from begin_transcription($1, $2, $3, $4, $5, $6::smallint, $7, $8, $9, $10, $11, $12, $13, $14);

-- name: end
select end_transcription($1, $2, $3, $4, $5, $6::smallint, $7, $8, $9, $10, $11);

-- name: of_message
select t.n, t.state, t.tries, t.text, t.spoken, t.error, t.host, t.model, t.language, t.seconds, t.first_at, t.ended_at,
       t.asked_on is not null as paid
from transcription t where t.request_id = $1 order by t.n;
