-- Whether no model has used a token for a sender before a day.
create or replace function is_newcomer(_flow bigint, _day date) returns boolean
language sql stable as $$
    select not exists (select from model_flow f where f.flow = _flow and f.day < _day and f.tokens + f.turn_tokens > 0);
$$;

-- Whether a model may be asked for this message now, by the limits per sender; if so, it counts, and `_wanted` tokens are
-- reserved for it. Reservations count as used, so sessions at the same time exceed a limit by one of them at most. A
-- limit of 0 is none.
-- reached: the limit that forbids it, or null; wait_s: seconds until it may be tried again, null: unknown. A message that
-- is in no inbox has no flow, and no limit.
create or replace function reserve_for_sender(_request_id uuid, _reservation_id uuid, _day date, _wanted bigint, _lifetime interval,
                                              _per_minute integer, _tokens bigint, _newcomer_tokens bigint)
returns table (flow bigint, reached text, wait_s float8)
language plpgsql as $$
#variable_conflict use_column
declare
    _flow bigint := flow_of(_request_id);
    _own model_flow;
    _each interval := interval '1 minute' / nullif(_per_minute, 0);
    _now timestamptz := clock_timestamp();
    _even timestamptz;
    _own_used bigint;
    _newcomers_used bigint;
    _reached text;
begin
    if _flow is null then
        return query select null::bigint, null, null::float8;
        return;
    end if;
    insert into model_flow (flow, day, newcomer)
        select _flow, _day, is_newcomer(_flow, _day)
        on conflict do nothing;
    select * into _own from model_flow f where f.flow = _flow and f.day = _day for no key update;
    select _own.tokens + coalesce(sum(r.tokens), 0) into _own_used
        from model_reservation r where r.flow = _flow and r.day = _day and r.until > _now;
    if _own.newcomer and _newcomer_tokens > 0 then
        insert into model_day (day) values (_day) on conflict do nothing;
        select d.newcomer_tokens into _newcomers_used from model_day d where d.day = _day for no key update;
        _newcomers_used := _newcomers_used + (
            select coalesce(sum(r.tokens), 0) from model_reservation r where r.newcomer and r.day = _day and r.until > _now
        );
    end if;
    _even := greatest(_own.even_until, _now) + _each;
    _reached := case
        when _tokens > 0 and _own_used >= _tokens then 'sender_tokens_per_day'
        when _newcomers_used >= _newcomer_tokens then 'newcomer_tokens_per_day'
        when _even - _now > interval '1 minute' + _each / 2 then 'sender_per_minute'
    end;
    if _reached is null then
        update model_flow f set even_until = coalesce(_even, f.even_until) where f.flow = _flow and f.day = _day;
        insert into model_reservation (reservation_id, day, flow, newcomer, tokens, until)
            values (_reservation_id, _day, _flow, _own.newcomer, _wanted, _now + _lifetime);
    else
        insert into model_day (day, senders_refused) values (_day, 1)
            on conflict (day) do update set senders_refused = model_day.senders_refused + 1;
    end if;
    return query
        select _flow, _reached,
               case when _reached = 'sender_per_minute' then extract(epoch from _even - _now - interval '1 minute')::float8 end;
end $$;

-- Books what a model has used for a sender, and frees what was reserved. Rows are locked in the order of the function above.
create or replace function settle_for_sender(_flow bigint, _reservation_id uuid, _day date, _tokens bigint) returns void
language plpgsql as $$
begin
    update model_flow f set tokens = f.tokens + _tokens where f.flow = _flow and f.day = _day;
    insert into model_day as d (day, newcomer_tokens)
        select _day, _tokens from model_flow f where f.flow = _flow and f.day = _day and f.newcomer
        on conflict (day) do update set newcomer_tokens = d.newcomer_tokens + excluded.newcomer_tokens;
    delete from model_reservation r where r.reservation_id = _reservation_id;
end $$;

-- Takes one of `_most` slots to ask a model for `_ttl`, unless its provider has refused the key of this process, or asked
-- another process for a pause. If all are taken, or others stand before it, it waits in line; its place is kept for two seconds
-- after each time it asks. `_fresh`: the process has just started, so that the key is tried again.
-- Slots and places of dead processes come back when they expire.
-- paused_s: seconds of the pause, 0 if there is none; refused: why the key was refused, or null. context: the tokens that the
-- model can read, as the refusals of another process have shown, for the next context_s seconds.
create or replace function take_slot_of_model(_model text, _slot text, _most integer, _rank smallint, _lease_id uuid, _process uuid,
                                              _ttl interval, _key_hash text, _fresh boolean)
returns table (taken boolean, paused_s float8, refused text, context integer, context_s float8)
language plpgsql as $$
#variable_conflict use_column
declare
    _paused interval;
    _refused text;
    _since timestamptz;
    _taken boolean;
    _context integer;
    _context_s float8;
begin
    perform set_config('synchronous_commit', 'off', true);  -- a slot that a crash of the database frees costs nothing
    perform pg_advisory_xact_lock(hashtextextended(_slot, 1969647215));
    if _fresh then
        delete from model_refused_key k where k.model = _model and k.key_hash = _key_hash;
    end if;
    select k.why into _refused from model_refused_key k where k.model = _model and k.key_hash = _key_hash;
    select max(c.until) - clock_timestamp() into _paused
        from model_cooldown c where c.model = _model and c.process <> _process and c.for_all
            and c.until > clock_timestamp();
    if _refused is not null or _paused is not null then
        return query select false, coalesce(extract(epoch from _paused), 0)::float8, _refused, null::integer, 0::float8;
        return;
    end if;
    delete from model_lease l where l.slot = _slot and l.until < clock_timestamp();
    select coalesce(min(l.since), clock_timestamp()) into _since from model_lease l where l.lease_id = _lease_id;
    select count(*) < _most into _taken from model_lease l
        where l.slot = _slot and (l.holds or (l.rank, l.since, l.lease_id) < (_rank, _since, _lease_id));
    insert into model_lease (lease_id, slot, rank, since, holds, until)
        values (_lease_id, _slot, _rank, _since, _taken,
                clock_timestamp() + case when _taken then _ttl else interval '2 seconds' end)
        on conflict (lease_id) do update set holds = excluded.holds, until = excluded.until;
    select c.context, extract(epoch from c.context_until - clock_timestamp())::float8 into _context, _context_s
        from model_cooldown c where c.model = _model and c.process <> _process and c.context_until > clock_timestamp()
        order by c.context_until desc limit 1;
    return query select _taken, 0::float8, null::text, _context, coalesce(_context_s, 0)::float8;
end $$;
