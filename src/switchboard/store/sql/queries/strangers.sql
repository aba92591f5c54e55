-- name: is_denied
select exists (select from contact c where c.contact_id = $1 and c.state = 'denied');

-- name: let_in
select contact_id from contact where contact_id = any($1::uuid[]) and state = 'approved';

-- name: hold
select outcome, request_id, differs, told, owner_of from hold_of_stranger(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21::text::timestamptz,
    $22::text::smallint, $23, $24, $25, $26);

-- name: forget
select forget_strangers($1);

-- name: held_by
select c.contact_id, c.channel, c.endpoint, c.scope, c.identity, h.state
from held h join contact c using (contact_id) where h.request_id = $1;

-- part: shown
contact_id, channel, endpoint, scope, identity, display_name, state, held, refused, first_seen_at, last_seen_at,
       decided_at, decided_by,
       array(select o.system_id from contact_owner o where o.contact_id = contact.contact_id order by 1) as owner_of
from contact

-- name: contact
select {{shown}}
where contact_id = $1;

-- name: held_messages
select h.request_id, m.sender, m.received_at, left(coalesce(m.envelope #>> '{payload,normalized_text}', ''), 2000) as text
from held h join message_inbox m on m.request_id = h.request_id
where h.contact_id = $1 and h.state = 'held' and ($2::uuid is null or h.request_id < $2)
order by h.request_id desc limit $3;

-- name: contacts
select {{shown}}
where ($1::text is null or state = $1)
  and ($2::timestamptz is null or (first_seen_at, contact_id) < ($2, $3::uuid))
order by first_seen_at desc, contact_id desc limit $4;

-- name: decide
select messages, changed from decide_contact($1, $2, $3);

-- name: forget_heard_elsewhere
select forget_heard_elsewhere($1);

-- name: move
select move_contact($1, $2, $3, $4);

-- name: add
select messages, changed from let_in($1, $2, $3, $4, $5, $6, $7);

-- name: admit_group
select admit_group($1, $2, $3, $4, $5, $6, $7, $8, $9);

-- name: new_code
insert into pairing_code (code_id, account, key, expires_at, owner_of)
values ($1, $2, $3, clock_timestamp() + $4::interval, $5) returning expires_at;

-- name: open_code
select expires_at, owner_of from pairing_code
where account = $1 and used_at is null and tries < 5 and expires_at > clock_timestamp()
order by expires_at desc limit 1;

-- name: tell_of_code
select tell_of_code($1, $2, $3, $4);

-- name: called
select contact_id, coalesce(display_name, identity) as name from contact where contact_id = any ($1::uuid[]);
