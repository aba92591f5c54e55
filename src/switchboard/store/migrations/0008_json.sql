-- What is written once and read whole is kept as the JSON that came: to take it apart for jsonb cost more than to store it.

-- A door that still runs reads routing before it writes the other two: taken in another order, and only once the first table
-- is written anew, it and we would wait for each other, and all that was done till then would be for nothing.
lock table routing, message_inbox, decision in access exclusive mode;

alter table message_inbox alter column envelope type json using envelope::json;
alter table decision
    alter column trail type json using trail::json,
    alter column facts type json using facts::json;
alter table routing alter column facts type json using facts::json;

-- Accept: dedupe, store, decide, deliver; one row back per message that is not simply new, and one with ord 0 if workers
-- are to be woken. d_*: deliveries, x_*: branches nobody could take; *_ord is the message they belong to, from 1.
-- Of _raw, in which all are one after the other, a message has _size bytes from _at. _asks: what must be classified first,
-- and is not decided here; null where the caller knows nobody who classifies. Under the lock of its conversation's route
-- lane whatever comes later waits behind it, decided or not.
create or replace function accept_messages(
    _conversation text[], _key text[], _request_id uuid[], _channel text[], _endpoint text[], _sender text[],
    _thread text[], _envelope text[], _media_type text[], _received_at timestamptz[], _tier smallint[],
    _version bigint[], _branches smallint[], _trail text[], _facts text[], _pinned text[], _asks boolean[],
    _size integer[], _at integer[], _raw bytea,
    d_ord integer[], d_lane text[], d_system text[], d_team text[],
    x_ord integer[], x_id uuid[], x_team text[], x_category text[], x_reason text[], x_handler text[]
) returns table (ord bigint, request_id uuid, waits boolean)
language plpgsql as $$
#variable_conflict use_column
declare
    _fresh boolean[];
    _decided boolean[];
    _lane text[] := d_lane || (
        select coalesce(array_agg('notice:' || x.handler || ':' || _conversation[x.ord]), '{}')
        from unnest(x_ord, x_handler) as x (ord, handler) where x.handler is not null
    );
    _locked text[];
    _last_seq bigint[];
    _idle text[];
