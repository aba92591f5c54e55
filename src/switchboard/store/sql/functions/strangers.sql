-- Who may write to an endpoint that not everybody may write to. All that changes contacts of an account happens under one lock
-- of that account, taken first, so that no message is held for somebody who was just let in, and no limit is exceeded.
create or replace function lock_contacts(_account uuid) returns void
language sql as $$
    select pg_advisory_xact_lock(hashtextextended(_account::text, 8472));
$$;

-- Hold one message, unless its sender may write by now; of late messages (scope late) there may be any number. _code: the key of what may be a pairing code, null: it is none.
-- _outbox_id: of the notice to its sender, null: nobody is to be told; _pool as in settle_turns.
-- _private: whether it comes from a chat with nobody else; only there a code makes an owner, also of who is let in already.
-- outcome: let_in (nothing is stored: it goes the way of all messages), known (a duplicate; request_id is the first one),
-- held, code (the sender is let in by it, and it goes nowhere), spent (a code that does nothing, such as one for an owner that
-- others have read, or one of somebody who may write; it goes nowhere either), denied, sender_full, account_full (of these nothing is stored).
-- owner_of: the butler that the sender owns now because of the code.
create or replace function hold_of_stranger(
    _account uuid, _contact uuid, _scope text, _identity text, _display_name text, _code uuid,
    _outbox_id uuid, _text text, _pool text,
    _name text, _conversation uuid, _event uuid, _content uuid,
    _request_id uuid, _channel text, _endpoint text, _sender text, _thread text, _envelope text, _media_type text,
    _received_at timestamptz, _tier smallint, _facts text, _pinned text, _raw bytea, _private boolean default false
) returns table (outcome text, request_id uuid, differs boolean, told boolean, owner_of text)
language plpgsql as $$
#variable_conflict use_column
declare
    _known contact%rowtype;
    _state text := 'held';
    _send uuid;
    _used uuid;
    _spent boolean := false;
    _owner_of text;
