-- Flows with lanes that can be claimed, in the order in which they are to be served: round the endpoints, from the one after
-- that of the last flow of _served, as many as there are places; of each as many senders as is its share of the places, from
-- the one after that served last; then further ones. What is not in _served begins at _anywhere, a number of 32 bits.
-- It is read only as far as the caller asks, so the order is that of the recursion: an "order by" would read all of it.
-- top: the highest flow of an endpoint; round 1: it has begun again at the lowest. Flows are looked up some at a time, for a
-- look-up reads what is beside it in the index anyway; what one flow has of it beyond that is skipped.
create or replace function flows_in_turn(_pool text, _tier smallint, _places integer, _served bigint[], _anywhere bigint)
returns table (flow bigint)
language sql stable rows 20 as $$
    with recursive start as materialized (
        select coalesce(_served[cardinality(_served)], _anywhere << 31) | 4294967295 as top
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
    ), share as materialized (
        select e.top, e.top - 4294967296 as bottom, ceil(_places::float8 / count(*) over ())::integer as size, coalesce(
                   (select v.flow from unnest(_served) with ordinality as v (flow, n) where v.flow | 4294967295 = e.top order by v.n desc limit 1),
                   e.top - _anywhere
               ) as start
        from (select e.top from endpoint e where e.round >= 0 limit _places) e
    ), sender (flows, found, last, until, round, top, bottom, size, start) as (
        select n.flows, n.found, n.last, h.top, 0, h.*
        from share h cross join lateral (
            select array_agg(distinct l.flow order by l.flow) as flows, count(*) as found, max(l.flow) as last
            from (
                select l.flow from lane l
                where l.state = 'ready' and not l.delayed and l.pool = _pool and l.tier = _tier and l.flow > h.start and l.flow <= h.top
                order by l.flow limit h.size
            ) l
        ) n
        union all
        select n.flows, n.found, n.last, g.until, g.round, s.top, s.bottom, s.size, s.start
        from sender s
        cross join lateral (
            select case when s.found = s.size then s.last else s.bottom end as after,
                   case when s.found = s.size then s.until else s.start end as until,
                   case when s.found = s.size then s.round else 1 end as round
        ) g
        cross join lateral (
            select array_agg(distinct l.flow order by l.flow) as flows, count(*) as found, max(l.flow) as last
            from (
                select l.flow from lane l
                where l.state = 'ready' and not l.delayed and l.pool = _pool and l.tier = _tier
                  and l.flow > g.after and l.flow <= g.until
                order by l.flow limit s.size
            ) l
        ) n
        where s.found = s.size or s.round = 0
    )
    select f.flow from sender s cross join lateral unnest(s.flows) as f (flow);
$$;

-- Claimed lanes run, from now on; in the order given. It uses the plans of its caller.
create or replace function start_lanes(_owner bigint, _lease interval, _lane uuid[])
returns table (key uuid, kind text, tier smallint, seq bigint, epoch bigint, attempts integer, flow bigint)
language plpgsql as $$
#variable_conflict use_column
begin
    return query
        with started as (
            update lane l set state = 'running', owner = _owner, lease_until = clock_timestamp() + _lease,
                              epoch = l.epoch + 1, attempts = l.attempts + 1
                where l.key = any (_lane)
                returning l.key, l.kind, l.tier, l.next_seq, l.epoch, l.attempts, l.flow
        )
        select s.key, s.kind, s.tier, s.next_seq, s.epoch, s.attempts, s.flow from started s
        order by array_position(_lane, s.key);
end $$;

-- Claim lanes of one pool and tier, in the order of their flows: of each its oldest lane, and only if places are left, more of
-- each. _few: there is a place for all, so that it is nobody's turn.
create or replace function claim_tier(
    _owner bigint, _lease interval, _kinds text[], _pool text, _tier smallint, _places bigint, _few boolean, _served bigint[],
    _anywhere bigint, _catch_up integer
) returns table (key uuid, kind text, tier smallint, seq bigint, epoch bigint, attempts integer, flow bigint)
language plpgsql rows 8 as $$
#variable_conflict use_column
declare
    _picked uuid[];
    _each integer := 1;
