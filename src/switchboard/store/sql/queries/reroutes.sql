-- name: message
select outcome, n, systems, lanes, seqs from reroute_message(
    $1, $2, $3, $4, $5, $6, $7, $8::smallint, $9::text[], $10::text[],
    $11::uuid[], $12::text[], $13::text[], $14::text[], $15::text[]);

-- name: withdrawn
select was_withdrawn($1, $2);