begin
    perform lock_contacts(_account);
    select * into _known from contact c where c.contact_id = _contact;
    if _code is not null then
        -- Of strangers, whose places are counted, only the message that spends a code. Of who may write, any code that was made
        -- here: one that is not for an owner stays valid, as it does nothing for them.
        _spent := exists (select from pairing_code c where c.account = _account and c.key = _code
            and (_known.state = 'approved'
                 or c.owner_of is not null and c.used_at is null and c.tries < 5 and c.expires_at > clock_timestamp()));
    end if;
    if _known.state = 'approved' then
        _used := use_pairing_code(_account, _code, true, _private);
        if _used is null and not _spent then
            return query select 'let_in', null::uuid, false, false, null::text;
            return;
        end if;
    end if;
    return query select 'known', d.request_id, d.body <> _content, false, null::text from dedupe d where d.key = _event;
    if found then
        return;
    end if;
    if _code is not null and (coalesce(_known.state, 'stranger') = 'stranger' or _known.state = 'denied' and not _private) then
        _used := use_pairing_code(_account, _code, _scope <> 'person', _private);  -- a group is not paired
    end if;
    if _used is not null or _spent and coalesce(_known.state, 'stranger') <> 'denied' then
        _state := 'code';
    elsif _scope <> 'late' and (
              _known.state = 'denied' or _known.held >= 20
              or (select sum(c.held) from contact c where c.account = _account and c.held > 0 and c.scope <> 'late') >= 1000) then
        update contact c set refused = c.refused + 1, last_seen_at = clock_timestamp() where c.contact_id = _contact;
        return query select case when _known.state = 'denied' then 'denied' when _known.held >= 20 then 'sender_full'
                                 else 'account_full' end, null::uuid, false, false, null::text;
        return;
    elsif _outbox_id is not null and coalesce(_known.told_at, '-infinity') < clock_timestamp() - interval '1 day'
          and (_scope = 'late' or (select count(*) from contact c
               where c.account = _account and c.told_at > clock_timestamp() - interval '1 hour' and c.scope <> 'late') < 20) then
        _send := lane_key('send', null, _conversation);
    end if;

    if _send is not null then
        perform lock_lanes(array[_send], array['send'], array[null::text], array[_conversation], array[_pool]);
    end if;
    insert into conversation (conversation, name) values (_conversation, _name) on conflict do nothing;
    insert into contact as c (contact_id, account, channel, endpoint, scope, identity, display_name, state, held, told_at)
        values (_contact, _account, _channel, _endpoint, _scope, _identity, _display_name, 'stranger',
                (_state = 'held')::integer, case when _send is not null then clock_timestamp() end)
        on conflict (contact_id) do update set
            held = c.held + excluded.held, last_seen_at = clock_timestamp(), told_at = coalesce(excluded.told_at, c.told_at),
            display_name = coalesce(excluded.display_name, c.display_name);
    insert into dedupe (key, body, request_id) values (_event, _content, _request_id);
    insert into message_inbox (request_id, conversation, channel, endpoint, sender, thread, envelope, media_type, received_at)
        values (_request_id, _conversation, _channel, _endpoint, _sender, _thread, _envelope::json, _media_type, _received_at);
    insert into message_raw (request_id, raw) values (_request_id, _raw);
    insert into held (request_id, contact_id, conversation, state, tier, facts, pinned, at)
        values (_request_id, _contact, _conversation, _state, _tier, _facts::json, _pinned, _received_at);
    if _used is not null then
        update pairing_code c set contact_id = _contact, used_at = clock_timestamp() where c.code_id = _used;
        _owner_of := add_owner(_contact, _used);  -- first: who writes rules locks their versions before lanes, too
        perform decide_contact(_contact, 'approved', 'code ' || _used);
    end if;
    if _send is not null then
        perform say_as_switchboard(_request_id, _send, _outbox_id, _text, _pool);
    end if;
    return query select case when _state = 'code' and _used is null then 'spent' else _state end, _request_id, false,
                        _send is not null, _owner_of;
end $$;

-- The code with this key, if it is valid at this account; else this was a try of each that is, and the fifth locks it.
-- A code for an owner that was sent where others read it is locked at once. _owners: only codes for owners count.
create or replace function use_pairing_code(_account uuid, _code uuid, _owners boolean, _private boolean) returns uuid
language plpgsql as $$
declare
    _found uuid;
begin
    if _code is null then
        return null;
    end if;
    select c.code_id into _found from pairing_code c
        where c.account = _account and c.key = _code and c.used_at is null and c.tries < 5 and c.expires_at > clock_timestamp()
          and (c.owner_of is not null or not _owners) and (c.owner_of is null or _private);
    if _found is null then
        update pairing_code c set tries = case when c.key = _code and c.owner_of is not null then 5 else c.tries + 1 end
            where c.account = _account and c.used_at is null and c.tries < 5 and c.expires_at > clock_timestamp()
              and (c.owner_of is not null or not _owners)
              and (c.key = _code or _private or not _owners);  -- nobody guesses where no guess is taken
    end if;
    return _found;
end $$;

-- The sender of a code for an owner owns its butler from now on, if it still exists. Returns the butler, null: there is none.
create or replace function add_owner(_contact uuid, _code_id uuid) returns text
language plpgsql as $$
declare
    _owner_of text;
begin
    if not exists (select from pairing_code c where c.code_id = _code_id and c.owner_of is not null) then
        return null;
    end if;
    lock table rule_set in share row exclusive mode;  -- before members and owners, as whoever removes a butler does
    insert into contact_owner (contact_id, system_id)
        select _contact, m.system_id from pairing_code c join member m on m.system_id = c.owner_of where c.code_id = _code_id
        on conflict (contact_id, system_id) do update set since = contact_owner.since
        returning system_id into _owner_of;
    if _owner_of is not null then
        perform owners_changed('code ' || _code_id, _owner_of || ' has an owner by a code');
    end if;
    return _owner_of;
