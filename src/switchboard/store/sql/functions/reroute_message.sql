-- An item ends where it is, without a turn: one that runs is cut off from its worker, one that is parked is passed over, and one
-- that its lane has not come to yet is passed over by the worker that does. The caller holds the lock of its lane.
create or replace function withdraw_item(_request_id uuid, _lane uuid, _seq bigint, _why text) returns void
language plpgsql as $$
declare
    _held lane;
begin
    update delivery d set state = 'cancelled', error_class = 'rerouted', settled_at = clock_timestamp()
        where d.request_id = _request_id and d.lane = _lane and d.seq = _seq;
    select * into _held from lane l where l.key = _lane;
    if _held.next_seq = _seq then
        if _held.state = 'running' then
            insert into stopped (lane, seq) values (_lane, _seq) on conflict do nothing;
            insert into attempt (request_id, lane, seq, epoch, outcome, error_class, error, worker, finished_at)
                values (_request_id, _lane, _seq, _held.epoch, 'cancelled', 'rerouted', _why, _held.owner, clock_timestamp())
                on conflict do nothing;
        end if;
        perform advance_lanes(array[_lane], array[_seq], array[false], array[_held.state = 'paused']);
        return;
    end if;
    delete from parked p where p.lane = _lane and p.seq = _seq;
    if found then
        perform choose_next(_lane, -1);
    end if;
end $$;

-- Whether an item was withdrawn before its lane came to it.
create or replace function was_withdrawn(_lane uuid, _seq bigint) returns boolean
language sql stable as $$
    select exists (select from delivery d where d.lane = _lane and d.seq = _seq and d.state = 'cancelled');
$$;

-- Reroute a message by hand: a further decision, by which others get it, and the end of what it waits for with those who have
-- it now; or nothing at all. _instead_of: only in place of this butler, who may have been given a part; null: of all of them.
-- _again: even if there is an answer already. d_*, x_* as in decide_again.
-- outcome: rerouted; undecided (no decision yet); absent (_instead_of does not have it); answered; taken (all of them have it,
-- or have finished with it). lanes, seqs: what was withdrawn, from systems. No row: there is no such message.
create or replace function reroute_message(
    _request_id uuid, _instead_of text, _again boolean, _by text, _resolution text,
    _version bigint, _trail text, _tier smallint,
    d_system text[], d_team text[],
    x_id uuid[], x_team text[], x_category text[], x_reason text[], x_handler text[]
) returns table (outcome text, n smallint, systems text[], lanes uuid[], seqs bigint[])
language plpgsql as $$
#variable_conflict use_column
declare
    _conversation uuid;
    _held uuid[];
    _text text;
    _n smallint;
    _one record;
begin
    select m.conversation into _conversation from message_inbox m where m.request_id = _request_id;
    if not found then
        return;
    end if;
    select array_agg(distinct d.lane) into _held from delivery d where d.request_id = _request_id and d.state = 'pending';
    -- all lanes at once, as they are locked in one order everywhere
    perform lock_lanes(array_agg(w.key), array_agg(w.kind), array_agg(w.system_id), array_agg(w.conversation), array_agg('work'::text))
        from (
            select l.key, l.kind, l.system_id, l.conversation from lane l where l.key = any (_held)
            union
            select lane_key('turn', d.system_id, _conversation), 'turn', d.system_id, _conversation
                from unnest(d_system) as d (system_id)
            union
            select lane_key('notice', x.handler, _conversation), 'notice', x.handler, _conversation
                from unnest(x_handler) as x (handler) where x.handler is not null
        ) w;
    perform hold_message(_request_id, _conversation, d_system, x_handler);
    if not exists (select from decision d where d.request_id = _request_id and d.n = 1) then
        return query select 'undecided', null::smallint, null::text[], null::uuid[], null::bigint[];
        return;
    end if;
    if _instead_of is not null then
        select d.text into _text from delivery d
            where d.request_id = _request_id and d.system_id = _instead_of order by d.n desc, d.segment limit 1;
        if not found then
            return query select 'absent', null::smallint, null::text[], null::uuid[], null::bigint[];
            return;
        end if;
    end if;
    if not _again and exists (
        select from delivery d
        where d.request_id = _request_id and d.state = 'answered' and (_instead_of is null or d.system_id = _instead_of)
    ) then
        return query select 'answered', null::smallint, null::text[], null::uuid[], null::bigint[];
        return;
    end if;

    _n := decide_again(_request_id, _conversation, _version, _trail, _tier, d_system, d_team,
                       x_id, x_team, x_category, x_reason, x_handler, _text);
    if _n is null then
        return query select 'taken', null::smallint, null::text[], null::uuid[], null::bigint[];
        return;
    end if;
    systems := '{}'; lanes := '{}'; seqs := '{}';
    for _one in
        select d.lane, d.seq, d.system_id from delivery d
        where d.request_id = _request_id and d.state = 'pending' and d.n <> _n and d.lane = any (_held)
          and (_instead_of is null or d.system_id = _instead_of)
          and not (d.system_id = any (d_system) and (d.text is null or d.text = _text))
        order by d.lane, d.seq
    loop
        perform withdraw_item(_request_id, _one.lane, _one.seq, 'rerouted by ' || _by || ': ' || _resolution);
        systems := systems || _one.system_id; lanes := lanes || _one.lane; seqs := seqs || _one.seq;
    end loop;
    update dead_letter x set
        status = 'handled', handled_by_system_id = _by, resolution = _resolution, handled_at = clock_timestamp(),
        rerouted_n = _n
        where x.request_id = _request_id and x.status = 'pending' and x.n <> _n and x.category not like 'reply\_%'
          and (_instead_of is null or x.system_id = _instead_of);
    outcome := 'rerouted'; n := _n;
    return next;
end $$;
