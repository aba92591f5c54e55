-- Tell the sender, once per message and while nobody has taken it, that nobody could. _pool as in settle_turns.
-- A machine that answers each of our words would go round in circles, in a new conversation each time if it likes: a sender
-- is told by one endpoint five times an hour at most.
create or replace function tell_sender(_request_id uuid, _outbox_id uuid, _text text, _pool text) returns boolean
language plpgsql as $$
#variable_conflict use_column
declare
    _conversation uuid := (select x.conversation from dead_letter x where x.request_id = _request_id limit 1);
    _kind text := case when _pool is null then 'mailbox' else 'send' end;
    _key uuid := lane_key(_kind, null, _conversation);
begin
    if _conversation is null then
        return false;
    end if;
    perform lock_lanes(array[_key], array[_kind], array[null::text], array[_conversation], array[coalesce(_pool, 'work')]);
    perform from dead_letter x where x.request_id = _request_id order by x.dead_letter_id for no key update;

    if message_state(_request_id) <> 'dead'
       or exists (select from outbox o where o.request_id = _request_id and o.system_id <> 'switchboard')
       or exists (
           select from dead_letter x
           where x.request_id = _request_id and (x.status <> 'pending' or x.sender_told_at is not null or x.sender_spared)
       ) then
        return false;
    end if;
    -- Whoever answers a mail of a butler has not asked for anything.
    if (select m.envelope #>> '{control,answers_mail}' from message_inbox m where m.request_id = _request_id) is not null then
        update dead_letter x set sender_spared = true where x.request_id = _request_id;
        return false;
    end if;
    if (select count(*) from message_inbox m
        join outbox o on hashtextextended(o.recipient, 0) = hashtextextended(m.sender, 0) and o.system_id = 'switchboard'
        where m.request_id = _request_id
          and (o.channel, o.endpoint, o.recipient) = (m.channel, m.endpoint, m.sender)
          and o.created_at > clock_timestamp() - interval '1 hour'
          and not exists (select from delivery d where d.request_id = o.request_id and d.system_id = 'switchboard')) >= 5 then
        update dead_letter x set sender_spared = true where x.request_id = _request_id;
        return false;
    end if;
    perform say_as_switchboard(_request_id, _key, _outbox_id, _text, _pool);
    update dead_letter x set sender_told_at = clock_timestamp() where x.request_id = _request_id;
    return true;
end $$;

-- Tell the sender of the message of a running item, once, that its answer takes longer. False: fenced, or told before.
create or replace function tell_of_delay(
    _owner bigint, _lane uuid, _epoch bigint, _seq bigint, _outbox_id uuid, _text text, _pool text
) returns boolean
language plpgsql as $$
#variable_conflict use_column
declare
    _request_id uuid := request_of(_lane, _seq);
    _conversation uuid := (select l.conversation from lane l where l.key = _lane);
    _kind text := case when _pool is null then 'mailbox' else 'send' end;
    _key uuid := lane_key(_kind, null, _conversation);
begin
    perform lock_lanes(array[_key], array[_kind], array[null::text], array[_conversation], array[coalesce(_pool, 'work')]);
    if not exists (select from lane l
                   where l.key = _lane and l.owner = _owner and l.epoch = _epoch and l.state = 'running' and l.next_seq = _seq)
       or exists (select from outbox o where o.request_id = _request_id and o.system_id = 'switchboard') then
        return false;
    end if;
    perform say_as_switchboard(_request_id, _key, _outbox_id, _text, _pool);
    return true;
end $$;

-- A reply to a message that is not of a butler but of ours. The caller holds the lock of the lane it is sent in.
create or replace function say_as_switchboard(_request_id uuid, _lane uuid, _outbox_id uuid, _text text, _pool text) returns void
language plpgsql as $$
declare
    _seq bigint[] := enqueue_items(array[_lane], array[flow_of(_request_id)], null, array[_pool]);
begin
    insert into outbox (lane, seq, outbox_id, request_id, system_id, channel, endpoint, thread, recipient,
                        reply_to, text, state, created_at, settled_at)
        select _lane, _seq[1], _outbox_id, m.request_id, 'switchboard', m.channel, m.endpoint, m.thread,
               m.sender, m.envelope #>> '{event,external_event_id}', _text,
               case when _pool is null then 'sent' else 'pending' end, clock_timestamp(),
               case when _pool is null then clock_timestamp() end
        from message_inbox m where m.request_id = _request_id;
end $$;

-- Tell the sender of a code what it has done. _pool as in settle_turns.
create or replace function tell_of_code(_request_id uuid, _outbox_id uuid, _text text, _pool text) returns void
language plpgsql as $$
declare
    _conversation uuid := (select m.conversation from message_inbox m where m.request_id = _request_id);
    _key uuid := lane_key('send', null, _conversation);
begin
    perform lock_lanes(array[_key], array['send'], array[null::text], array[_conversation], array[_pool]);
    perform say_as_switchboard(_request_id, _key, _outbox_id, _text, _pool);
end $$;
