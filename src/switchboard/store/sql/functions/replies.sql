-- Lease replies of one endpoint to a connector, the next of each conversation, oldest first (send lanes are of tier 1).
create or replace function lease_replies(_pool text, _limit integer, _lease interval, _idempotent boolean)
returns table (
    outbox_id uuid, lane uuid, seq bigint, conversation text, request_id uuid, system_id text, channel text, endpoint text,
    thread text, recipient text, reply_to text, text text, state text, platform_message_id text, error text,
    created_at timestamptz, settled_at timestamptz, attempts integer, lease bigint
)
language plpgsql as $$
#variable_conflict use_column
declare
    _claimed jsonb := (
        select jsonb_agg(c)
        from claim_in_turn(null, _lease, array['send'], array[_pool], array[1::smallint], array[_limit], '{}', '{}', '{}') c
    );
begin
    -- a statement of its own: in that of the claim a reply committed in between would be claimed and not be seen
    return query
        update outbox o set state = 'sending', idempotent = _idempotent
            from jsonb_to_recordset(_claimed) as c (key uuid, seq bigint, epoch bigint, attempts integer)
            where o.lane = c.key and o.seq = c.seq
            returning o.outbox_id, o.lane, o.seq, (select n.name from lane l join conversation n using (conversation) where l.key = o.lane), o.request_id, o.system_id, o.channel, o.endpoint,
                o.thread, o.recipient, o.reply_to, o.text, o.state, o.platform_message_id, o.error,
                o.created_at, o.settled_at, c.attempts, c.epoch;
end $$;

-- Record a part of a reply that is leased, and renew the lease; nobody may begin to send under a lease that has run out. Returns
-- the state the part is in now: one that was sent stays so. Null when the lease is not the holder's any more.
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
    insert into outbox_part as p (outbox_id, part, parts, lane, state, key, platform_message_id, error)
        values (_outbox_id, _part, _parts, _lane, _state, _key, _platform_message_id, _error)
        on conflict (outbox_id, part) do update set
            parts = excluded.parts, state = excluded.state, key = coalesce(excluded.key, p.key),
            platform_message_id = excluded.platform_message_id, error = excluded.error,
            -- A part that may have been sent is as old as the first intent: a platform forgets its key that much earlier.
            at = case when excluded.state = 'intent' then p.at else clock_timestamp() end
            where p.state <> 'sent';
    update lane l set lease_until = greatest(l.lease_until, clock_timestamp() + _lease) where l.key = _lane;
    return (select p.state from outbox_part p where p.outbox_id = _outbox_id and p.part = _part);
end $$;

-- Settle one send: a receipt with the outcome; a retryable one goes back into the lane until its attempts are used up, and one
-- for `later`, which uses up none, for a day after the reply was made.
-- Returns the state the reply is in now, or null when the lease is not the holder's any more.
create or replace function settle_send(
    _owner bigint, _lane uuid, _epoch bigint, _seq bigint, _outcome text, _platform_message_id text, _error text,
    _delay interval, _max_attempts integer
) returns text
language plpgsql as $$
#variable_conflict use_column
declare
    _attempts integer;
    _state text;
    _outbox_id uuid;
    _late boolean;
    _open text;
begin
    select l.attempts into _attempts from lane l
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
        settled_at = case when _state <> 'pending' then clock_timestamp() end
        where o.lane = _lane and o.seq = _seq;
    if _state <> 'pending' then
        perform advance_lanes(array[_lane], array[_seq], array[false], array[false]);
        return _state;
    end if;
    update lane l set state = 'ready', owner = null, lease_until = null, ready_at = clock_timestamp() + _delay,
                      attempts = case when _outcome = 'later' then greatest(l.attempts - 1, 0) else l.attempts end,
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
    update outbox o set seq = (enqueue_items(array[_lane], null))[1], state = 'pending', error = null, settled_at = null
        where o.outbox_id = _outbox_id;
    return true;
end $$;