begin
    -- The caller may not have heard yet: where a message of one of these conversations waits all the same, nobody is asked,
    -- and what comes later waits behind it.
    if _asks is null and exists (select from routing r where r.state = 'pending') and exists (
        select from unnest(_conversation) as m (conversation) join lane l on l.key = 'route:' || m.conversation
        where l.last_seq > l.done_seq
    ) then
        _asks := array_fill(false, array[cardinality(_conversation)]);
    end if;
    if _asks is not null then
        _lane := _lane || (select array_agg(distinct 'route:' || m.conversation) from unnest(_conversation) as m (conversation));
    end if;

    insert into lane (key, kind, pool, tier)
        select distinct on (l.key) l.key, split_part(l.key, ':', 1), case when l.key like 'route:%' then 'route' else 'work' end, 3
        from unnest(_lane) as l (key) where not exists (select from lane o where o.key = l.key) order by l.key
        on conflict do nothing;
    -- Workers pass over a lane that is locked, so one that became ready a moment ago may not have been seen by them.
    select array_agg(l.key), array_agg(l.last_seq),
           array_agg(l.key) filter (where l.state = 'idle' or l.state = 'ready' and l.ready_at > now() - interval '1 second')
        into _locked, _last_seq, _idle
        from (
            select l.key, l.last_seq, l.state, l.ready_at from lane l where l.key = any (_lane)
            order by l.key for no key update
        ) l;

    with given as (
        insert into dedupe (conversation, key, request_id)
            select m.conversation, m.key, m.request_id
            from unnest(_conversation, _key, _request_id) with ordinality as m (conversation, key, request_id, ord)
            order by m.conversation, m.key, m.ord
            on conflict do nothing
            returning request_id
    )
    select array_agg(g.request_id is not null order by m.ord) into _fresh
        from unnest(_request_id) with ordinality as m (request_id, ord) left join given g using (request_id);

    insert into message_inbox
        select m.request_id, m.conversation, m.channel, m.endpoint, m.sender, m.thread, m.envelope::json,
               substr(_raw, m.at, m.size), m.media_type, m.received_at
        from unnest(_request_id, _conversation, _channel, _endpoint, _sender, _thread, _envelope, _size, _at, _media_type,
                    _received_at, _fresh)
             as m (request_id, conversation, channel, endpoint, sender, thread, envelope, size, at, media_type, received_at, fresh)
        where m.fresh;

    _decided := _fresh;
    if _asks is not null then
        with given as (
            select m.conversation, m.ord::integer as ord, _fresh[m.ord::integer] as fresh, _asks[m.ord::integer] as asks
            from unnest(_conversation) with ordinality as m (conversation, ord)
        ), waiting as (
            select g.conversation, case when l.last_seq > l.done_seq then 1 else min(g.ord) filter (where g.fresh and g.asks) end as since
            from given g join lane l on l.key = 'route:' || g.conversation
            group by g.conversation, l.last_seq, l.done_seq
        )
        select array_agg(g.fresh and g.ord < coalesce(w.since, g.ord + 1) order by g.ord) into _decided
            from given g join waiting w using (conversation);
        with numbered as (
            select l.key, l.last_seq + row_number() over (partition by l.key order by m.ord) as seq, m.*
            from unnest(_conversation, _request_id, _pinned, _facts, _received_at, _tier, _fresh, _decided) with ordinality
                 as m (conversation, request_id, pinned, facts, received_at, tier, fresh, decided, ord)
            join lane l on l.key = 'route:' || m.conversation
            where m.fresh and not m.decided
        ), written as (
            insert into routing (lane, seq, conversation, request_id, pinned, facts, created_at)
                select n.key, n.seq, n.conversation, n.request_id, n.pinned, n.facts::json, n.received_at from numbered n
        ), last as (
            select n.key, max(n.seq) as seq, min(n.tier) as tier from numbered n group by n.key
        )
        update lane l set
            last_seq = last.seq,
            tier = case when l.state = 'idle' then last.tier else least(l.tier, last.tier) end,
            ready_at = case when l.state = 'idle' then now() else l.ready_at end,
            state = case when l.state = 'idle' then 'ready' else l.state end
            from last where l.key = last.key;
    end if;

    insert into decision
        select m.request_id, m.conversation, 1, m.version, m.branches, m.trail::json, m.received_at, m.facts::json
        from unnest(_request_id, _conversation, _version, _branches, _trail, _received_at, _facts, _decided)
             as m (request_id, conversation, version, branches, trail, received_at, facts, decided)
        where m.decided;

    with numbered as (
        select d.lane, l.last_seq + row_number() over (partition by d.lane order by d.ord) as seq, d.ord, d.system_id, d.team_id
        from unnest(d_ord, d_lane, d_system, d_team) as d (ord, lane, system_id, team_id)
        join unnest(_locked, _last_seq) as l (key, last_seq) on l.key = d.lane
        where _decided[d.ord]
    ), written as (
        insert into delivery (lane, seq, conversation, request_id, system_id, team_id, created_at)
            select n.lane, n.seq, _conversation[n.ord], _request_id[n.ord], n.system_id, n.team_id, _received_at[n.ord]
            from numbered n
    ), last as (
        select n.lane, max(n.seq) as seq, min(_tier[n.ord]) as tier from numbered n group by n.lane
    )
    update lane l set
        last_seq = last.seq,
        tier = case when l.state = 'idle' then last.tier else least(l.tier, last.tier) end,
        ready_at = case when l.state = 'idle' then now() else l.ready_at end,
        state = case when l.state = 'idle' then 'ready' else l.state end
        from last where l.key = last.lane;

    if cardinality(x_ord) > 0 then
        perform bury(
            array_agg(x.id), array_agg(_request_id[x.ord]), array_agg(_conversation[x.ord]), array_agg(x.team),
            array_agg(x.category), array_agg(x.reason), array_agg(x.handler),
            array_agg(null::text), array_agg(null::bigint), array_agg(null::text))
        from unnest(x_ord, x_id, x_team, x_category, x_reason, x_handler) as x (ord, id, team, category, reason, handler)
        where _decided[x.ord];
    end if;

    return query
        select m.ord, d.request_id,
               _asks is not null
               and exists (select from routing r where r.request_id = d.request_id and r.state = 'pending')
        from unnest(_conversation, _key, _fresh) with ordinality as m (conversation, key, fresh, ord)
        left join dedupe d on d.conversation = m.conversation and d.key = m.key
        where _asks is not null or not m.fresh
        union all select 0, null, true where exists (select from lane l where l.key = any (_idle) and l.state = 'ready');
