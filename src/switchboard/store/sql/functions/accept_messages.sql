-- Accept: dedupe, store, decide, deliver; one row back per message that is not simply new, and one with ord 0 if workers
-- are to be woken; differs: its event was submitted before with another body. d_*: deliveries, x_*: branches nobody could take; *_ord is the message they belong to, from 1.
-- Of _raw, in which all are one after the other, a message has _size bytes from _at. _asks: what must be classified first,
-- and is not decided here; null where the caller knows nobody who classifies. Under the lock of its conversation's route
-- lane whatever comes later waits behind it, decided or not. _name: empty where the caller has seen the lanes of all
-- deliveries, of which every message has one; should one of them be gone, nothing is stored, and the only row has ord -1.
create or replace function accept_messages(
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
    _seed bigint := flow_seed();
    _flow bigint[];
    _route uuid[];
    _new uuid[];
    _fresh boolean[];
    _decided boolean[];
    _idle uuid[];
    _locked bigint;
    _seq bigint[];
    _later integer[];
    _later_seq bigint[];
begin
    if cardinality(_name) > 0 then
        -- The caller caches the keys, but the database may have been replaced since, by a restored or a new one.
        if not exists (select from conversation c where c.conversation = _conversation[1])
           and _conversation[1] <> conversation_key(_name[1]) then
            raise exception 'the keys are of another installation: this database has taken the place of another one'
                using errcode = 'database_dropped';
        end if;
        insert into conversation (conversation, name)
            select distinct on (m.conversation) m.conversation, m.name from unnest(_conversation, _name) as m (conversation, name)
            where m.conversation not in (select c.conversation from conversation c where c.conversation = any (_conversation))
            order by m.conversation
            on conflict do nothing;
    end if;

    -- The caller may not have heard yet: where a message of one of these conversations waits all the same, nobody is asked,
    -- and what comes later waits behind it.
    if _asks is null and exists (select from routing r where r.state = 'pending') and exists (
        select from lane l
        where l.key = any (array(select lane_key('route', null, m.conversation) from unnest(_conversation) as m (conversation)))
          and l.last_seq > l.done_seq
    ) then
        _asks := array_fill(false, array[cardinality(_conversation)]);
    end if;

    if _asks is not null then
        _route := array(select lane_key('route', null, m.conversation)
                        from unnest(_conversation) with ordinality as m (conversation, ord) order by m.ord);
    end if;

    -- Workers pass over a lane that is locked, so one that became ready a moment ago may not have been seen by them. One
    -- in which all came late may not run yet, and may if what comes now did not.
    if _asks is null and cardinality(_name) = 0 then
        select array_agg(l.key) filter (where l.state = 'idle' or l.state = 'ready' and (l.tier = 4 or l.ready_at > now() - interval '1 second')),
               count(*)
            into _idle, _locked
            from (
                select l.key, l.state, l.tier, l.ready_at from lane l where l.key = any (d_lane)
                order by l.key for no key update
            ) l;
        if _locked < (select count(distinct d.lane) from unnest(d_lane) as d (lane)) then
            return query select -1::bigint, null::uuid, false, false;
            return;
        end if;
    else
        select array_agg(l.key) filter (where l.state = 'idle' or l.state = 'ready'
                   and ((select t.tier from lane t where t.key = l.key) = 4 or l.ready_at > now() - interval '1 second'))
            into _idle
            from (
                select array_agg(w.key) as key, array_agg(w.kind) as kind, array_agg(w.system_id) as system_id,
                       array_agg(w.conversation) as conversation, array_agg(w.pool) as pool
                from (
                    select d.lane as key, 'turn' as kind, d.system_id, _conversation[d.ord] as conversation, 'work' as pool
                    from unnest(d_lane, d_ord, d_system) as d (lane, ord, system_id)
                    union all select lane_key('notice', x.handler, _conversation[x.ord]), 'notice', x.handler, _conversation[x.ord], 'work'
                    from unnest(x_ord, x_handler) as x (ord, handler) where x.handler is not null
                    union all select r.lane, 'route', null, r.conversation, 'route'
                    from unnest(_route, _conversation) as r (lane, conversation) where _asks is not null
                ) w
            ) w
            cross join lock_lanes(w.key, w.kind, w.system_id, w.conversation, w.pool) l;
    end if;

    with given as (
        insert into dedupe (key, body, request_id)
            select m.key, m.body, m.request_id
            from (
                select unnest(_event) as key, unnest(_content) as body, unnest(_request_id) as request_id,
                       generate_subscripts(_event, 1) as ord
            ) m
            order by m.key, m.ord
            on conflict do nothing
            returning request_id
    )
    select array_agg(g.request_id) into _new from given g;
    _fresh := case when cardinality(_new) = cardinality(_request_id) then array_fill(true, array[cardinality(_new)])
                   else array(select coalesce(m.request_id = any (_new), false)
                              from unnest(_request_id) with ordinality as m (request_id, ord) order by m.ord) end;
    -- A lock writes to the log, so that what is said of a duplicate waits for a synchronous standby as well.
    if false = any (_fresh) then
        perform from dedupe d
            where d.key = any (array(select m.key from unnest(_event, _fresh) as m (key, fresh) where not m.fresh))
            order by d.key for no key update;
    end if;

    insert into message_inbox (request_id, conversation, channel, endpoint, sender, thread, envelope, media_type, received_at)
        select m.request_id, m.conversation, m.channel, m.endpoint, m.sender, m.thread, m.envelope::json, m.media_type,
               m.received_at
        from (
            select unnest(_request_id) as request_id, unnest(_conversation) as conversation, unnest(_channel) as channel,
                   unnest(_endpoint) as endpoint, unnest(_sender) as sender, unnest(_thread) as thread, unnest(_envelope) as envelope,
                   unnest(_media_type) as media_type, unnest(_received_at) as received_at, unnest(_fresh) as fresh
        ) m
        where m.fresh;
    insert into message_raw (request_id, raw)
        select m.request_id, substr(_raw, m.at, m.size)
        from (select unnest(_request_id) as request_id, unnest(_size) as size, unnest(_at) as at, unnest(_fresh) as fresh) m
        where m.fresh;

    _flow := array(select flow_key(_seed, m.channel, m.endpoint, m.sender)
                   from (select unnest(_channel) as channel, unnest(_endpoint) as endpoint, unnest(_sender) as sender) m);
    _decided := _fresh;
    if _asks is not null then
        with given as (
            select m.lane, m.ord::integer as ord, _fresh[m.ord::integer] as fresh, _asks[m.ord::integer] as asks
            from unnest(_route) with ordinality as m (lane, ord)
        ), waiting as (
            select g.lane, case when l.last_seq > l.done_seq then 1 else min(g.ord) filter (where g.fresh and g.asks) end as since
            from given g join lane l on l.key = any (array[g.lane])
            group by g.lane, l.last_seq, l.done_seq
        )
        select array_agg(g.fresh and g.ord < coalesce(w.since, g.ord + 1) order by g.ord) into _decided
            from given g join waiting w using (lane);
        select array_agg(m.ord order by m.ord), enqueue_items(array_agg(m.lane order by m.ord), array_agg(m.flow order by m.ord), array_agg(m.tier order by m.ord))
            into _later, _later_seq
            from unnest(_route, _flow, _tier, _fresh, _decided) with ordinality as m (lane, flow, tier, fresh, decided, ord)
            where m.fresh and not m.decided;
        insert into routing (lane, seq, request_id, pinned, facts, created_at)
            select _route[n.ord], n.seq, _request_id[n.ord], _pinned[n.ord], _facts[n.ord]::json, _received_at[n.ord]
            from unnest(_later, _later_seq) as n (ord, seq);
    end if;

    insert into decision (request_id, n, version, branches, trail, decided_at, facts)
        select m.request_id, 1, m.version, m.branches, m.trail::json, m.received_at, m.facts::json
        from (
            select unnest(_request_id) as request_id, unnest(_version) as version, unnest(_branches) as branches,
                   unnest(_trail) as trail, unnest(_received_at) as received_at, unnest(_facts) as facts, unnest(_decided) as decided
        ) m
        where m.decided;

    if false = any (_decided) then
        select array_agg(d.ord order by d.n), array_agg(d.lane order by d.n), array_agg(d.system_id order by d.n),
               array_agg(d.team_id order by d.n)
            into d_ord, d_lane, d_system, d_team
            from unnest(d_ord, d_lane, d_system, d_team) with ordinality as d (ord, lane, system_id, team_id, n)
            where _decided[d.ord];
    end if;
    _seq := enqueue_items(d_lane, array(select _flow[d.ord] from unnest(d_ord) as d (ord)),
                          array(select _tier[d.ord] from unnest(d_ord) as d (ord)));
    insert into delivery (lane, seq, request_id, system_id, team_id, created_at)
        select d.lane, d.seq, _request_id[d.ord], d.system_id, d.team_id, _received_at[d.ord]
        from (
            select unnest(d_ord) as ord, unnest(d_lane) as lane, unnest(_seq) as seq, unnest(d_system) as system_id,
                   unnest(d_team) as team_id
        ) d;

    if cardinality(x_ord) > 0 then
        perform write_dead_letters(array_agg(
            (x.id, _request_id[x.ord], _conversation[x.ord], x.team, x.category, x.reason, x.handler, null, null, null, null, 1)
            ::new_dead_letter))
        from unnest(x_ord, x_id, x_team, x_category, x_reason, x_handler) as x (ord, id, team, category, reason, handler)
        where _decided[x.ord];
    end if;

    if _asks is not null or false = any (_fresh) then
        return query
            select m.ord, d.request_id,
                   _asks is not null
                   and exists (select from routing r where r.request_id = d.request_id and r.state = 'pending' offset 0),
                   d.body <> m.body
            from unnest(_event, _content, _fresh) with ordinality as m (key, body, fresh, ord)
            left join dedupe d on d.key = any (array[m.key])
            where _asks is not null or not m.fresh;
    end if;
    if exists (
        select from lane l
        where l.key = any (_idle) and l.state = 'ready' and (l.tier <> 4 or l.ready_at > now() - interval '1 second')
    ) then
        return query select 0::bigint, null::uuid, true, false;
    end if;
end $$;
