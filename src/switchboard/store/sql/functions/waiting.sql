-- Register that a step of a running item waits for an event, which the key decides. A second time changes nothing. False
-- means fenced.
create or replace function expect_event(
    _owner bigint, _lane uuid, _epoch bigint, _seq bigint, _request_id uuid, _path text, _key uuid, _within interval
) returns boolean
language sql as $$
    with held as (
        select from lane l
        where l.key = _lane and l.owner = _owner and l.epoch = _epoch and l.state = 'running' and l.next_seq = _seq
        for share
    ), registered as (
        insert into awaited (key, lane, seq, request_id, path, deadline_at)
            select _key, _lane, _seq, _request_id, _path, clock_timestamp() + _within from held on conflict do nothing
    ), written as (
        insert into step (lane, seq, request_id, path, effect, state, idempotency_key, epoch)
            select _lane, _seq, _request_id, _path, 'event', 'started', _key, _epoch from held on conflict do nothing
    )
    select exists (select from held);
$$;

-- Park: the item leaves its lane, the others run meanwhile, and attempts before do not count twice. If one of the events
-- that it knew as undecided (_keys) was decided while it ran, or it is to end, it comes next at once. False means fenced. An item without an
-- event that is open cannot park: nothing could wake it.
create or replace function park_item(_owner bigint, _lane uuid, _epoch bigint, _seq bigint, _keys uuid[]) returns boolean
language plpgsql as $$
declare
    _again boolean;
begin
    perform from lane l
        where l.key = _lane and l.owner = _owner and l.epoch = _epoch and l.state = 'running' and l.next_seq = _seq
        for no key update;
    if not found then
        return false;
    end if;
    _again := is_parked(_lane, _seq);
    if not exists (
        select from awaited a where a.lane = _lane and a.seq = _seq and (a.decided_at is null or a.key = any (_keys))
    ) then
        raise exception 'item % of lane % waits for nothing', _seq, _lane;
    end if;
    insert into parked (lane, seq, attempts, decided_at)
        select _lane, _seq, l.attempts - 1, case when is_stopped(_lane, _seq) or exists (
            select from awaited a where a.key = any (_keys) and a.decided_at is not null
        ) then clock_timestamp() end
        from lane l where l.key = _lane
        on conflict (lane, seq) do update set
            attempts = excluded.attempts, decided_at = excluded.decided_at, due_at = null, since = clock_timestamp();
    insert into attempt (request_id, lane, seq, epoch, outcome, worker, finished_at)
        values (request_of(_lane, _seq), _lane, _seq, _epoch, 'parked', _owner, clock_timestamp());
    perform leave_lane(_lane, _seq, false, case when _again then 0 else 1 end);
    return true;
end $$;

-- Decide an event: the first decision stands, and is the result of the step that waits. No row: nobody ever waited for
-- this key. A result that is null: the item has ended, nothing waits any more.
create or replace function decide_event(_key uuid, _result json) returns table (result json, fresh boolean)
language plpgsql as $$
#variable_conflict use_column
declare
    _event awaited;
begin
    select * into _event from awaited a where a.key = _key;
    if not found then
        return;
    end if;
    perform from lane l where l.key = _event.lane for no key update;
    select * into _event from awaited a where a.key = _key;
    if _event.decided_at is not null then
        return query select _event.result, false;
        return;
    end if;
    if not has_not_ended(_event.lane, _event.seq) then
        _result := null;
    end if;
    update awaited a set decided_at = clock_timestamp(), result = _result where a.key = _key;
    update step s set state = 'done', result = _result, ended_at = clock_timestamp()
        where s.request_id = _event.request_id and s.lane = _event.lane and s.seq = _event.seq and s.path = _event.path
          and _result is not null;
    update parked p set decided_at = clock_timestamp()
        where p.lane = _event.lane and p.seq = _event.seq and p.decided_at is null;
    if found then
        perform choose_next(_event.lane);
    end if;
    return query select _result, true;
end $$;

-- What is due by the database's clock: events that nobody decided in time, and items that were not to run before. Returns
-- how many; the caller comes again.
create or replace function wake_parked() returns bigint
language plpgsql as $$
declare
    _key uuid;
    _lane uuid;
    _now timestamptz;
    _back integer;
    _count bigint := 0;
begin
    for _key in
        select a.key from awaited a
        where a.decided_at is null and a.deadline_at <= statement_timestamp() order by a.lane limit 200
    loop
        perform decide_event(_key, '{"expired": true}');
        _count := _count + 1;
    end loop;
    if _count > 0 then
        return _count;  -- their lanes are locked: others might lie before them
    end if;
    for _lane in
        select distinct p.lane from parked p
        where p.decided_at is null and p.due_at <= statement_timestamp() order by p.lane limit 200
    loop
        perform from lane l where l.key = _lane for no key update;
        _now := clock_timestamp();
        -- what the lane has not come to yet has its place there again: to go first would pass over what lies before it
        delete from parked p using lane l
            where l.key = _lane and p.lane = _lane and p.seq > l.done_seq and p.decided_at is null and p.due_at <= _now;
        get diagnostics _back = row_count;
        update parked p set decided_at = _now
            where p.lane = _lane and p.decided_at is null and p.due_at <= _now;
        perform choose_next(_lane, -_back);
        _count := _count + 1;
    end loop;
    return _count;
end $$;

-- What every worker does all the time: it frees the lanes of dead workers, or else wakes what is due. Never both at once, for
-- each locks lanes in key order.
create or replace function tend_lanes(_lock_class integer) returns table (freed bigint, woken bigint)
language plpgsql as $$
begin
    freed := rescue_lanes(_lock_class);
    woken := case when freed = 0 then wake_parked() else 0 end;
    return next;
end $$;

-- Let a paused lane go on, by its name. False: it is not paused.
create or replace function resume_lane(_name text) returns boolean
language plpgsql as $$
declare
    _lane uuid;
begin
    update lane l set state = 'ready', ready_at = clock_timestamp(), delayed = false where l.state = 'paused' and lane_name(l.key) = _name
        returning l.key into _lane;
    perform choose_next(_lane) where _lane is not null;
    return _lane is not null;
end $$;

-- An item that is not to run before its time waits from the start, and the others of its lane go on. The caller holds the
-- lock of the lane and has just given the item its seq.
create or replace function defer_item(_lane uuid, _seq bigint, _due_at timestamptz) returns void
language plpgsql as $$
begin
    insert into parked (lane, seq, due_at) values (_lane, _seq, _due_at);
    perform choose_next(_lane, 1);
end $$;
