-- Lanes of tier 4 are those in which all that waits came late. How many of them run in a pool, of the endpoint of this flow.
create or replace function late_running(_pool text, _flow bigint) returns bigint
language sql stable as $$
    select count(*) from lane l
    where l.state = 'running' and l.tier = 4 and l.pool = _pool
      and l.flow > (_flow | 4294967295) - 4294967296 and l.flow <= (_flow | 4294967295);
$$;

-- How many run, or could, of an endpoint.
create or replace function catching_up(_channel text, _endpoint text) returns bigint
language sql stable as $$
    select sum(late_running(p.pool, f.flow) + (
               select count(*) from lane l
               where l.state = 'ready' and not l.delayed and l.pool = p.pool and l.tier = 4
                 and l.flow > (f.flow | 4294967295) - 4294967296 and l.flow <= (f.flow | 4294967295)
           ))::bigint
    from (values ('work'), ('route')) p (pool) cross join (select flow_key(flow_seed(), _channel, _endpoint, '') as flow) f;
$$;

-- Claim late lanes: up to _most of an endpoint run at once in a pool, of all workers together. In turn: round the endpoints, one lane of each, and of each endpoint its senders, from those after _served.
-- Two that claim at once never count at once: the second passes over the endpoint of the first, and comes again. The lock
-- ends after the commit, and each statement sees what was committed before it, so the count is right. It uses the plans of its
-- caller.
create or replace function claim_late(
    _owner bigint, _lease interval, _kinds text[], _pool text, _places integer, _most integer, _served bigint[], _anywhere bigint
) returns table (key uuid, kind text, tier smallint, seq bigint, epoch bigint, attempts integer, flow bigint)
language plpgsql rows 4 as $$
#variable_conflict use_column
declare
    _top bigint := coalesce(_served[cardinality(_served)], _anywhere << 31) | 4294967295;
    _found boolean := true;
    _first bigint;
    _after bigint;
    _picked record;
begin
    while _places > 0 loop
        select min(l.flow) into _first from lane l
            where l.state = 'ready' and not l.delayed and l.pool = _pool and l.tier = 4 and l.flow > _top;
        if _first is null then
            exit when not _found;
            _found := false;
            _top := -1;
            continue;
        end if;
        _top := _first | 4294967295;
        continue when not pg_try_advisory_xact_lock(x'5358'::integer, (_first >> 32)::integer);
        continue when late_running(_pool, _first) >= _most;
        _after := coalesce(
            (select s.flow from unnest(_served) with ordinality as s (flow, n) where s.flow | 4294967295 = _top order by s.n desc limit 1),
            _top - _anywhere
        );
        select l.key, l.flow into _picked from lane l
            where l.state = 'ready' and not l.delayed and l.pool = _pool and l.tier = 4 and l.flow > _after and l.flow <= _top
              and l.kind = any (_kinds)
            order by l.flow, l.ready_at limit 1 for no key update skip locked;
        if not found then
            select l.key, l.flow into _picked from lane l
                where l.state = 'ready' and not l.delayed and l.pool = _pool and l.tier = 4
                  and l.flow > _top - 4294967296 and l.flow <= _after and l.kind = any (_kinds)
                order by l.flow, l.ready_at limit 1 for no key update skip locked;
            continue when not found;
        end if;
        return query select * from start_lanes(_owner, _lease, array[_picked.key]);
        _served := _served || _picked.flow;
        _found := true;
        _places := _places - 1;
    end loop;
end $$;
