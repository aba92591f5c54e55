-- name: let_in
select contact_id from contact where contact_id = any($1::uuid[]) and state = 'approved';

-- name: hold
select outcome, request_id, differs, told from hold_of_stranger(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21::text::timestamptz,
    $22::text::smallint, $23, $24, $25);

-- name: forget
select forget_strangers($1);

-- name: held_by
select c.contact_id, c.channel, c.endpoint, c.scope, c.identity, h.state
from held h join contact c using (contact_id) where h.request_id = $1;
