-- part: there
m.request_id between $1 and $2 and ($3::text is null or m.channel = $3) and ($4::text is null or m.endpoint = $4)

-- part: wanted
-- Within $1 and $2. A message in a state has something in that state; whether it is in that state as a whole is asked of those only.
{{there}}
  and ($5::text is null or m.sender = $5)
  and ($6::text is null or m.request_id in (select request_id from delivery where system_id = $6 and request_id between $1 and $2))
  and ($7::text is null or m.request_id in (
      select request_id from delivery where team_id = $7 and request_id between $1 and $2
      union all select request_id from dead_letter where team_id = $7 and request_id between $1 and $2))
  and ($8::text is null or m.request_id in (
      select request_id from delivery where $8 = 'answered' and state = 'answered' and request_id between $1 and $2
      union all
      select request_id from delivery
      where $8 not in ('answered', 'held', 'history') and state <> 'answered' and request_id between $1 and $2
        and (state = case $8 when 'in_flight' then 'pending' else $8 end or $8 = 'cancelled' and error_class = 'handed_on')
      union all
      select request_id from dead_letter where $8 = 'dead' and lane is null and request_id between $1 and $2
      union all
      select request_id from routing where $8 = 'in_flight' and state = 'pending' and request_id between $1 and $2
      union all
      select request_id from held
      where $8 in ('held', 'cancelled') and (state = 'held') = ($8 = 'held') and request_id between $1 and $2
      union all
      select request_id from decision where $8 = 'history' and branches = 0 and request_id between $1 and $2))
  and ($8::text is null or message_state(m.request_id) = $8)

-- part: shown
-- Of the text what a row has room for. A message without words shows its recordings.
select m.request_id, c.name as conversation, m.channel, m.endpoint, m.sender, m.thread, m.received_at,
       left(m.envelope #>> '{payload,normalized_text}', 301) as text,
       length(m.envelope #>> '{payload,normalized_text}') as characters,
       case when m.envelope #>> '{payload,normalized_text}' = '' then m.envelope #> '{payload,attachments}' end as attachments,
       message_state(m.request_id) as state,
       array(select d.system_id from delivery d where d.request_id = m.request_id group by d.system_id order by min(d.created_at), 1) as went_to,
       exists (select from held h where h.request_id = m.request_id and h.state = 'code') as is_code
from found join message_inbox m using (request_id) join conversation c using (conversation)
order by m.request_id desc

-- name: older
with found as materialized (select m.request_id from message_inbox m where {{wanted}} order by m.request_id desc limit $9)
{{shown}};

-- name: newer
with found as materialized (select m.request_id from message_inbox m where {{wanted}} order by m.request_id limit $9)
{{shown}};

-- name: texts
select m.request_id, m.envelope #>> '{payload,normalized_text}' as text from message_inbox m where m.request_id = any($1::uuid[]);

-- name: older_until
-- The last of the newest $5 there; null: there are fewer.
select m.request_id from message_inbox m where {{there}} order by m.request_id desc offset $5 - 1 limit 1;

-- name: newer_until
select m.request_id from message_inbox m where {{there}} order by m.request_id offset $5 - 1 limit 1;
