-- No commit here is waited for: what a message has cost is on disk as soon as the step that says so is, which commits later.

-- Reserves tokens and micro-dollars in the spending of a day, or says which cap they would exceed: one of the day, or
-- `_sender_cap`, the tokens of turns of the sender of `_request_id`. A cap of null is none. What is reserved counts as used.
-- flow: the sender from whose share it was reserved; null: from nobody's, as where the message is in no inbox.
-- scope: 'day' or 'sender' and unit: 'tokens' or 'micros' of the cap, null: it is reserved. used: with `held`, the part that
-- is only reserved.
create or replace function reserve_spending(_reservation_id uuid, _day date, _tokens bigint, _micros bigint, _lifetime interval,
                                            _day_tokens bigint, _day_micros bigint, _request_id uuid, _sender_cap bigint)
returns table (flow bigint, scope text, unit text, cap bigint, used bigint, held bigint)
language plpgsql as $$
#variable_conflict use_column
declare
    _flow bigint := case when _sender_cap is not null then flow_of(_request_id) end;
    _spent model_day;
    _held record;
    _own bigint;
    _refused record;
begin
    perform set_config('synchronous_commit', 'off', true);
    insert into model_day (day) values (_day) on conflict do nothing;
    select * into _spent from model_day d where d.day = _day for no key update;
    delete from model_reservation r where r.until < clock_timestamp();
    select coalesce(sum(r.tokens), 0)::bigint as tokens, coalesce(sum(r.micros), 0)::bigint as micros,
           coalesce(sum(r.tokens) filter (where r.turn_flow = _flow), 0)::bigint as own
        into _held from model_reservation r where r.day = _day and r.flow is null;
    select f.turn_tokens into _own from model_flow f where f.flow = _flow and f.day = _day;
    select c.* into _refused from (values
        (1, 'day', 'tokens', _day_tokens, _spent.tokens + _held.tokens, _held.tokens, _tokens),
        (2, 'day', 'micros', _day_micros, _spent.micros + _held.micros, _held.micros, _micros),
        (3, 'sender', 'tokens', _sender_cap, coalesce(_own, 0) + _held.own, _held.own, _tokens)
    ) as c (n, scope, unit, cap, used, held, wanted)
        where c.used + c.wanted > c.cap and (c.scope = 'day' or _flow is not null) order by c.n limit 1;
    if _refused is null then
        insert into model_reservation (reservation_id, day, turn_flow, tokens, micros, until)
            values (_reservation_id, _day, _flow, _tokens, _micros, clock_timestamp() + _lifetime);
    else
        update model_day d set refused = d.refused + (_refused.scope = 'day')::integer,
                               senders_refused = d.senders_refused + (_refused.scope = 'sender')::integer
            where d.day = _day;
    end if;
    return query select _flow, _refused.scope, _refused.unit, _refused.cap, _refused.used, _refused.held;
end $$;

-- Books what a request has used on the day when it was reserved, and frees the reservation. `_asker` null: no model was asked.
-- Rows are locked in the order of `reserve_for_sender`.
create or replace function settle_spending(_reservation_id uuid, _day date, _flow bigint, _micros bigint, _asker text, _butler text,
                                           _model text, _failed boolean, _in bigint, _out bigint, _read bigint, _written bigint)
returns void
language plpgsql as $$
begin
    perform set_config('synchronous_commit', 'off', true);
    insert into model_flow as f (flow, day, newcomer, turn_tokens)
        select _flow, _day, is_newcomer(_flow, _day), _in + _out where _flow is not null and _in + _out > 0
        on conflict (flow, day) do update set turn_tokens = f.turn_tokens + excluded.turn_tokens;
    insert into model_day as d (day, tokens, micros) values (_day, _in + _out, _micros)
        on conflict (day) do update set tokens = d.tokens + excluded.tokens, micros = d.micros + excluded.micros;
    delete from model_reservation r where r.reservation_id = _reservation_id;
    insert into model_usage as u (day, asker, butler, model, attempts, failed, tokens_in, tokens_out, cache_read, cache_write, cost)
        select _day, _asker, _butler, _model, 1, _failed::integer, _in, _out, _read, _written, _micros where _asker is not null
        on conflict (day, asker, butler, model) do update set
            attempts = u.attempts + 1, failed = u.failed + excluded.failed, tokens_in = u.tokens_in + excluded.tokens_in,
            tokens_out = u.tokens_out + excluded.tokens_out, cache_read = u.cache_read + excluded.cache_read,
            cache_write = u.cache_write + excluded.cache_write, cost = u.cost + excluded.cost;
end $$;