end $$;

-- Route: the decision about a message that waited, its deliveries and dead letters, and the step to the next one of its
-- conversation; or nothing at all (fenced). d_*, x_* as in accept_messages; *_text: the part of each butler or team.
create or replace function settle_route(
    _owner bigint, _lane text, _epoch bigint, _seq bigint, _hand_on boolean, _started_at timestamptz,
    _version bigint, _trail text, _tier smallint,
    d_lane text[], d_system text[], d_team text[], d_text text[],
    x_id uuid[], x_team text[], x_category text[], x_reason text[], x_handler text[], x_text text[], _parts text
) returns table (ok boolean, next_seq bigint)
language plpgsql as $$
#variable_conflict use_column
declare
    _conversation text := substring(_lane from 7);
    _touched text[] := _lane || d_lane || (
        select coalesce(array_agg('notice:' || h.handler || ':' || _conversation), '{}')
        from unnest(x_handler) as h (handler) where h.handler is not null
    );
    _request_id uuid;
    _facts json;
    _now timestamptz;
begin
    insert into lane (key, kind, pool, tier)
        select distinct on (l.key) l.key, split_part(l.key, ':', 1), 'work', 3
        from unnest(_touched) as l (key) where l.key <> _lane order by l.key
        on conflict do nothing;
    perform from lane l where l.key = any (_touched) order by l.key for no key update;

    select r.request_id, r.facts into _request_id, _facts
        from lane l join routing r on r.lane = l.key and r.seq = _seq
        where l.key = _lane and l.owner = _owner and l.epoch = _epoch and l.state = 'running' and l.done_seq + 1 = _seq;
    if not found then
        return query select false, null::bigint;
        return;
    end if;
    _now := clock_timestamp();

    insert into decision (request_id, conversation, n, version, branches, trail, decided_at, facts, parts)
        values (_request_id, _conversation, 1, _version, cardinality(d_lane) + cardinality(x_id), _trail::json, _now, _facts,
                _parts::jsonb);
    insert into delivery (lane, seq, conversation, request_id, system_id, team_id, segment, created_at, text)
        select d.lane, l.last_seq + 1, _conversation, _request_id, d.system_id, d.team_id,
               case when d.part is null then 0 else row_number() over (partition by d.part is null order by d.ord) end,
               _now, d.part
        from unnest(d_lane, d_system, d_team, d_text) with ordinality as d (lane, system_id, team_id, part, ord)
        join lane l on l.key = d.lane;
    update lane l set
        last_seq = l.last_seq + 1,
        tier = case when l.state = 'idle' then _tier else least(l.tier, _tier) end,
        ready_at = case when l.state = 'idle' then _now else l.ready_at end,
        state = case when l.state = 'idle' then 'ready' else l.state end
        where l.key = any (d_lane);
    if cardinality(x_id) > 0 then
        perform bury(
            array_agg(x.id), array_agg(_request_id), array_agg(_conversation), array_agg(x.team), array_agg(x.category),
            array_agg(x.reason), array_agg(x.handler), array_agg(null::text), array_agg(null::bigint), array_agg(null::text),
            array_agg(x.part))
        from unnest(x_id, x_team, x_category, x_reason, x_handler, x_text) as x (id, team, category, reason, handler, part);
    end if;

    update routing r set state = 'routed', settled_at = _now where r.lane = _lane and r.seq = _seq;
    insert into turn (lane, seq, epoch, outcome, worker, started_at, finished_at)
        values (_lane, _seq, _epoch, 'routed', _owner, _started_at, _now);
    return query
        update lane l set
            done_seq = _seq,
            attempts = case when _hand_on and l.last_seq > _seq then 1 else 0 end,
            owner = case when _hand_on and l.last_seq > _seq then l.owner end,
            state = case when l.last_seq = _seq then 'idle' when _hand_on then 'running' else 'ready' end,
            ready_at = _now
            where l.key = _lane
            returning true, case when l.state = 'running' then l.done_seq + 1 end;
