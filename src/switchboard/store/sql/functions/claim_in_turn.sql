-- Flows with lanes that can be claimed, in the order in which they are to be served: round the endpoints, from the one after
-- that of the last flow of _served, and each time an endpoint comes, its next sender, from the one after that served last.
-- What is not in _served begins anywhere. It is read only as far as the caller asks, so the order is that of the recursion:
-- an "order by" would read all of it. top: the highest flow of its endpoint; round 1: it has begun anew at the lowest.
create or replace function flows_in_turn(_pool text, _tier smallint, _served bigint[]) returns table (flow bigint)
language sql volatile rows 20 as $$
    with recursive start as materialized (
        select coalesce(_served[cardinality(_served)], (random() * 4294967295)::bigint << 32) | 4294967295 as top
    ), endpoint (top, round) as (
        select s.top, -1 from start s
        union all
        select coalesce(a.flow, b.flow) | 4294967295, case when a.flow is null then 1 else greatest(e.round, 0) end
        from endpoint e cross join start s
        cross join lateral (
            select min(l.flow) as flow from lane l
            where l.state = 'ready' and not l.delayed and l.pool = _pool and l.tier = _tier
              and l.flow > e.top and l.flow <= case when e.round < 1 then 9223372036854775807 else s.top end
        ) a
        cross join lateral (
            select min(l.flow) as flow from lane l
            where a.flow is null and e.round < 1
              and l.state = 'ready' and not l.delayed and l.pool = _pool and l.tier = _tier and l.flow <= s.top
        ) b
        where coalesce(a.flow, b.flow) is not null
    ), sender (flow, top, start, round) as (
        select coalesce(a.flow, b.flow), e.top, c.flow, case when a.flow is null then 1 else 0 end
        from endpoint e
        cross join lateral (
            select coalesce((select v.flow from unnest(_served) as v (flow) where v.flow | 4294967295 = e.top limit 1),
                            e.top - (random() * 4294967295)::bigint) as flow
        ) c
        cross join lateral (
            select min(l.flow) as flow from lane l
            where l.state = 'ready' and not l.delayed and l.pool = _pool and l.tier = _tier and l.flow > c.flow and l.flow <= e.top
        ) a
        cross join lateral (
            select min(l.flow) as flow from lane l
            where a.flow is null
              and l.state = 'ready' and not l.delayed and l.pool = _pool and l.tier = _tier
              and l.flow >= e.top & -4294967296 and l.flow <= c.flow
        ) b
        where e.round >= 0 and coalesce(a.flow, b.flow) is not null
        union all
        select coalesce(a.flow, b.flow), f.top, f.start, case when a.flow is null then 1 else f.round end
        from sender f
        cross join lateral (
            select min(l.flow) as flow from lane l
            where l.state = 'ready' and not l.delayed and l.pool = _pool and l.tier = _tier
              and l.flow > f.flow and l.flow <= case when f.round = 0 then f.top else f.start end
        ) a
        cross join lateral (
            select min(l.flow) as flow from lane l
            where a.flow is null and f.round = 0
              and l.state = 'ready' and not l.delayed and l.pool = _pool and l.tier = _tier
              and l.flow >= f.top & -4294967296 and l.flow <= f.start
        ) b
        where coalesce(a.flow, b.flow) is not null
    )
    select f.flow from sender f;
$$;

-- Claim: up to the given number of lanes of these kinds, for each pool and tier, in the order of their flows: of each its
-- oldest lane, and only if places are left, more of each. served_*: what the caller has claimed before, per pool and tier the
-- last flow of each endpoint, the most recent last.
create or replace function claim_in_turn(
    _owner bigint, _lease interval, _kinds text[], _pool text[], _tier smallint[], _places integer[],
    served_pool text[], served_tier smallint[], served_flow bigint[]
) returns table (key uuid, kind text, tier smallint, seq bigint, epoch bigint, attempts integer, flow bigint)
language plpgsql rows 20 as $$
#variable_conflict use_column
declare
    _one record;
    _left integer;
    _each integer;
    _count integer;
begin
    -- a worker that was declared dead while it was stopped must not go on under its old name
    if _owner is not null and not exists (select from process w where w.process_id = _owner) then
        return;
    end if;
    update lane l set delayed = false
        where l.key = any (array(
            select d.key from lane d
            where d.state = 'ready' and d.delayed and d.pool = any (_pool) and d.ready_at <= statement_timestamp()
            order by d.ready_at limit 500 for no key update skip locked
        ));
    for _one in
        select q.pool, q.tier, q.places, array(
            select s.flow from unnest(served_pool, served_tier, served_flow) with ordinality as s (pool, tier, flow, n)
            where s.pool = q.pool and s.tier = q.tier order by s.n
        ) as served
        from unnest(_pool, _tier, _places) as q (pool, tier, places)
    loop
        _left := _one.places;
        _each := 1;
        while _left > 0 loop
            return query
                with picked as materialized (
                    select p.key, row_number() over () as n
                    from (
                        select p.key from flows_in_turn(_one.pool, _one.tier, _one.served) f
                        cross join lateral (
                            select l.key from lane l
                            where l.state = 'ready' and not l.delayed and l.pool = _one.pool and l.tier = _one.tier
                              and l.flow = f.flow and l.kind = any (_kinds)
                            order by l.ready_at limit _each for no key update skip locked
                        ) p
                        limit _left
                    ) p
                ), claimed as (
                    update lane l set state = 'running', owner = _owner, lease_until = clock_timestamp() + _lease,
                                      epoch = l.epoch + 1, attempts = l.attempts + 1
                        from picked where l.key = picked.key
                        returning l.key, l.kind, l.tier, l.next_seq, l.epoch, l.attempts, l.flow, picked.n
                )
                select c.key, c.kind, c.tier, c.next_seq, c.epoch, c.attempts, c.flow from claimed c order by c.n;
            get diagnostics _count = row_count;
            exit when _count = 0;
            _left := _left - _count;
            _each := ceil(_left::numeric * _each / _count);
        end loop;
    end loop;
end $$;

-- Fail, to be tried again: the lane waits, so that nothing overtakes. False means fenced.
create or replace function retry_turn(
    _owner bigint, _lane uuid, _epoch bigint, _seq bigint, _outcome text, _error_class text, _error text, _engine text,
    _started_at timestamptz, _delay interval
) returns boolean
language plpgsql as $$
begin
    update lane l set state = 'ready', owner = null, ready_at = clock_timestamp() + _delay, delayed = _delay > interval '0'
        where l.key = _lane and l.owner = _owner and l.epoch = _epoch and l.state = 'running' and l.next_seq = _seq;
    if not found then
        return false;
    end if;
    insert into attempt (request_id, lane, seq, epoch, outcome, error_class, error, engine, worker, started_at, finished_at)
        values (request_of(_lane, _seq), _lane, _seq, _epoch, _outcome, _error_class, _error, _engine, _owner, _started_at, clock_timestamp());
    perform choose_next(_lane) from lane l where l.key = _lane and l.parked > 0;
    return true;
end $$;
