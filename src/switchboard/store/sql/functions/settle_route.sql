-- Route: the decision about a message that waited, its deliveries and dead letters, and the step to the next one of its
-- conversation; or nothing at all (fenced). d_*, x_* as in accept_messages; *_text: the part of each butler or team.
create or replace function settle_route(
    _owner bigint, _lane uuid, _epoch bigint, _seq bigint, _hand_on boolean, _started_at timestamptz,
    _version bigint, _trail text, _tier smallint,
    d_system text[], d_team text[], d_text text[],
    x_id uuid[], x_team text[], x_category text[], x_reason text[], x_handler text[], x_text text[], _parts text
) returns table (ok boolean, next_seq bigint)
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$  -- see settle_turns
#variable_conflict use_column
declare
    _conversation uuid := (select l.conversation from lane l where l.key = _lane);
    _flow bigint;
    _turn uuid[] := array(select lane_key('turn', d.system_id, _conversation)
                          from unnest(d_system) with ordinality as d (system_id, ord) order by d.ord);
    _request_id uuid;
    _facts json;
    _now timestamptz;
begin
    perform lock_branches('route', _conversation, d_system, x_handler);

    select r.request_id, r.facts, l.flow into _request_id, _facts, _flow
        from lane l join routing r on r.lane = l.key and r.seq = _seq
        where l.key = _lane and l.owner = _owner and l.epoch = _epoch and l.state = 'running' and l.next_seq = _seq;
    if not found then
        return query select false, null::bigint;
        return;
    end if;
    _now := clock_timestamp();

    insert into decision (request_id, n, version, branches, trail, decided_at, facts, parts)
        values (_request_id, 1, _version, cardinality(d_system) + cardinality(x_id), _trail::json, _now, _facts,
                _parts::jsonb);
    insert into delivery (lane, seq, request_id, system_id, team_id, segment, created_at, text)
        select d.lane, d.seq, _request_id, d.system_id, d.team_id,
               case when d.part is null then 0 else row_number() over (partition by d.part is null order by d.ord) end,
               _now, d.part
        from unnest(_turn,
                    enqueue_items(_turn, array_fill(_flow, array[cardinality(_turn)]), array_fill(_tier, array[cardinality(_turn)])),
                    d_system, d_team, d_text) with ordinality as d (lane, seq, system_id, team_id, part, ord);
    if cardinality(x_id) > 0 then
        perform write_dead_letters(array_agg(
            (x.id, _request_id, _conversation, x.team, x.category, x.reason, x.handler, null, null, null, x.part, 1)
            ::new_dead_letter))
        from unnest(x_id, x_team, x_category, x_reason, x_handler, x_text) as x (id, team, category, reason, handler, part);
    end if;

    update routing r set state = 'routed', settled_at = _now where r.lane = _lane and r.seq = _seq;
    insert into attempt (request_id, lane, seq, epoch, outcome, worker, started_at, finished_at)
        values (_request_id, _lane, _seq, _epoch, 'routed', _owner, _started_at, _now);
    return query
        select true, (select m.next_seq from advance_lanes(array[_lane], array[_seq], array[_hand_on], array[false]) m);
end $$;
