-- Whether something is still to be done with a message, for which its words are needed. What is held is forgotten before.
create or replace function has_open_work(_request_id uuid) returns boolean
language sql stable as $$
    select exists (select from switchboard.delivery d where d.request_id = _request_id and d.state = 'pending')
        or exists (select from switchboard.routing r where r.request_id = _request_id and r.state = 'pending')
        or exists (select from switchboard.outbox o where o.request_id = _request_id and o.state in ('pending', 'sending'))
        or exists (select from switchboard.dead_letter l where l.request_id = _request_id and l.status = 'pending');
$$;

-- Whether a turn may go on that has to do with a message.
create or replace function has_open_turn(_request_id uuid) returns boolean
language sql stable as $$
    select exists (select from switchboard.delivery d where d.request_id = _request_id and d.state = 'pending')
        or exists (select from switchboard.routing r where r.request_id = _request_id and r.state = 'pending');
$$;

-- Erase the words of messages with which nothing is to be done any more: what was said, what turns noted, what was replied.
-- Ids, decisions and their place in the books stay. Files are named no more, unless by another message; who names one
-- meanwhile waits here for the other, see blobs.refer. Returns how many messages.
create or replace function erase_messages(_id uuid[]) returns integer
language plpgsql as $$
declare
    _blob bytea[] := array(select distinct r.blob from message_blob r where r.request_id = any (_id));
    _erased integer;
