-- Whether a maintenance task, by its name, has anything to do now: what would only find nothing is not begun. Tasks that are
-- not named here always have. Each is looked up by an index that holds nothing else.
create or replace function has_work(_task text) returns boolean
language sql stable as $$
    select case _task
        when 'expire_leases' then exists (
            select from lane l where l.state = 'running' and l.owner is null and l.lease_until < clock_timestamp()
        )
        when 'digest' then exists (
            select from dead_letter x where x.handler is not null and x.notice_lane is null and x.status = 'pending'
        )
        when 'log_dead_letters' then exists (select from dead_letter x where x.logged_at is null)
        when 'tell' then exists (
            select from dead_letter x where x.status = 'pending' and x.told_at is null and x.tell_after <= statement_timestamp()
        )
        when 'tell_of_replies' then exists (select from outbox o where o.untold is not null)
        when 'compact' then exists (select from compaction c where c.ready_at <= statement_timestamp() and c.tries < 3)
        when 'index_facts' then
            exists (select from fact_unread)
            or exists (select from fact_unembedded)
            or exists (select from fact_model m where m.complete_at is null)
        when 'notify' then
            exists (select from dead_letter x where not x.noticed and x.status = 'pending')
            or exists (select from contact c where not c.noticed and c.state = 'stranger' and c.scope <> 'late')
            or exists (select from approval a where not a.noticed)
            or exists (select from connector c where is_in_trouble(c))
            or exists (select from sign_in_end e where not e.noticed)
        else true
    end;
$$;

-- The pools with lanes that can be taken now. One look-up for each pool, however many lanes wait.
create or replace function pools_with_work() returns text[]
language sql stable as $$
    with recursive ready (pool) as (
        select min(l.pool) from lane l where l.state = 'ready' and not l.delayed
        union all
        select (select min(l.pool) from lane l where l.state = 'ready' and not l.delayed and l.pool > r.pool)
        from ready r where r.pool is not null
    ), delayed (pool) as (
        select min(l.pool) from lane l where l.state = 'ready' and l.delayed
        union all
        select (select min(l.pool) from lane l where l.state = 'ready' and l.delayed and l.pool > d.pool)
        from delayed d where d.pool is not null
    )
    select coalesce(array_agg(p.pool), '{}')
    from (
        select r.pool from ready r where r.pool is not null
        union
        select d.pool from delayed d
        where exists (
            select from lane l
            where l.state = 'ready' and l.delayed and l.pool = d.pool and l.ready_at <= statement_timestamp()
        )
    ) p;
$$;

-- Seconds until the next time that was agreed on: that of a lane of these pools, of a parked item, or of an event. Null: none.
create or replace function next_time_in(_pools text[]) returns float8
language sql stable as $$
    select extract(epoch from min(t.at) - statement_timestamp())::float8
    from (
        select (select min(l.ready_at) from lane l
                where l.state = 'ready' and l.delayed and l.pool = p.pool and l.ready_at > statement_timestamp()) as at
        from unnest(_pools) as p (pool)
        union all
        select min(p.due_at) from parked p where p.decided_at is null and p.due_at > statement_timestamp()
        union all
        select min(a.deadline_at) from awaited a where a.decided_at is null and a.deadline_at > statement_timestamp()
    ) t;
$$;

-- All that a process looks at again and again, in one statement. _worker: null if no worker lives here, which then rescues
-- nothing. others: whether workers, programs or servers of other processes may have something for this one.
create or replace function look(_lock_class integer, _worker bigint, _pools text[], _tasks text[], _host text, _pid integer)
returns table (
    freed bigint, woken bigint, pools text[], next_in float8, others boolean, due boolean, backlog bigint, version bigint, remote boolean,
    people bigint
)
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
begin
    if _worker is not null then
        select t.freed, t.woken into freed, woken from tend_lanes(_lock_class) t;
    end if;
    pools := pools_with_work();
    next_in := next_time_in(_pools);
    others := exists (select from process w where w.process_id is distinct from _worker and (w.host, w.pid) is distinct from (_host, _pid));
    due := exists (select from schedule s where s.next_at <= clock_timestamp() and s.name = any (_tasks) and has_work(s.name));
    backlog := (
        select coalesce(sum(l.last_seq - l.done_seq), 0)::bigint from lane l
        where l.state <> 'idle' and l.state <> 'paused' and l.pool in ('work', 'route')
    );
    version := (select coalesce(max(r.version), 0) from rule_set r);
    people := (select coalesce(max(p.version), 0) from people_version p);
    remote := exists (select from member m where m.engine = 'mcp' and m.active);
    return next;
end $$;
