-- In PL/pgSQL, where they look up something: of that the plan is kept, while functions in SQL were planned for each call.

-- The first 128 bits of HMAC-SHA-256 of a conversation's name: a key that says nothing to anybody without the secret of this
-- installation. store/keys.py computes the same, and the keys of events.
create or replace function conversation_key(_name text) returns uuid
language plpgsql stable as $$
begin
    return (
        select encode(substr(sha256(i.outer_key || sha256(i.inner_key || convert_to(E'conversation\n' || _name, 'UTF8'))), 1, 16), 'hex')::uuid
        from switchboard.installation i
    );
end $$;

-- The same, and its name is kept: for conversations of which no message is in the inbox.
create or replace function enter_conversation(_name text) returns uuid
language plpgsql as $$
declare
    _key uuid := switchboard.conversation_key(_name);
begin
    insert into switchboard.conversation (conversation, name) values (_key, _name) on conflict do nothing;
    return _key;
end $$;

create or replace function lane_key(_kind text, _system_id text, _conversation uuid) returns uuid
language sql stable as $$
    select encode(substr(sha256(convert_to(
        _kind || ':' || coalesce(_system_id, '') || ':' || coalesce(_conversation::text, ''), 'UTF8')), 1, 16), 'hex')::uuid;
$$;

-- A handle as facts keep it: what a channel calls a person, and the endpoint where it does; empty: at all. The same as
-- person_handle.key.
create or replace function handle_key(_channel text, _realm text, _identity text) returns uuid
language sql immutable strict as $$
    select encode(substr(sha256(decode(
        length(_channel)::text || ',' || length(_realm)::text || ':' || replace(_channel || _realm || _identity, '\', '\\'),
        'escape')), 1, 16), 'hex')::uuid;
$$;

-- Whose share of the workers a message takes: the upper 31 bits stand for its endpoint, the lower 32 for its sender. _seed:
-- flow_seed of this installation, without which nobody can choose a name that shares with another. Two that share by chance
-- are as if one had sent all.
create or replace function flow_key(_seed bigint, _channel text, _endpoint text, _sender text) returns bigint
language sql immutable as $$
    select (hashtextextended(_channel || E'\n' || _endpoint, _seed) & 9223372032559808512) | (hashtextextended(_sender, _seed) & 4294967295);
$$;

create or replace function flow_seed() returns bigint
language plpgsql stable as $$
begin
    return (select hashtextextended(encode(i.inner_key, 'hex'), 0) from installation i);
end $$;

create or replace function flow_of(_request_id uuid) returns bigint
language sql stable as $$
    select flow_key(flow_seed(), m.channel, m.endpoint, m.sender) from message_inbox m where m.request_id = _request_id;
$$;

-- A lane as people read it: turn:System1/health:telegram/bot/42, send:telegram/bot/42, notice:System4/root:digest.
create or replace function lane_name(_key uuid) returns text
language sql stable as $$
    select concat_ws(':', l.kind, l.system_id, coalesce(c.name, 'digest'))
    from lane l left join conversation c using (conversation) where l.key = _key;
$$;

-- Make the lanes that are missing, and lock all of them in key order. What is read of them here is as of the lock.
-- _key: lane_key of each.
create or replace function lock_lanes(_key uuid[], _kind text[], _system_id text[], _conversation uuid[], _pool text[])
returns table (key uuid, state text, ready_at timestamptz)
language plpgsql as $$
#variable_conflict use_column
begin
    insert into lane (key, kind, system_id, conversation, pool, tier)
        select distinct on (n.key) n.key, n.kind, n.system_id, n.conversation, n.pool,
               case when n.kind in ('send', 'mailbox') then 1 else 3 end
        from unnest(_key, _kind, _system_id, _conversation, _pool) as n (key, kind, system_id, conversation, pool)
        where n.key not in (select l.key from lane l where l.key = any (_key)) order by n.key
        on conflict do nothing;
    return query
        select l.key, l.state, l.ready_at from lane l where l.key = any (_key)
        order by l.key for no key update;
end $$;

-- The lane of a butler's turns in a conversation, which need not have begun, locked.
create or replace function enter_lane(_system_id text, _conversation text) returns uuid
language plpgsql as $$
declare
    _entered uuid := enter_conversation(_conversation);
    _lane uuid := lane_key('turn', _system_id, _entered);
begin
    perform lock_lanes(array[_lane], array['turn'], array[_system_id], array[_entered], array['work']);
    return _lane;
end $$;
