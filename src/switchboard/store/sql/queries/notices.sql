-- name: unnoticed
select kind, key, detail, account, carried from unnoticed($1);

-- name: pass_decided
-- Nobody has to be told of what was decided meanwhile.
update approval a set noticed = true
where not a.noticed and not exists (select from awaited w where w.key = a.approval_id and w.decided_at is null);

-- name: note_sign_ins
insert into sign_in_end (kind, key, detail, account)
select * from unnest($1::text[], $2::text[], $3::text[], $4::text[]) on conflict do nothing;

-- name: take
select take_for_notice($1, $2, $3);

-- name: standing
-- Of a chat: whether it was let in, where its last messages say that replies go, and whether its lane of notices is stuck.
select
    exists (select from contact c where c.contact_id = any ($1::uuid[]) and c.state = 'approved') as approved,
    (select m.envelope #> '{event,reply_address}' from (
        select m.envelope, m.request_id from message_inbox m where m.conversation = $2::uuid order by m.request_id desc limit 50
     ) m
     where json_typeof(m.envelope #> '{event,reply_address}') = 'object'
       and coalesce(m.envelope #>> '{event,kind}', 'message') = 'message'
     order by m.request_id desc limit 1) as reply_address,
    exists (select from dead_letter x
            where x.lane = lane_key('send', null, $3::uuid) and x.status = 'pending'
              and x.category in ('reply_braked', 'reply_unreachable')) as stuck;