begin
    update message_raw w set raw = '' where w.request_id = any (_id);
    perform from blob_upload u where u.blob = any (_blob) order by u.blob, u.channel, u.endpoint for no key update;
    delete from message_blob r where r.request_id = any (_id);
    update blob_upload u set named = false
        where u.blob = any (_blob) and u.named and not exists (
            select from message_blob r join message_inbox m using (request_id)
            where r.blob = u.blob and m.channel = u.channel and m.endpoint = u.endpoint
        );
    delete from blob_made x where x.request_id = any (_id);
    delete from transcription t where t.request_id = any (_id);
    delete from outbox_blob b where b.outbox_id in (select o.outbox_id from outbox o where o.request_id = any (_id));
    update outbox o set text = '', files = null where o.request_id = any (_id);
    update mail l set origin = null where l.request_id = any (_id);
    update step s set result = null where s.request_id = any (_id);
    delete from approval p where p.approval_id in (select a.key from awaited a where a.request_id = any (_id));
    delete from awaited a where a.request_id = any (_id);
    update delivery d set text = '' where d.request_id = any (_id) and d.text is not null;
    update decision c set parts = null where c.request_id = any (_id) and c.parts is not null;
    delete from classification c where c.request_id = any (_id) and c.corrected_to is null;
    update route_call r set segment = null, reason = '' where r.request_id = any (_id);
    update attempt a set error = null where a.request_id = any (_id);  -- a program may say there what it was asked
    update dead_letter l set payload = '{}', raw = '', text = null, emptied_at = coalesce(l.emptied_at, clock_timestamp())
        where l.request_id = any (_id) and l.status = 'handled';
    update message_inbox m set envelope = (
            jsonb_set(
                jsonb_set(m.envelope::jsonb, '{payload}', '{"normalized_text": "", "attachments": []}')
                    #- '{sender,display_name}',
                '{sender,participants}',  -- who they were stays, without their names
                case json_typeof(m.envelope #> '{sender,participants}') when 'object' then coalesce(
                    (select jsonb_object_agg(p.id, p.id) from json_object_keys(m.envelope #> '{sender,participants}') p (id)), '{}')
                else 'null' end,
                false
            )
            -- of a mail that a butler wrote, its subject and its recipients
            #- case when exists (select from mail l where l.request_id = m.request_id) then '{event,reply_address}' else '{}' end::text[]
        )::json where m.request_id = any (_id);
    get diagnostics _erased = row_count;
    return _erased;
end $$;

-- Erase what these persons said and were told, in at most _limit histories. The entries keep their places, and are shown to
-- nobody. Who condenses them meanwhile begins again. Returns how many entries.
create or replace function erase_entries(_person text[], _limit integer) returns integer
language plpgsql as $$
declare
    _lanes uuid[] := array(
        select distinct e.lane from entry e where e.person = any (_person) and (e.text <> '' or e.learn) limit _limit);
    _erased integer;
begin
    perform from lane l where l.key = any (_lanes) order by l.key for no key update;
    update entry e set text = '', calls = null, own = null, name = '', learn = false
        where e.lane = any (_lanes) and e.person = any (_person) and (e.text <> '' or e.learn);
    get diagnostics _erased = row_count;
    return _erased;
end $$;

-- Erase summaries of these histories: what their persons said and were told in private, and what was condensed where they wrote
-- among others, which is in _groups. Who condenses them at this moment is waited for, and its summary goes, too; who does so later
-- begins again. Returns how many summaries.
create or replace function erase_summaries(_lanes uuid[], _person text[], _groups uuid[]) returns integer
language plpgsql as $$
declare
    _erased integer;
begin
    perform from lane l where l.key = any (_lanes) order by l.key for no key update;
    update summary s set text = ''
        where s.lane = any (_lanes) and s.text <> ''
          and ((s.private and s.person = any (_person)) or (not s.private and s.lane = any (_groups)));
    get diagnostics _erased = row_count;
    return _erased;
end $$;

-- What a person has stated, under these names and all handles that are linked now; below an id, newest first.
create or replace function facts_by_person(_person_id text, _authors text[], _below uuid, _limit integer) returns setof fact
language plpgsql as $$
declare
    _handles uuid[] := array(select h.key from person_handle h where h.person_id = _person_id);
begin
    perform facts_open(true);
    return query
        select f.* from fact f
        where (f.author = any (_authors) or f.handle = any (_handles)) and (_below is null or f.fact_id < _below)
        order by f.fact_id desc limit _limit;
    perform facts_open(false);
end $$;

-- What only this person is called, in small letters: the name, unless somebody else has it, too, and the id.
create or replace function names_of_person(_person_id text) returns text[]
language sql stable as $$
    select coalesce(array_agg(lower(n.name)), '{}')
    from switchboard.person p cross join unnest(array[p.name, p.person_id]) n (name)
    where p.person_id = _person_id and not exists (
        select from switchboard.person o
        where o.person_id <> p.person_id and lower(n.name) in (lower(o.name), o.person_id));
$$;

-- What others have stated of a person: it is about a name of theirs, or what owners say to be another name of that.
create or replace function facts_about_person(_person_id text, _authors text[], _below uuid, _limit integer) returns setof fact
language plpgsql as $$
declare
    _handles uuid[] := array(select h.key from person_handle h where h.person_id = _person_id);
    _names text[] := names_of_person(_person_id);
begin
    perform facts_open(true);
    return query
        select f.* from fact f
        cross join lateral (select lower(btrim(f.subject)) as subject) s
        where (s.subject = any (_names) or exists (
                select from entity_alias a
                where a.system_id = f.system_id and a.until is null and s.subject in (lower(a.name), lower(a.alias))
                  and (lower(a.name) = any (_names) or lower(a.alias) = any (_names))))
          and f.author <> all (_authors) and (f.handle is null or f.handle <> all (_handles))
          and (_below is null or f.fact_id < _below)
        order by f.fact_id desc limit _limit;
    perform facts_open(false);
end $$;

-- A regular expression that finds any of these texts within JSON, however spaces were changed.
create or replace function texts_in_json(_texts text[]) returns text
language sql immutable as $$
    select string_agg(
        regexp_replace(
            regexp_replace(btrim(to_json(t)::text, '"'), '([][\\.^$*+?(){}|])', '\\\1', 'g'),
            '([[:space:]]|\\\\[nrt])+', '([[:space:]]|\\\\[nrt])+', 'g'),
        '|')
    from unnest(_texts) t;
$$;

-- Erase what turns noted that were shown these facts, whoever they were for, and the calls of tools that found them, but for
-- turns that go on. Returns how many steps and entries.
create or replace function erase_told(_texts text[]) returns integer
language plpgsql as $$
declare
    _pattern text := texts_in_json(_texts);
    _steps integer;
    _entries integer;
begin
    update step s set result = null
        where s.result is not null and s.result::text ~ _pattern and not has_open_turn(s.request_id);
    get diagnostics _steps = row_count;
    update entry e set calls = null where e.calls is not null and e.calls::text ~ _pattern;
    get diagnostics _entries = row_count;
    return _steps + _entries;
end $$;

-- Forget what of these senders is held of a contact, and what people call it; what was decided about it stays.
create or replace function erase_contact(_contact uuid, _channel text[], _endpoint text[], _sender text[]) returns void
language plpgsql as $$
declare
    _id uuid[];
begin
    perform lock_contacts((select c.account from contact c where c.contact_id = _contact));
    with gone as (
        update held h set state = 'forgotten', facts = '{}', pinned = null
            from message_inbox m join unnest(_channel, _endpoint, _sender) as s (channel, endpoint, sender)
                using (channel, endpoint, sender)
            where h.contact_id = _contact and h.state = 'held' and m.request_id = h.request_id
            returning h.request_id
    )
    select coalesce(array_agg(g.request_id), '{}') into _id from gone g;
    perform erase_words(_contact, _id);
    update contact c set display_name = null where c.contact_id = _contact and c.scope <> 'group';
end $$;
