-- Claim: up to the given number of lanes of these kinds, for each pool and tier.
-- statement_timestamp, not clock_timestamp: only a clock that stands still can be looked up in an index.
create or replace function claim_lanes(
    _owner bigint, _lease interval, _kinds text[], _pool text[], _tier smallint[], _places integer[]
) returns table (key uuid, kind text, tier smallint, seq bigint, epoch bigint, attempts integer)
language sql rows 20 as $$
    with picked as (
        select p.key
        from unnest(_pool, _tier, _places) as q (pool, tier, places)
        cross join lateral (
            select l.key from lane l
            where l.state = 'ready' and l.pool = q.pool and l.tier = q.tier and l.ready_at <= statement_timestamp()
              and l.kind = any (_kinds)
            order by l.ready_at limit q.places for no key update skip locked
        ) p
        -- a worker that was declared dead while it was stopped must not go on under its old name
        where _owner is null or exists (select from process w where w.process_id = _owner)
    )
    update lane l set state = 'running', owner = _owner, lease_until = clock_timestamp() + _lease, epoch = l.epoch + 1,
                      attempts = l.attempts + 1
        from picked where l.key = picked.key
        returning l.key, l.kind, l.tier, l.next_seq, l.epoch, l.attempts;
$$;

-- Fail, to be tried again: the lane waits, so that nothing overtakes. False means fenced.
create or replace function retry_turn(
    _owner bigint, _lane uuid, _epoch bigint, _seq bigint, _outcome text, _error_class text, _error text, _engine text,
    _started_at timestamptz, _delay interval
) returns boolean
language plpgsql as $$
begin
    update lane l set state = 'ready', owner = null, ready_at = clock_timestamp() + _delay
        where l.key = _lane and l.owner = _owner and l.epoch = _epoch and l.state = 'running' and l.next_seq = _seq;
    if not found then
        return false;
    end if;
    insert into attempt (request_id, lane, seq, epoch, outcome, error_class, error, engine, worker, started_at, finished_at)
        values (request_of(_lane, _seq), _lane, _seq, _epoch, _outcome, _error_class, _error, _engine, _owner, _started_at, clock_timestamp());
    perform choose_next(_lane) from lane l where l.key = _lane and l.parked > 0;
    return true;
end $$;
