-- Whether a lane that is ready from now on is offered to its keeper first.
create or replace function is_kept(_kept_until timestamptz) returns boolean
language sql stable as $$
    select coalesce(_kept_until > statement_timestamp(), false);
$$;

-- Something of the conversation lives in the process that runs this item, from now on for so long. Returns who was the keeper
-- before; no row: fenced.
create or replace function keep_lane(_owner bigint, _lane uuid, _epoch bigint, _seq bigint, _for interval)
returns table (before bigint)
language sql as $$
    update lane l set keeper = _owner, kept_until = clock_timestamp() + _for
        from (select o.key, o.keeper from lane o where o.key = _lane for no key update) o
        where l.key = o.key and l.owner = _owner and l.epoch = _epoch and l.state = 'running' and l.next_seq = _seq
        returning o.keeper;
$$;

-- Whether an item waits, and the others of its lane go on.
create or replace function is_parked(_lane uuid, _seq bigint) returns boolean
language sql stable as $$
    select exists (select from parked p where p.lane = _lane and p.seq = _seq);
$$;

-- What a lane goes on with when an item has left it, or one that is parked has come or was decided: parked items are passed
-- over, and of those that are decided the one decided first comes before everything else. The caller holds the lock. _parked:
-- how many more have come to wait, or fewer.
create or replace function choose_next(_lane uuid, _parked integer default 0) returns void
language plpgsql as $$
declare
    _done bigint := (select l.done_seq from lane l where l.key = _lane);
begin
    while exists (select from parked p where p.lane = _lane and p.seq = _done + 1) loop
        _done := _done + 1;
    end loop;
    update lane l set
        done_seq = _done,
        parked = l.parked + _parked,
        state = case when l.state in ('running', 'paused') then l.state
                     when l.resumed_seq is not null or l.last_seq > _done then 'ready' else 'idle' end
        where l.key = _lane;
    -- the item at the head may wait for another attempt: its attempts and its time are kept
    update lane l set
        resumed_seq = p.seq, attempts = p.attempts, head_attempts = l.attempts,
        head_ready_at = case when l.state = 'ready' then l.ready_at end,
        state = 'ready', ready_at = clock_timestamp(), delayed = is_kept(l.kept_until)
        from (
            select p.seq, p.attempts from parked p
            where p.lane = _lane and p.decided_at is not null order by p.decided_at, p.seq limit 1
        ) p
        where l.key = _lane and l.resumed_seq is null and l.state in ('idle', 'ready');
end $$;

-- The item that ran leaves its lane: it has ended, or it is parked.
create or replace function leave_lane(_lane uuid, _seq bigint, _pause boolean, _parked integer) returns void
language plpgsql as $$
begin
    update lane l set
        done_seq = greatest(l.done_seq, _seq), resumed_seq = null, owner = null, lease_until = null,
        attempts = case when l.resumed_seq is null then 0 else l.head_attempts end,
        ready_at = greatest(clock_timestamp(), l.head_ready_at),
        delayed = coalesce(l.head_ready_at > clock_timestamp(), false) or is_kept(l.kept_until),
        head_attempts = 0, head_ready_at = null,
        state = case when _pause then 'paused' else 'ready' end
        where l.key = _lane;
    perform choose_next(_lane, _parked);
    perform hand_to_programs(array[_lane]) from lane l where l.key = _lane and l.pool = 'program';
end $$;

-- Items have ended: their lanes go on, with a next item for the same worker where it wants one (_hand_on), unless a program
-- asks for a turn there: then the lane is that program's. The caller holds the locks and has looked at the fence.
create or replace function advance_lanes(_lane uuid[], _seq bigint[], _hand_on boolean[], _pause boolean[])
returns table (lane uuid, next_seq bigint)
language plpgsql as $$
#variable_conflict use_column
declare
    _one record;
    _advanced integer;
begin
    return query
        update lane l set
            done_seq = i.seq,
            attempts = case when i.hand_on and l.pool <> 'program' and not i.pause and l.last_seq > i.seq then 1 else 0 end,
            owner = case when i.hand_on and l.pool <> 'program' and not i.pause and l.last_seq > i.seq then l.owner end,
            lease_until = null,
            state = case when i.pause then 'paused' when l.last_seq = i.seq then 'idle'
                         when i.hand_on and l.pool <> 'program' then 'running' else 'ready' end,
            ready_at = clock_timestamp(),
            delayed = not i.hand_on and l.last_seq > i.seq and is_kept(l.kept_until),
            program = case when l.pool = 'program' then next_program(l.key, i.seq) end,
            pool = case when l.pool = 'program' and next_program(l.key, i.seq) is null then 'work' else l.pool end
            from unnest(_lane, _seq, _hand_on, _pause) as i (lane, seq, hand_on, pause)
            where l.key = any (array[i.lane]) and l.parked = 0
            returning l.key, case when l.state = 'running' then l.next_seq end;
    get diagnostics _advanced = row_count;
    if _advanced = cardinality(_lane) then  -- nothing is parked in any of them
        return;
    end if;
    for _one in
        select i.* from unnest(_lane, _seq, _pause) as i (lane, seq, pause) join lane l on l.key = any (array[i.lane])
        where l.parked > 0
    loop
        delete from parked p where p.lane = _one.lane and p.seq = _one.seq;
        perform leave_lane(_one.lane, _one.seq, _one.pause, case when found then -1 else 0 end);
    end loop;
end $$;
