-- Steps of many items; a row for each that counted, by its place: what is missing is fenced. The rows of the lanes are locked
-- against a rescue while their steps are written. A step that has ended stays as it is: an event may be decided meanwhile.
create or replace function write_steps(_owner bigint, _given step_write[]) returns table (ord bigint)
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$  -- see settle_turns
begin
    return query
        with held as materialized (
            select i.* from unnest(_given) with ordinality i
            join lane l on l.key = any (array[i.lane])
                       and (l.owner, l.epoch, l.state, l.next_seq) is not distinct from (_owner, i.epoch, 'running', i.seq)
            order by i.lane for share of l
        ), due as (
            -- A rescue locks workers before lanes. The holder of a lane must therefore never wait for a worker.
            select w.process_id from process w
            where w.process_id = _owner and w.beat < clock_timestamp() - w.ttl / 8 and exists (select from held)
            for no key update skip locked
        ), beaten as (
            update process w set beat = clock_timestamp() from due where w.process_id = due.process_id
        ), written as (
            insert into step (lane, seq, request_id, path, effect, state, idempotency_key, epoch, result, tokens_in, tokens_out, cost,
                              ended_at)
                select h.lane, h.seq, h.request_id, h.path, h.effect, h.state, h.idempotency_key, h.epoch, h.result::json, h.tokens_in,
                       h.tokens_out, h.cost, case when h.state <> 'started' then clock_timestamp() end
                from held h
                on conflict (request_id, lane, seq, path) do update
                    set state = excluded.state, epoch = excluded.epoch, result = excluded.result, tokens_in = excluded.tokens_in,
                        tokens_out = excluded.tokens_out, cost = excluded.cost, ended_at = excluded.ended_at
                    where step.state = 'started'
        )
        select h.ordinality from held h;
end $$;
