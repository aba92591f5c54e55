-- part: of_senders
-- Messages of these senders: channels $1, endpoints $2 and identities $3, of equal length.
from message_inbox m
join unnest($1::text[], $2::text[], $3::text[]) as s (channel, endpoint, sender) using (channel, endpoint, sender)

-- part: not_erased
(
    m.envelope #>> '{payload,normalized_text}' <> '' or json_array_length(m.envelope #> '{payload,attachments}') > 0
    or m.envelope #>> '{sender,display_name}' is not null
    or exists (select from message_raw w where w.request_id = m.request_id and w.raw <> '')
)

-- name: senders
-- The senders of a channel in whose name the identity $3 stands, at one endpoint $2 or, if that is empty, at all.
select distinct m.channel, m.endpoint, m.sender as identity from message_inbox m
where m.channel = $1 and ($2 = '' or m.endpoint = $2) and strpos(lower(m.sender), lower($3)) > 0;

-- name: endpoints
select distinct endpoint from connector_account where channel = $1;

-- name: messages_to_erase
select m.request_id {{of_senders}}
where m.request_id > $4 and {{not_erased}} and not has_open_work(m.request_id)
order by m.request_id limit $5;

-- name: erase_messages
select erase_messages($1);

-- name: count_messages
select count(*) filter (where not has_open_work(m.request_id)) as ended, count(*) filter (where has_open_work(m.request_id)) as open
{{of_senders}} where {{not_erased}};

-- name: message_ids
select m.request_id {{of_senders}} where m.request_id > $4 order by m.request_id limit $5;

-- name: message
select m.request_id, m.channel, m.endpoint, m.sender, m.thread, m.received_at, m.media_type, c.name as conversation,
       m.envelope::text as envelope,
       (select d.facts::text from decision d where d.request_id = m.request_id and d.n = 1) as facts,
       coalesce((select octet_length(w.raw) from message_raw w where w.request_id = m.request_id), 0) as original_bytes
from message_inbox m left join conversation c using (conversation)
where m.request_id = $1;

-- name: notes
-- What was noted of a message while it was decided and answered, where it has words, each with its table; but for steps.
select 'held' as kind, to_jsonb(h)::text as noted from held h where h.request_id = $1 and h.state = 'held'
union all
select 'decision', to_jsonb(c)::text from decision c where c.request_id = $1
union all
select 'classification', to_jsonb(c)::text from classification c where c.request_id = $1
union all
select 'route_call', to_jsonb(r)::text from route_call r where r.request_id = $1 and (r.segment is not null or r.reason <> '')
union all
select 'transcription', (to_jsonb(t) - 'blob')::text from transcription t where t.request_id = $1
union all
select 'delivery', to_jsonb(d)::text from delivery d where d.request_id = $1 and d.text <> ''
union all
select 'attempt', to_jsonb(a)::text from attempt a where a.request_id = $1 and a.error is not null
union all
select 'awaited', to_jsonb(a)::text from awaited a where a.request_id = $1
union all
select 'approval', to_jsonb(p)::text from awaited a join approval p on p.approval_id = a.key where a.request_id = $1
union all
select 'outbox', to_jsonb(o)::text from outbox o where o.request_id = $1 and (o.text <> '' or o.files is not null)
union all
select 'dead_letter', (to_jsonb(l) - 'raw')::text from dead_letter l where l.request_id = $1 and l.emptied_at is null;

-- name: steps
-- What models and tools were given and what they answered, from that of lane $2, item $3 and path $4 on.
select s.lane, s.seq, s.path, s.effect, s.state, s.started_at, s.ended_at, s.result::text as result from step s
where s.request_id = $1 and s.result is not null and (s.lane, s.seq, s.path) > ($2, $3, $4)
order by s.lane, s.seq, s.path limit $5;

-- name: files
-- Files of a message, those made for its answers, and those of the answers.
select encode(b.blob, 'hex') as sha256, b.size_bytes, b.media_type, f.kept_for
from (
    select r.blob, 'message' as kept_for from message_blob r where r.request_id = $1
    union
    select x.blob, 'answer' from blob_made x where x.request_id = $1
    union
    select x.blob, 'answer' from outbox o join outbox_blob x using (outbox_id) where o.request_id = $1
) f join blob b using (blob) order by b.blob, f.kept_for;

-- name: files_of_others
-- Which of these files ($4) somebody else has sent to conversation $5, too.
select distinct r.blob from message_blob r join message_inbox m using (request_id)
where r.blob = any ($4::bytea[]) and m.conversation = conversation_key($5)
  and (m.channel, m.endpoint, m.sender) not in (select * from unnest($1::text[], $2::text[], $3::text[]));

