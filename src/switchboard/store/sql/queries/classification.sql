-- All names are qualified and JSON travels as text: the pool may be an embedder's, with settings of its own.

-- name: history_in
select s.at, s.author, false as ours, s.text from (
    select i.request_id, i.received_at as at, i.sender as author, w.text, sum(length(w.text)) over (order by i.request_id desc) as so_far
    from switchboard.message_inbox i
    cross join lateral (
        select concat_ws(E'\n', nullif(i.envelope #>> '{payload,normalized_text}', ''), (
            select string_agg('[transcribed by a machine] ' || t.text, E'\n' order by t.n)
            from switchboard.transcription t where t.request_id = i.request_id and t.text <> '')) as text
    ) w
    where i.conversation = switchboard.conversation_key($1) and i.request_id >= $2 and i.request_id < $3
      and i.request_id > coalesce(
        (select c.since from switchboard.conversation_start c where c.conversation = switchboard.conversation_key($1)),
        '00000000-0000-0000-0000-000000000000')
      and coalesce(i.envelope #>> '{event,kind}', 'message') <> 'button'  -- nobody's words
      and coalesce(i.envelope #>> '{payload,normalized_text}', '') !~* '^\s*/link\y'  -- nor is a code
    order by i.request_id desc limit $4
) s where s.so_far - length(s.text) < $5 order by s.request_id desc;

-- name: history_out
select s.at, s.author, true as ours, s.text from (
    select o.seq, o.created_at as at, o.system_id as author, o.text, o.state,
           sum(length(o.text)) over (order by o.seq desc) as so_far
    from switchboard.outbox o
    where o.lane = switchboard.lane_key('send', null, switchboard.conversation_key($1))
      and o.request_id > coalesce(
        (select c.since from switchboard.conversation_start c where c.conversation = switchboard.conversation_key($1)),
        '00000000-0000-0000-0000-000000000000')
      and not (o.system_id = 'switchboard' and o.text ~ '\n/link ')  -- a code, see journey/linking.py
    order by o.seq desc limit $3
) s where s.at >= $2 and s.state not in ('failed', 'dead') and s.so_far - length(s.text) < $4 order by s.seq desc;

-- name: is_stored
select exists (select from switchboard.message_inbox where request_id = $1);

-- name: has_month
-- Whether there is a place for what is known of a message whose id is of this time, in milliseconds since 1970.
select to_regclass('switchboard.classification_' || to_char(to_timestamp($1::bigint / 1000) at time zone 'UTC', 'YYYY_MM')) is not null;

-- name: open_session
with over as (
    update switchboard.session_token set ended_at = clock_timestamp()
    where request_id = $4 and team_id = $5 and ended_at is null
), old as (
    delete from switchboard.session_token where expires_at < now() - interval '1 day'
)
insert into switchboard.session_token
    (session_id, hash, conversation, request_id, team_id, candidates, expires_at)
values ($1, $2, switchboard.enter_conversation($3), $4, $5, $6::text::jsonb, clock_timestamp() + $7);

-- name: find_session
select session_id, c.name as conversation, request_id, team_id, candidates::text as candidates, expires_at
from switchboard.session_token join switchboard.conversation c using (conversation) where hash = $1 and ended_at is null and expires_at > clock_timestamp();

-- name: end_session
update switchboard.session_token set ended_at = clock_timestamp() where session_id = $1 and ended_at is null;

-- name: record_call
with open as (
    update switchboard.session_token set calls = calls + 1
    where session_id = $1 and ended_at is null and expires_at > clock_timestamp() and calls < $2
    returning request_id, calls
), told as (
    insert into switchboard.audit (audit_id, actor, action, detail)
    select $8, 'session ' || $1, 'refused:route',
           jsonb_build_object('role', 'session', 'request_id', request_id, 'asked_for', $3::text, 'why', $7::text)
    from open where not $6
)
insert into switchboard.route_call (session_id, n, request_id, butler, segment, reason, ok, why)
select $1, calls, request_id, $3, $4, $5, $6, $7 from open;

-- name: calls
select butler, ok, segment, why from switchboard.route_call where request_id = $1 and session_id = $2 order by n;

-- name: log
insert into switchboard.classification
    (request_id, conversation, team_id, n, session_id, candidates, result, model, tokens_in, tokens_out, cost, ms, error)
select $1, switchboard.enter_conversation($2), $3, coalesce(max(n), 0) + 1, $4, $5, $6::text::jsonb, $7, $8, $9, $10, $11, $12
from switchboard.classification where request_id = $1 and team_id = $3
on conflict do nothing;

-- name: attempts
select request_id, c.name as conversation, team_id, n, session_id, candidates, result::text as result, model, tokens_in,
       tokens_out, cost / 1e6::float8 as cost_usd, ms as duration_ms, error, corrected_to, corrected_by, at, corrected_at, correction
from switchboard.classification join switchboard.conversation c using (conversation) where request_id = $1 order by at, n;

-- name: claim_key
insert into switchboard.pipeline_key (key, request_id)
select $1, $2 where not exists (select from switchboard.dedupe where key = $1)
on conflict (key) do update set request_id = excluded.request_id
    where switchboard.pipeline_key.request_id < $3 and not switchboard.pipeline_key.done
returning request_id;

-- name: key_holder
select coalesce(
    (select request_id from switchboard.dedupe where key = $1),
    (select request_id from switchboard.pipeline_key where key = $1)
);

-- name: is_of_another
select exists (select from switchboard.dedupe where key = $1 and body <> $2);

-- name: keep_key
with new as (
    insert into switchboard.dedupe (key, body, request_id) values ($1, $3, $2) on conflict do nothing returning key
), kept as (
    update switchboard.pipeline_key set done = true where key = $1 and request_id = $2 and exists (select from new)
)
delete from switchboard.pipeline_key where key = $1 and request_id = $2 and not exists (select from new);

-- name: release_key
delete from switchboard.pipeline_key where key = $1 and request_id = $2;

-- name: reserve_spending
select flow, scope, unit, cap, used, held from reserve_spending($1, $2, $3, $4, $5, $6, $7, $8, $9);

-- name: settle_spending
select settle_spending($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12);
