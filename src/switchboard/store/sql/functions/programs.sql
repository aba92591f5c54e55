-- Which program a lane waits for: of those that live the one that asks for the first of the turns that have not ended. Turns
-- of others that lie before it are its as well, for nothing overtakes; those behind the last one are the workers'.
create or replace function next_program(_lane uuid, _after bigint) returns bigint
language plpgsql stable as $$
begin
    return (
        select d.program from delivery d
        where d.lane = _lane and d.seq > _after and d.state = 'pending' and d.program is not null
          and exists (select from process w where w.process_id = d.program)
        order by d.seq limit 1
    );
end $$;

-- Give lanes, which the caller has locked, to the programs that they wait for, or else to the workers. However long a lane has
-- been ready, the program that it comes to is given the time in which a program claims its lane (claim_lane).
create or replace function hand_to_programs(_lanes uuid[]) returns void
language plpgsql as $$
begin
    update lane l set program = n.program, pool = case when n.program is null then 'work' else 'program' end,
                      ready_at = case when l.state = 'ready' and n.program is not null and n.program is distinct from l.program
                                      then greatest(l.ready_at, clock_timestamp()) else l.ready_at end
        from (select g.key, next_program(g.key, g.done_seq) as program from lane g where g.key = any (_lanes)) n
        where l.key = n.key and (l.pool = 'program' or n.program is not null);
end $$;

-- A program asks for the turns of these messages in lanes that the caller has locked: they are its own from then on, unless
-- another program that lives asks for them, or somebody else has begun them. A lane on which a worker is at work stays with
-- that worker until it has ended. _before: the process as which this program has asked until now, if any.
create or replace function ask_for_turns(_program bigint, _request_id uuid[], _lane uuid[], _before bigint) returns void
language plpgsql as $$
begin
    update delivery d set program = _program
        from (
            select t.lane, t.seq, t.request_id
            from delivery t join lane l on l.key = t.lane
            where t.request_id = any (_request_id) and t.lane = any (_lane) and t.state = 'pending'
              and (t.program is null or t.program = _before or not exists (select from process w where w.process_id = t.program))
              and not (l.state = 'running' and l.next_seq = t.seq and l.owner is distinct from t.program and l.owner is distinct from _program)
              and not exists (
                  select from attempt a
                  where a.request_id = t.request_id and a.lane = t.lane and a.seq = t.seq and a.worker is distinct from t.program
              )
        ) t
        where d.request_id = t.request_id and d.lane = t.lane and d.seq = t.seq;
    perform hand_to_programs(_lane);
end $$;

-- A program that has registered again asks for the turns of its calls as before. The lanes are locked in key order.
create or replace function ask_anew(_program bigint, _before bigint, _request_id uuid[]) returns void
language plpgsql as $$
declare
    _lane uuid[] := array(
        select distinct d.lane from delivery d where d.request_id = any (_request_id) and d.state = 'pending' and d.program is not null);
begin
    perform from lane l where l.key = any (_lane) order by l.key for no key update;
    perform ask_for_turns(_program, _request_id, _lane, _before);
end $$;

-- accept_messages for a program that asks for the turns, now or again.
create or replace function accept_for_program(
    _program bigint,
    _name text[], _conversation uuid[], _event uuid[], _content uuid[], _request_id uuid[], _channel text[], _endpoint text[], _sender text[],
    _thread text[], _envelope text[], _media_type text[], _received_at timestamptz[], _tier smallint[],
    _version bigint[], _branches smallint[], _trail text[], _facts text[], _pinned text[], _asks boolean[],
    _size integer[], _at integer[], _raw bytea,
    d_ord integer[], d_lane uuid[], d_system text[], d_team text[],
    x_ord integer[], x_id uuid[], x_team text[], x_category text[], x_reason text[], x_handler text[]
) returns table (ord bigint, request_id uuid, waits boolean, differs boolean)
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$  -- see settle_turns
#variable_conflict use_column
declare
    _ord bigint[];
    _first uuid[];
    _waits boolean[];
    _differs boolean[];
begin
    select array_agg(a.ord), array_agg(a.request_id), array_agg(a.waits), array_agg(a.differs)
        into _ord, _first, _waits, _differs
        from accept_messages(
            _name, _conversation, _event, _content, _request_id, _channel, _endpoint, _sender, _thread, _envelope, _media_type,
            _received_at, _tier, _version, _branches, _trail, _facts, _pinned, _asks, _size, _at, _raw,
            d_ord, d_lane, d_system, d_team, x_ord, x_id, x_team, x_category, x_reason, x_handler) a;
    if _ord is distinct from array[-1::bigint] then
        perform ask_for_turns(
            _program, array(select k.request_id from dedupe k where k.key = any (_event)), array(select distinct unnest(d_lane)), null);
    end if;
    return query
        select a.ord, a.request_id, a.waits, a.differs
        from unnest(_ord, _first, _waits, _differs) as a (ord, request_id, waits, differs)
        where a.ord <> 0;
end $$;