end $$;

-- Processes read members, and with them who owns them, with each version of the rules.
create or replace function owners_changed(_author text, _reason text) returns void
language plpgsql as $$
begin
    lock table rule_set in share row exclusive mode;
    insert into rule_set (version, author, reason, teams)
        select coalesce(max(s.version), 0) + 1, _author, _reason, true from rule_set s;
end $$;

-- Whether a decision is about what is held at present, and not about what will come.
create or replace function keeps_state(_scope text, _state text) returns boolean
language sql immutable as $$
    select _scope = 'late' or _scope = 'unverified' and _state = 'approved';
$$;

-- Approve: what was held waits to be routed now, in the order in which it came, and what comes later waits behind it. Whom a
-- mail names without proof is not let in by that, but what is held of it flows on; so it is with what came late. Deny: it is forgotten. Revoke
-- (_state stranger): the next message is held again. Who may not write owns no butler either. Returns how many messages were
-- released or forgotten; no row: there is no such contact.
create or replace function decide_contact(_contact uuid, _state text, _by text) returns table (messages integer, changed boolean)
language plpgsql as $$
#variable_conflict use_column
declare
    _account uuid := (select c.account from contact c where c.contact_id = _contact);
    _count integer := 0;
    _changed boolean;
begin
    perform lock_contacts(_account);
    select case when keeps_state(c.scope, _state) then c.held > 0 else c.state <> _state end into _changed
        from contact c where c.contact_id = _contact;
    if _changed is null then
        return;
    end if;
    if _state <> 'approved' and exists (select from contact_owner o where o.contact_id = _contact) then
        lock table rule_set in share row exclusive mode;  -- as in add_owner
    end if;
    if _state = 'approved' then
        _count := release_held(_contact);
    elsif _state = 'denied' then
        _count := forget_held(_contact);
    end if;
    update contact c set
        state = case when keeps_state(c.scope, _state) then c.state else _state end,
        decided_at = clock_timestamp(), decided_by = _by
        where c.contact_id = _contact and _changed;
    if _state <> 'approved' then
        delete from contact_owner o where o.contact_id = _contact;
        if found then
            perform owners_changed(_by, 'an owner may not write any more');
        end if;
    end if;
    return query select _count, _changed;
end $$;

create or replace function release_held(_contact uuid) returns integer
language plpgsql as $$
declare
    _id uuid[];
    _lane uuid[];
    _conversation uuid[];
    _flow bigint[];
    _tier smallint[];
begin
    select array_agg(h.request_id order by h.request_id), array_agg(lane_key('route', null, h.conversation) order by h.request_id),
           array_agg(h.conversation order by h.request_id), array_agg(flow_of(h.request_id) order by h.request_id),
           array_agg(h.tier order by h.request_id)
        into _id, _lane, _conversation, _flow, _tier
        from held h where h.contact_id = _contact and h.state = 'held';
    if _id is null then
        return 0;
    end if;
    perform lock_lanes(_lane, array_fill('route'::text, array[cardinality(_lane)]), array_fill(null::text, array[cardinality(_lane)]),
                       _conversation, array_fill('route'::text, array[cardinality(_lane)]));
    insert into routing (lane, seq, request_id, pinned, facts, created_at)
        select i.lane, i.seq, h.request_id, h.pinned, h.facts, h.at
        from unnest(_id, _lane, enqueue_items(_lane, _flow, _tier)) as i (request_id, lane, seq) join held h using (request_id);
    delete from held h where h.request_id = any (_id);
    update contact c set held = 0 where c.contact_id = _contact;
    perform forget_copies(_contact, _id);
    return cardinality(_id);
end $$;

