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

-- name: messages
select m.request_id, m.channel, m.endpoint, m.sender, m.thread, m.received_at, m.envelope::text as envelope,
       array(select o.text from outbox o where o.request_id = m.request_id order by o.created_at, o.lane, o.seq) as replies
{{of_senders}} where m.request_id > $4 order by m.request_id limit $5;

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

-- name: erase_summaries
update summary set text = '' where (lane, position) in (select s.lane, s.position from summary s where {{of_summaries}});

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
select memo_id, system_id, text, created_at from memo where person = any ($1::text[]) order by created_at, memo_id;

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
