-- Lease replies of one endpoint to a connector, the next of each conversation, oldest first (send lanes are of tier 1), with
-- all that belongs to each. address: event.reply_address of its message; unreachable: nothing can be sent there since that came.
create or replace function lease_next_replies(_pool text, _limit integer, _lease interval, _idempotent boolean)
returns table (
    outbox_id uuid, lane uuid, seq bigint, conversation text, request_id uuid, system_id text, channel text, endpoint text,
    thread text, recipient text, reply_to text, text text, files json, state text, platform_message_id text, error text,
    created_at timestamptz, settled_at timestamptz, attempts integer, lease bigint, address json, parts json, unreachable boolean
)
language plpgsql as $$
#variable_conflict use_column
declare
    _claimed jsonb := (
        select jsonb_agg(c)
        from claim_in_turn(null, _lease, array['send'], array[_pool], array[1::smallint], array[_limit], '{}', '{}', '{}') c
    );
begin
    -- A statement of its own: that of the claim would not see a reply that was committed in between, and neither would the
    -- caller's. Subselects, so that each message is found by its index.
    return query
        with leased as (
            update outbox o set state = 'sending', idempotent = _idempotent
                from jsonb_to_recordset(_claimed) as c (key uuid, seq bigint, epoch bigint, attempts integer)
                where o.lane = c.key and o.seq = c.seq
                returning o.*, c.attempts, c.epoch,
                          (select m.received_at from message_inbox m where m.request_id = o.request_id) as received_at
        )
        select o.outbox_id, o.lane, o.seq, c.name, o.request_id, o.system_id, o.channel, o.endpoint,
               o.thread, o.recipient, o.reply_to, o.text, o.files, o.state, o.platform_message_id, o.error,
               o.created_at, o.settled_at, o.attempts, o.epoch,
               (select m.envelope #> '{event,reply_address}' from message_inbox m where m.request_id = o.request_id),
               (select json_agg(json_build_object(
                           'part', p.part, 'of', p.parts, 'state', p.state, 'key', p.key,
                           'platform_message_id', p.platform_message_id, 'error', p.error,
                           'age_s', extract(epoch from clock_timestamp() - p.at)::float8
                       ) order by p.part)
                from outbox_part p where p.outbox_id = o.outbox_id),
               coalesce(l.blocked_at >= o.received_at, false)
        from leased o join lane l on l.key = o.lane left join conversation c using (conversation)
        order by o.outbox_id;
end $$;

-- Record a part of a reply that is leased, and renew the lease; nobody may begin to send under a lease that has run out. Returns
-- the state the part is in now: one that was sent stays so. `later`: the platform did not take it, so its intent is taken back. Null when the lease is not the holder's any more.
create or replace function record_part(
    _outbox_id uuid, _epoch bigint, _part integer, _parts integer, _state text, _key text, _platform_message_id text,
    _error text, _lease interval
) returns text
language plpgsql as $$
#variable_conflict use_column
declare
    _lane uuid;
begin
    select l.key into _lane from lane l
        where l.key = (select o.lane from outbox o where o.outbox_id = _outbox_id)
          and l.epoch = _epoch and l.state = 'running' and l.owner is null
          and l.next_seq = (select o.seq from outbox o where o.outbox_id = _outbox_id)
          and (_state <> 'intent' or l.lease_until > clock_timestamp())
        for no key update;
    if not found then
        return null;
    end if;
    delete from outbox_part p where p.outbox_id = _outbox_id and p.part = _part and p.state = 'intent' and _state = 'later';
    insert into outbox_part as p (outbox_id, part, parts, lane, state, key, platform_message_id, error)
        select _outbox_id, _part, _parts, _lane, _state, _key, _platform_message_id, _error where _state <> 'later'
        on conflict (outbox_id, part) do update set
            parts = excluded.parts, state = excluded.state, key = coalesce(excluded.key, p.key),
            platform_message_id = excluded.platform_message_id, error = excluded.error,
            -- A part that may have been sent is as old as the first intent: a platform forgets its key that much earlier.
            at = case when excluded.state = 'intent' then p.at else clock_timestamp() end
            where p.state <> 'sent';
    update lane l set lease_until = greatest(l.lease_until, clock_timestamp() + _lease) where l.key = _lane;
    return coalesce((select p.state from outbox_part p where p.outbox_id = _outbox_id and p.part = _part), 'later');
end $$;

-- Settle one send: a receipt with the outcome; a retryable one goes back into the lane until its attempts are used up, and one
-- for `later`, which uses up none, for a day after the reply was made. _max_attempts null: it was no attempt, as nobody got the reply.
-- _because: a failure is the brake's, which lets no more replies go there, or nothing can be sent there at all. People are told
-- of the first in a conversation, and of all that is uncertain (see tell_of_reply).
-- Returns the state the reply is in now, or null when the lease is not the holder's any more.
create or replace function settle_send(
    _owner bigint, _lane uuid, _epoch bigint, _seq bigint, _outcome text, _platform_message_id text, _error text,
    _delay interval, _max_attempts integer, _because text default null
) returns text
language plpgsql as $$
#variable_conflict use_column
declare
    _attempts integer;
    _state text;
    _outbox_id uuid;
    _late boolean;
    _open text;
    _reachable boolean;
begin
    select l.attempts, l.blocked_at is null into _attempts, _reachable from lane l
        where l.key = _lane and l.epoch = _epoch and l.state = 'running' and l.next_seq = _seq
          and l.owner is not distinct from _owner
        for no key update;
    if not found then
        return null;
    end if;
    select o.outbox_id, o.created_at < clock_timestamp() - interval '24 hours' into _outbox_id, _late
        from outbox o where o.lane = _lane and o.seq = _seq;
    _open := case when exists (select from outbox_part p where p.outbox_id = _outbox_id and p.state = 'uncertain')
                  then 'uncertain' else 'dead' end;
    _state := case when _outcome not in ('retryable', 'later') then _outcome
                   when _outcome = 'later' and _late or _outcome = 'retryable' and _attempts >= _max_attempts then _open
                   else 'pending' end;
    if _outcome = 'later' and _late then
        _error := concat_ws(': ', 'not taken within 24 hours', _error);
    end if;
    if _outcome in ('retryable', 'later') then  -- what was begun was certainly not sent
        delete from outbox_part p where p.outbox_id = _outbox_id and p.state = 'intent';
    elsif _outcome = 'uncertain' then
        update outbox_part p set state = 'uncertain' where p.outbox_id = _outbox_id and p.state = 'intent';
    end if;
    insert into receipt (request_id, outbox_id, epoch, outcome, platform_message_id, error, at)
        select o.request_id, o.outbox_id, _epoch, _outcome, _platform_message_id, _error, clock_timestamp()
        from outbox o where o.lane = _lane and o.seq = _seq;
    update outbox o set
        state = _state, error = _error,
        platform_message_id = coalesce(_platform_message_id, o.platform_message_id),
        settled_at = case when _state <> 'pending' then clock_timestamp() end,
        untold = case when is_notice(o) then case when _state = 'uncertain' then _state when _state in ('failed', 'dead') then 'blocked' end
                      when o.system_id = 'switchboard' then null when _state = 'uncertain' then 'uncertain'
                      when _state in ('failed', 'dead') and is_mail(o) then 'unsent'
                      when _state = 'failed' and (_because <> 'blocked' or _reachable) then _because end
        where o.lane = _lane and o.seq = _seq;
    if _state = 'sent' and not _reachable or _state = 'failed' and _because = 'blocked' then
        -- A reply to a message from before was not tried, and says nothing of those to later ones.
        update lane l set blocked_at = case when _state = 'failed' then clock_timestamp() end
            where l.key = _lane and (_state = 'sent' or l.blocked_at is null or l.blocked_at < (
                select m.received_at from outbox o join message_inbox m on m.request_id = o.request_id
                where o.lane = _lane and o.seq = _seq));
    end if;
    if _state = 'sent' and _platform_message_id is not null then
        _state := count_late_failure(_outbox_id);
    end if;
    if _state <> 'pending' then
        perform advance_lanes(array[_lane], array[_seq], array[false], array[false]);
        return _state;
    end if;
    update lane l set state = 'ready', owner = null, lease_until = null, ready_at = clock_timestamp() + _delay,
                      attempts = greatest(l.attempts - (_outcome = 'later' or _max_attempts is null)::integer, 0),
                      delayed = _delay > interval '0' where l.key = _lane;
    perform choose_next(_lane) from lane l where l.key = _lane and l.parked > 0;
    return _state;
end $$;

-- Leases that have expired: replies with an idempotency key, and those that are sent in parts, go back into their lanes, all
-- others become uncertain. Of the parts only one that was begun is uncertain.
create or replace function expire_leases(_max_attempts integer) returns bigint
language plpgsql as $$
#variable_conflict use_column
declare
    _due record;
    _count bigint := 0;
begin
    for _due in
        select l.key, l.epoch, o.seq, o.idempotent, o.outbox_id,
               exists (select from outbox_part p where p.outbox_id = o.outbox_id) as parts
        from lane l join outbox o on o.lane = l.key and o.seq = l.next_seq
        where l.state = 'running' and l.owner is null and l.lease_until < clock_timestamp()
        order by l.key for no key update of l skip locked
    loop
        update outbox_part p set state = 'uncertain', error = 'the lease ran out before a receipt came'
            where p.outbox_id = _due.outbox_id and p.state = 'intent';
        perform settle_send(null, _due.key, _due.epoch, _due.seq,
            case when _due.parts then 'later' when _due.idempotent then 'retryable' else 'uncertain' end, null,
            'the lease ran out before a receipt came', interval '0', _max_attempts);
        _count := _count + 1;
    end loop;
    return _count;
end $$;

-- Resend a reply that was not, or possibly not, sent: with the same idempotency key, at the end of its lane.
create or replace function resend_reply(_outbox_id uuid) returns boolean
language plpgsql as $$
#variable_conflict use_column
declare
    _lane uuid := (select o.lane from outbox o where o.outbox_id = _outbox_id);
begin
    perform from lane l where l.key = _lane for no key update;
    perform from outbox o where o.outbox_id = _outbox_id and o.state in ('uncertain', 'failed', 'dead') for no key update;
    if not found then
        return false;
    end if;
    delete from outbox_part p where p.outbox_id = _outbox_id and p.state <> 'sent';
    update dead_letter x set status = 'handled', handled_by_system_id = 'switchboard', resolution = 'the reply is sent again',
                             handled_at = clock_timestamp()
        from outbox o
        where o.outbox_id = _outbox_id and x.request_id = o.request_id and x.lane = o.lane and x.seq = o.seq and x.status = 'pending';
    update lane l set blocked_at = null where l.key = _lane and l.blocked_at is not null;
    update outbox o set seq = (enqueue_items(array[_lane], null))[1], state = 'pending', error = null, settled_at = null, untold = null
        where o.outbox_id = _outbox_id;
    return true;
end $$;

-- Whether a reply is a notice to operators, whose every failure they are told of elsewhere.
create or replace function is_notice(_one outbox) returns boolean
language sql stable as $$
    select _one.system_id = 'switchboard'
       and exists (select from message_inbox m where m.request_id = _one.request_id and m.channel = 'notice');
$$;

-- Make a dead letter of a reply that was not sent, or may not have been. That a conversation gets no more replies is told once,
-- until somebody has handled it. False: it was told, or the reply is being sent again.
create or replace function tell_of_reply(
    _outbox_id uuid, _why text, _dead_letter_id uuid, _category text, _reason text, _team_id text, _handler text
) returns boolean
language plpgsql as $$
#variable_conflict use_column
declare
    _conversation uuid := (select l.conversation from outbox o join lane l on l.key = o.lane where o.outbox_id = _outbox_id);
    _lane uuid;
begin
    if _handler is not null then
        perform lock_lanes(array[lane_key('notice', _handler, _conversation)], array['notice'], array[_handler],
                           array[_conversation], array['work']);
    end if;
    update outbox o set untold = null where o.outbox_id = _outbox_id and o.untold = _why returning o.lane into _lane;
    if not found or not exists (select from outbox o where o.outbox_id = _outbox_id and is_notice(o)) and exists (
        select from dead_letter x
        where x.lane = _lane and x.category = _category and x.status = 'pending' and x.category in ('reply_braked', 'reply_unreachable')
    ) then
        return false;
    end if;
    perform write_dead_letters(array_agg(
            (_dead_letter_id, o.request_id, _conversation, _team_id, _category, _reason, _handler, o.lane, o.seq, o.system_id,
             null, coalesce((select max(d.n) from delivery d where d.request_id = o.request_id and d.system_id = o.system_id), 1)
            )::new_dead_letter))
        from outbox o where o.outbox_id = _outbox_id;
    update dead_letter x set sender_spared = true where x.dead_letter_id = _dead_letter_id;
    return true;
end $$;