-- A post and its copy in the group of its channel are one message, though each is held where it came. When one is released, the
-- other is not waited for any more. Both have one id, sender and text.
create or replace function forget_copies(_contact uuid, _released uuid[]) returns void
language plpgsql as $$
declare
    _gone record;
begin
    for _gone in
        with gone as (
            update held h set state = 'forgotten', facts = '{}', pinned = null
                from contact mine join contact c on c.account = mine.account and c.scope = 'group' and c.held > 0,
                     message_inbox copy, message_inbox m
                where mine.contact_id = _contact and mine.scope = 'group' and c.contact_id <> _contact
                  and h.contact_id = c.contact_id and h.state = 'held' and copy.request_id = h.request_id
                  and m.request_id = any (_released) and m.conversation <> copy.conversation and m.sender = copy.sender
                  and m.envelope #>> '{event,external_event_id}' = copy.envelope #>> '{event,external_event_id}'
                  and m.envelope #>> '{payload,normalized_text}' = copy.envelope #>> '{payload,normalized_text}'
                returning h.contact_id, h.request_id
        )
        select g.contact_id, array_agg(distinct g.request_id) as ids from gone g group by g.contact_id
    loop
        perform erase_words(_gone.contact_id, _gone.ids);
    end loop;
end $$;

-- What is forgotten keeps its place in the books, without its words. Its files are named no more, unless by another message
-- of the endpoint; who names one meanwhile waits here for the other, see blobs.refer.
create or replace function erase_words(_contact uuid, _id uuid[]) returns void
language plpgsql as $$
declare
    _blob bytea[];
    _of contact%rowtype;
begin
    update message_raw w set raw = '' where w.request_id = any (_id);
    select * into _of from contact c where c.contact_id = _contact;
    _blob := array(
        select u.blob from blob_upload u
        where u.channel = _of.channel and u.endpoint = _of.endpoint
          and u.blob in (select r.blob from message_blob r where r.request_id = any (_id))
        order by u.blob for no key update
    );
    delete from message_blob r where r.request_id = any (_id);
    update blob_upload u set named = false
        where u.blob = any (_blob) and u.channel = _of.channel and u.endpoint = _of.endpoint and not exists (
            select from message_blob r join message_inbox m using (request_id)
            where r.blob = u.blob and m.channel = u.channel and m.endpoint = u.endpoint
        );
    update message_inbox m set envelope = jsonb_set(m.envelope::jsonb, '{payload}', '{"normalized_text": "", "attachments": []}')::json
        where m.request_id = any (_id);
    update contact c set held = c.held - cardinality(_id) where c.contact_id = _contact;
end $$;

create or replace function forget_held(_contact uuid, _before timestamptz default 'infinity') returns integer
language plpgsql as $$
declare
    _id uuid[];
begin
    with gone as (
        update held h set state = 'forgotten', facts = '{}', pinned = null
            where h.contact_id = _contact and h.state = 'held' and h.at < _before returning h.request_id
    )
    select coalesce(array_agg(g.request_id), '{}') into _id from gone g;
    perform erase_words(_contact, _id);
    return cardinality(_id);
end $$;

-- A message that is held is not waited for any more, as a butler has got its copy in another conversation.
create or replace function forget_heard_elsewhere(_request_id uuid) returns void
language plpgsql as $$
declare
    _account uuid;
    _contact uuid;
begin
    select c.account into _account from held h join contact c using (contact_id)
        where h.request_id = _request_id and h.state = 'held';
    if _account is null then
        return;
    end if;
    perform lock_contacts(_account);
    for _contact in
        update held h set state = 'forgotten', facts = '{}', pinned = null
            where h.request_id = _request_id and h.state = 'held' returning h.contact_id
    loop
        perform erase_words(_contact, array[_request_id]);
    end loop;
end $$;