begin
    if _tier = 4 then
        return query select * from claim_late(_owner, _lease, _kinds, _pool, _places::integer, _catch_up, _served, _anywhere);
        return;
    end if;
    while _places > 0 loop
        if _few then
            _picked := array(
                select l.key from lane l
                where l.state = 'ready' and not l.delayed and l.pool = _pool and l.tier = _tier and l.kind = any (_kinds)
                order by l.flow, l.ready_at limit _places for no key update skip locked
            );
        else
            _picked := array(
                select p.key from flows_in_turn(_pool, _tier, _places::integer, _served, _anywhere) f
                cross join lateral (
                    select l.key from lane l
                    where l.state = 'ready' and not l.delayed and l.pool = _pool and l.tier = _tier
                      and l.flow = f.flow and l.kind = any (_kinds)
                    order by l.ready_at limit _each for no key update skip locked
                ) p
                limit _places
            );
        end if;
        exit when cardinality(_picked) = 0;
        return query select * from start_lanes(_owner, _lease, _picked);
        exit when _few;
        _places := _places - cardinality(_picked);
        _each := ceil(_places::float8 * _each / cardinality(_picked));
    end loop;
end $$;

-- Claim: up to the given number of lanes of these kinds, for each pool and tier. The places that a tier leaves over go to the
-- others of its pool, in the order given. served_*: what the caller has claimed before, per pool and tier the last flow of each
-- endpoint, the most recent last. _catch_up: see claim_late. A lane with a keeper is passed over by all others for a moment,
-- unless the keeper has died; it is not preferred to other lanes. To plan the statements costs more than to execute them, and
-- always ends with the same plan.
create or replace function claim_in_turn(
    _owner bigint, _lease interval, _kinds text[], _pool text[], _tier smallint[], _places integer[],
    served_pool text[], served_tier smallint[], served_flow bigint[], _catch_up integer default 4
) returns table (key uuid, kind text, tier smallint, seq bigint, epoch bigint, attempts integer, flow bigint)
language plpgsql rows 20 set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    _anywhere bigint := random() * 4294967295;
    _one record;
    _alive boolean;
    _due boolean;
    _least bigint;
    _waiting bigint;
    _late boolean;
    _left bigint;
    _claimed uuid[] := '{}';
    _got integer[] := array_fill(0, array[cardinality(_places)]);
    _kept uuid[];
    -- With the half second after which workers look again, nobody waits for a keeper for more than two.
    _offered timestamptz := statement_timestamp() - interval '1.5 s';
