-- Whether a step of an item has ended in an attempt: one that got on does not count. A step ends once, so none goes on for ever.
create or replace function has_progressed(_lane uuid, _seq bigint, _epoch bigint) returns boolean
language sql stable as $$
    select exists (
        select from step s
        where s.lane = _lane and s.seq = _seq and s.request_id = request_of(_lane, _seq) and s.epoch = _epoch
          and s.state = 'done' and s.effect <> 'event'
    );
$$;

-- Rescue: workers that lost their lock or stopped their heartbeat lose their lanes to live workers, and so do programs, those
-- lanes included that wait for them.
-- The lock is only asked of workers that took one: the others live by their beat alone. A lane is freed because its owner
-- is not registered, whenever that came about: a claim may be committed after its worker was struck off.
create or replace function rescue_lanes(_lock_class integer) returns bigint
language plpgsql as $$
#variable_conflict use_column
declare
    _keys uuid[];
    _parked uuid[];
begin
    with gone as (
        select w.process_id from process w
        where w.beat + w.ttl < clock_timestamp()
           or (w.has_lock and pg_try_advisory_xact_lock(_lock_class, w.process_id::integer))
        for update skip locked
    )
    delete from process w using gone where w.process_id = gone.process_id;
    -- Looked for by one index each, and locked together, in the order of their keys.
    select array_agg(g.key) into _keys
        from (
            select l.key from lane l
            where l.state = 'running' and l.owner is not null and not exists (select from process w where w.process_id = l.owner)
            union
            select l.key from lane l
            where l.program is not null and not exists (select from process w where w.process_id = l.program)
        ) g;
    if _keys is null then
        return 0;
    end if;
    perform from lane l where l.key = any (_keys) order by l.key for no key update;
    with freed as (
        select l.key, l.owner from lane l
        where l.key = any (_keys) and l.state = 'running' and l.owner is not null
          and not exists (select from process w where w.process_id = l.owner)
    ), moved as (
        update lane l set state = 'ready', owner = null, ready_at = clock_timestamp(),
                          attempts = case when has_progressed(l.key, l.next_seq, l.epoch) then 0 else l.attempts end
        from freed where l.key = freed.key returning l.key, l.kind, l.next_seq as seq, l.epoch, freed.owner, l.parked
    ), turns as (
        insert into attempt (request_id, lane, seq, epoch, outcome, error_class, error, worker, finished_at)
            select request_of(m.key, m.seq), m.key, m.seq, m.epoch, 'lost', 'worker_lost', 'the worker died or was cut off', m.owner, clock_timestamp()
            from moved m where m.kind <> 'send'
    ), receipts as (
        insert into receipt (request_id, outbox_id, epoch, outcome, error, at)
            select o.request_id, o.outbox_id, m.epoch, 'lost', 'the worker died or was cut off', clock_timestamp()
            from moved m join outbox o on o.lane = m.key and o.seq = m.seq where m.kind = 'send'
    )
    select array_agg(m.key) filter (where m.parked > 0) into _parked from moved m;
    perform choose_next(p.key) from unnest(_parked) as p (key);
    perform hand_to_programs(_keys);
    return cardinality(_keys);
end $$;

-- A worker or program that ends cleanly: what it could not finish is taken over at once, and does not count as an attempt.
create or replace function release_worker(_worker bigint) returns bigint
language plpgsql as $$
declare
    _count bigint;
    _lanes uuid[];
begin
    delete from process w where w.process_id = _worker;
    select array_agg(f.key) into _lanes
        from (
            select l.key from lane l where l.owner = _worker and l.state = 'running' or l.program = _worker
            order by l.key for no key update
        ) f;
    update lane l set state = 'ready', owner = null, ready_at = clock_timestamp(), attempts = greatest(l.attempts - 1, 0)
        where l.owner = _worker and l.state = 'running';
    get diagnostics _count = row_count;
    perform choose_next(l.key) from unnest(_lanes) as f (key) join lane l on l.key = f.key where l.parked > 0;
    perform hand_to_programs(_lanes);
    return _count;
end $$;