-- name: messages_with_files
select m.request_id, m.channel, c.name as conversation, m.envelope::text as envelope,
       (select d.facts::text from decision d where d.request_id = m.request_id and d.n = 1) as facts
{{of_senders}} join conversation c using (conversation)
where m.request_id > $4 and json_array_length(m.envelope #> '{payload,attachments}') > 0
order by m.request_id limit $5;

-- name: workspaces
-- Butlers by name who have worked for these persons, each alone: whether for nobody else, who may have files there, too.
with served as (
    select distinct substr(d.system_id, strpos(d.system_id, '/') + 1) as butler {{of_senders}} join delivery d using (request_id)
)
select s.butler, not exists (
    select from delivery d join message_inbox m using (request_id)
    where substr(d.system_id, strpos(d.system_id, '/') + 1) = s.butler
      and (
          (m.channel, m.endpoint, m.sender) not in (select * from unnest($1::text[], $2::text[], $3::text[]))
          or coalesce(m.envelope #>> '{sender,chat_type}', 'private') <> 'private'
          or json_typeof(m.envelope #> '{sender,participants}') = 'object'
             and (select count(*) from json_object_keys(m.envelope #> '{sender,participants}')) > 1
      )
) and not exists (
    select from entry e join lane l on l.key = e.lane
    where substr(l.system_id, strpos(l.system_id, '/') + 1) = s.butler and (e.person <> all ($4::text[]) or not e.private)
) and not exists (
    select from notice n where substr(n.system_id, strpos(n.system_id, '/') + 1) = s.butler
) as alone, exists (
    select from delivery d where substr(d.system_id, strpos(d.system_id, '/') + 1) = s.butler and d.state = 'pending'
) as busy
from served s order by s.butler;

-- name: count_entries
select count(*) from entry e where e.person = any ($1::text[]) and (e.text <> '' or e.learn);

-- name: erase_entries
select erase_entries($1, $2);

-- name: entries
select e.lane, e.position, l.system_id, c.name as conversation, e.role, e.text, e.calls::text as calls, e.created_at
from entry e join lane l on l.key = e.lane left join conversation c using (conversation)
where e.person = any ($1::text[]) and e.text <> '' and ($2::uuid is null or (e.lane, e.position) > ($2, $3::bigint))
order by e.lane, e.position limit $4;

-- part: of_summaries
-- What a person said and was told in private, and what was condensed where they wrote among others.
(
    s.text <> '' and (
        s.private and s.person = any ($4::text[])
        or not s.private and s.lane in (
            select e.lane from entry e where e.person = any ($4::text[])
            union
            select d.lane {{of_senders}} join delivery d using (request_id)
        )
    )
)

-- name: count_summaries
select count(*) from summary s where {{of_summaries}};

-- name: lanes_of_summaries
-- The histories of which summaries are to be erased, and whether the person wrote among others there.
select s.lane, bool_or(not s.private) as among_others from summary s where {{of_summaries}} group by s.lane;

-- name: erase_summaries
select erase_summaries($1, $2, $3);

-- name: summaries
select s.summary_id, l.system_id, c.name as conversation, s.text, s.created_at
from summary s join lane l on l.key = s.lane left join conversation c using (conversation)
where s.text <> '' and s.private and s.person = any ($1::text[]) order by s.summary_id;

-- name: count_memos
select count(*) from memo where person = any ($1::text[]);

-- name: erase_memos
delete from memo where (conversation, memo_id) in (
    select m.conversation, m.memo_id from memo m where m.person = any ($1::text[]) limit $2
);

-- name: memos
select memo_id, system_id, text, created_at from memo where person = any ($1::text[]) and memo_id > $2 order by memo_id limit $3;

-- part: of_contacts
-- Persons, also those whom a mail names without proof: channels $1, endpoints $2 and identities $3.
from contact c join unnest($1::text[], $2::text[], $3::text[]) as s (channel, endpoint, identity) using (channel, endpoint, identity)
where c.scope in ('person', 'unverified')

-- name: contacts
select c.contact_id, c.channel, c.endpoint, c.scope, c.identity, c.display_name, c.state, c.held, c.first_seen_at, c.last_seen_at
{{of_contacts}} order by c.contact_id;

-- name: contacts_to_erase
-- Those that have the person's name, and those for whom messages of the person are held, such as groups.
select c.contact_id {{of_contacts}} and c.display_name is not null
union
select h.contact_id {{of_senders}} join held h on h.request_id = m.request_id and h.state = 'held'
order by contact_id;

-- name: erase_contact
select erase_contact($1, $2, $3, $4);

-- part: of_turns_of_others
-- Messages of others, in the conversations in which the person wrote, and after that.
from (select m.conversation, min(m.request_id::text)::uuid as first {{of_senders}} group by m.conversation) c
join message_inbox o on o.conversation = c.conversation and o.request_id > c.first
where (o.channel, o.endpoint, o.sender) not in (select * from unnest($1::text[], $2::text[], $3::text[]))
      and exists (select from step s where s.request_id = o.request_id and s.result is not null)

-- name: turns_of_others
select distinct o.request_id {{of_turns_of_others}} and o.request_id > $4 and not has_open_turn(o.request_id)
order by o.request_id limit $5;

-- name: count_turns_of_others
select count(distinct o.request_id) filter (where not has_open_turn(o.request_id)) as ended,
       count(distinct o.request_id) filter (where has_open_turn(o.request_id)) as open
{{of_turns_of_others}};

-- name: erase_turns
update step set result = null where request_id = any ($1::uuid[]) and result is not null;

-- name: facts
-- With the entries that each cites; the words of those that are still there are among the histories.
select f.fact_id, f.system_id, f.author, f.subject, f.space, c.name as conversation, f.text, f.predicate, f.value, f.denied,
       f.said_by, f.valid_from, f.valid_to, f.permanence, f.importance, f.said_at, f.created_at, f.undone_at,
       coalesce((
           select json_agg(json_build_object('request_id', e.request_id, 'position', s.position, 'said_at', s.said_at)
                           order by s.said_at, s.lane, s.position)
           from fact_source s left join entry e on e.lane = s.lane and e.position = s.position
           where s.fact_id = f.fact_id
       ), '[]')::text as sources
from facts_by_person($1, $2, $3, $4) f left join conversation c on c.conversation = f.conversation
order by f.fact_id desc;

-- name: facts_by
select f.fact_id, f.text from facts_by_person($1, $2, $3, $4) f order by f.fact_id desc;

-- name: facts_about
select f.fact_id, f.text from facts_about_person($1, $2, $3, $4) f order by f.fact_id desc;

-- name: erase_told
select erase_told($1);