end $$;

-- A further decision about a message that is held, with its deliveries at the end of their lanes; its number, or null where
-- all of them have the message, or were done with it. d_*: who is to get it, x_*: branches that again nobody can take. _text:
-- but this part of it is brought on, null is the whole; who has another part has neither this one nor the whole.
create or replace function decide_again(
    _request_id uuid, _conversation text, _version bigint, _trail text, _tier smallint,
    d_lane text[], d_system text[], d_team text[],
    x_id uuid[], x_team text[], x_category text[], x_reason text[], x_handler text[], _text text
) returns smallint
language plpgsql as $$
declare
    _n smallint;
    _fresh integer[];
    -- no two decisions of a message that is held have one time, and by it a decision's deliveries are found
    _now timestamptz := clock_timestamp();
begin
    select array_agg(i.ord) into _fresh
        from unnest(d_system) with ordinality as i (system_id, ord)
        where not exists (
            select from delivery d
            where d.request_id = _request_id and d.system_id = i.system_id
              and d.state in ('pending', 'answered', 'declined')
              and (d.text is null or d.text = _text)
        );
    if _fresh is null then
        return null;
    end if;

    insert into decision (request_id, conversation, n, version, branches, trail, decided_at, facts, parts)
        select _request_id, _conversation, max(d.n) + 1, _version, cardinality(_fresh) + cardinality(x_id), _trail::json,
               _now, (select f.facts from decision f where f.request_id = _request_id and f.n = 1),
               case when _text is not null then jsonb_build_object('', _text) end
        from decision d where d.request_id = _request_id
        returning n into _n;
    insert into delivery (lane, seq, conversation, request_id, system_id, team_id, segment, created_at, text, n)
        select l.key, l.last_seq + 1, _conversation, _request_id, d_system[f.ord], d_team[f.ord],
               case when _text is null then 0 else f.ord end, _now, _text, _n
        from unnest(_fresh) as f (ord) join lane l on l.key = d_lane[f.ord];
    update lane l set
        last_seq = l.last_seq + 1,
        tier = case when l.state = 'idle' then _tier else least(l.tier, _tier) end,
        ready_at = case when l.state = 'idle' then _now else l.ready_at end,
        state = case when l.state = 'idle' then 'ready' else l.state end
        from unnest(_fresh) as f (ord) where l.key = d_lane[f.ord];
    if cardinality(x_id) > 0 then
        perform bury(
            array_agg(x.id), array_agg(_request_id), array_agg(_conversation), array_agg(x.team), array_agg(x.category),
            array_agg(x.reason), array_agg(x.handler), array_agg(null::text), array_agg(null::bigint), array_agg(null::text),
            array_agg(_text), array_agg(_n))
        from unnest(x_id, x_team, x_category, x_reason, x_handler) as x (id, team, category, reason, handler);
    end if;
    return _n;
end $$;