begin
    select _owner is null or exists (select from process w where w.process_id = _owner),
           exists (select from lane d where d.state = 'ready' and d.delayed and d.pool = any (_pool) and d.ready_at <= statement_timestamp()),
           q.least, count(r.tier), coalesce(bool_or(r.tier = 4), false)
        into _alive, _due, _least, _waiting, _late
        from (
            select min(p.places) as least
            from (select sum(p.places) as places from unnest(_pool, _places) as p (pool, places) group by p.pool) p
        ) q
        left join lateral (
            select l.tier from lane l where l.state = 'ready' and not l.delayed and l.pool = any (_pool) limit q.least + 1
        ) r on true
        group by q.least;
    -- a worker that was declared dead while it was stopped must not go on under its old name
    if not _alive or not _due and _waiting = 0 then
        return;
    end if;
    if not _due and not _late and _waiting <= _least then
        -- There is a place for each. What has come since may be late, and is left: a notification follows.
        return query
            select * from start_lanes(_owner, _lease, array(
                select l.key from lane l
                where l.state = 'ready' and not l.delayed and l.pool = any (_pool) and l.tier = any (_tier) and l.tier <> 4
                  and l.kind = any (_kinds)
                order by l.tier, l.flow, l.ready_at limit _least for no key update skip locked
            ));
        return;
    end if;
    if _due then
        with due as (
            update lane l set delayed = false
                where l.key = any (array(
                    select d.key from lane d
                    where d.state = 'ready' and d.delayed and d.pool = any (_pool) and d.ready_at <= statement_timestamp()
                      and (not is_kept(d.kept_until) or d.keeper = _owner or d.ready_at <= _offered
                           or not exists (select from process w where w.process_id = d.keeper))
                    order by d.ready_at limit 500 for no key update skip locked
                ))
                returning l.key, l.keeper, l.ready_at, l.kept_until
        )
        select array_agg(d.key) into _kept from due d where d.keeper = _owner and d.ready_at > _offered and is_kept(d.kept_until);
    end if;
    for _round in 1..2 loop  -- first each tier gets its own places, then those that are left
        for _one in
            select q.n, q.pool, q.tier, q.places, _round = 1 and w.lanes <= q.places as few, array(
                select s.flow from unnest(served_pool, served_tier, served_flow) with ordinality as s (pool, tier, flow, n)
                where s.pool = q.pool and s.tier = q.tier order by s.n
            ) || array(
                select l.flow from lane l
                where l.key = any (_claimed) and l.pool = q.pool and l.tier = q.tier order by array_position(_claimed, l.key)
            ) as served
            from unnest(_pool, _tier, _places) with ordinality as q (pool, tier, places, n)
            cross join lateral (
                select count(*) as lanes from (
                    select from lane l
                    where l.state = 'ready' and not l.delayed and l.pool = q.pool and l.tier = q.tier
                    limit case when q.tier = 4 then 1 else q.places + 1 end
                ) l
            ) w
            where w.lanes > 0 order by q.n
        loop
            _left := _one.places;
            if _round = 2 then
                continue when _got[_one.n] < _one.places;  -- more waits there than may run, or it is locked
                _left := (select sum(q.places - q.got) from unnest(_pool, _places, _got) as q (pool, places, got) where q.pool = _one.pool);
            end if;
            for key, kind, tier, seq, epoch, attempts, flow in
                select * from claim_tier(_owner, _lease, _kinds, _one.pool, _one.tier, _left, _one.few, _one.served, _anywhere, _catch_up)
            loop
                _claimed := _claimed || key;
                _got[_one.n] := _got[_one.n] + 1;
                return next;
            end loop;
        end loop;
        exit when cardinality(_claimed) >= (select sum(q.places) from unnest(_places) as q (places));
    end loop;
    if _kept is not null then  -- it was not their turn, and they are still offered to us
        update lane l set delayed = true where l.key = any (_kept) and l.state = 'ready';
    end if;
end $$;

-- Fail, to be tried again: the lane waits, so that nothing overtakes, unless the item is to end. False means fenced.
create or replace function try_again(
    _owner bigint, _lane uuid, _epoch bigint, _seq bigint, _outcome text, _error_class text, _error text, _engine text,
    _started_at timestamptz, _delay interval, _attempts integer
) returns boolean
language plpgsql as $$
begin
    if is_stopped(_lane, _seq) then
        _delay := interval '0';
    end if;
    update lane l set state = 'ready', owner = null, ready_at = clock_timestamp() + _delay,
                      delayed = _delay > interval '0' or is_kept(l.kept_until), attempts = _attempts
        where l.key = _lane and l.owner = _owner and l.epoch = _epoch and l.state = 'running' and l.next_seq = _seq;
    if not found then
        return false;
    end if;
    insert into attempt (request_id, lane, seq, epoch, outcome, error_class, error, engine, worker, started_at, finished_at)
        values (request_of(_lane, _seq), _lane, _seq, _epoch, _outcome, _error_class, _error, _engine, _owner, _started_at, clock_timestamp());
    perform choose_next(_lane) from lane l where l.key = _lane and l.parked > 0;
    return true;
end $$;