-- The group or the person has another id now: what was decided about it, by whom, what it owns, and what is held of it, follows.
-- Of one that is known under both ids already, what is held does not. The old id is a stranger's then, as others may get it.
create or replace function move_contact(_account uuid, _old uuid, _new uuid, _identity text) returns void
language plpgsql as $$
declare
    _left contact%rowtype;
    _moved contact%rowtype;
    _is_new boolean;
begin
    perform lock_contacts(_account);
    select * into _left from contact c where c.contact_id = _old;
    if not found or _old = _new then
        return;
    end if;
    if exists (select from contact_owner o where o.contact_id = _old) then
        lock table rule_set in share row exclusive mode;  -- as in add_owner
    end if;
    _moved := _left;
    _moved.contact_id := _new;
    _moved.identity := _identity;
    insert into contact values (_moved.*) on conflict (contact_id) do nothing;
    _is_new := found;
    if not _is_new and _left.state <> 'stranger' and exists (select from contact c where c.contact_id = _new and c.state = 'stranger') then
        perform decide_contact(_new, _left.state, _left.decided_by);
    end if;
    insert into contact_owner (contact_id, system_id, since)
        select _new, o.system_id, o.since from contact_owner o
        where o.contact_id = _old and exists (select from contact c where c.contact_id = _new and c.state = 'approved')
        on conflict do nothing;
    perform decide_contact(_old, 'stranger', _left.decided_by);
    if _is_new then
        update held h set contact_id = _new where h.contact_id = _old;
        delete from contact c where c.contact_id = _old;
    end if;
end $$;

-- Let somebody in before they have written.
create or replace function let_in(
    _account uuid, _contact uuid, _channel text, _endpoint text, _scope text, _identity text, _by text
) returns table (messages integer, changed boolean)
language plpgsql as $$
begin
    perform lock_contacts(_account);
    insert into contact (contact_id, account, channel, endpoint, scope, identity, state)
        values (_contact, _account, _channel, _endpoint, _scope, _identity, 'stranger') on conflict do nothing;
    return query select * from decide_contact(_contact, 'approved', _by);
end $$;

-- Let a group in, unless an operator has denied it. _name: its title. Returns whether it may write now.
create or replace function admit_group(
    _account uuid, _contact uuid, _channel text, _endpoint text, _identity text, _name text, _by text, _event uuid, _person uuid
) returns boolean
language plpgsql as $$
begin
    perform lock_contacts(_account);
    -- An event that was stored before has let in whom it could; an operator may have decided otherwise since.
    if exists (select from contact c where c.contact_id in (_contact, _person) and c.state = 'denied')
       or exists (select from dedupe d where d.key = _event) then
        return false;
    end if;
    insert into contact as c (contact_id, account, channel, endpoint, scope, identity, display_name, state)
        values (_contact, _account, _channel, _endpoint, 'group', _identity, _name, 'stranger')
        on conflict (contact_id) do update set display_name = coalesce(excluded.display_name, c.display_name);
    perform decide_contact(_contact, 'approved', _by);
    return true;
end $$;

-- Forget what one stranger has waited with for longer than _age, and strangers of whom nothing is held any more.
-- Returns how many messages and contacts; 0: there are none.
create or replace function forget_strangers(_age interval) returns integer
language plpgsql as $$
declare
    _old contact%rowtype;
    _count integer := 0;
begin
    delete from pairing_code c where c.expires_at < clock_timestamp() - interval '1 day';
    select c.* into _old from contact c
        where c.state = 'stranger' and (c.held > 0 or c.decided_at is null) and coalesce(
            (select min(h.at) from held h where h.contact_id = c.contact_id and h.state = 'held'), c.last_seen_at
        ) < clock_timestamp() - _age
        limit 1;
    if not found then
        return 0;
    end if;
    perform lock_contacts(_old.account);
    _count := forget_held(_old.contact_id, clock_timestamp() - _age);
    delete from contact c where c.contact_id = _old.contact_id and c.state = 'stranger' and c.held = 0;
    return _count + 1;
end $$;
