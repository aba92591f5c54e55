-- Routing by a model.

alter table team add column classify boolean not null default false;

alter table delivery add column text text, add column n smallint not null default 1;
-- a letter that was rerouted made its deliveries in the very moment of its decision
update delivery d set n = c.n from decision c
    where c.n > 1 and c.request_id = d.request_id and c.conversation = d.conversation and c.decided_at = d.created_at;
drop index delivery_request;
create unique index delivery_once on delivery (request_id, lane, n, segment);

-- A message that waits to be classified, or behind one of its conversation that does; its decision is not yet made.
create table routing (
    lane text not null,
    seq bigint not null,
    conversation text not null,
    request_id uuid not null,
    pinned text,
    facts jsonb not null,
    state text not null default 'pending' check (state in ('pending', 'routed')),
    created_at timestamptz not null,
    settled_at timestamptz,
    primary key (lane, seq)
) with (fillfactor = 85);
create index routing_request on routing (request_id);
create index routing_pending on routing (created_at) where state = 'pending';

-- Routing by a model: sessions, what they called, what came of it ---------------------------------------------------------

-- A session of a model for one message: it may call one tool, for some minutes, and name its candidates alone. What it
-- calls after its end counts for nothing. Rows are removed some time after they expired.
create table session_token (
    session_id uuid primary key,
    hash bytea not null unique,
    conversation text not null,
    request_id uuid not null,
    lane text,
    seq bigint,
    team_id text not null,
    candidates jsonb not null,
    calls integer not null default 0,
    created_at timestamptz not null default clock_timestamp(),
    expires_at timestamptz not null,
    ended_at timestamptz
);
create index session_token_expires on session_token (expires_at);
create index session_token_open on session_token (request_id) where ended_at is null;

-- What our server saw a session call, refused calls included: it wins over what a transcript claims. Insert-only.
create table route_call (
    conversation text not null,
    session_id uuid not null,
    n integer not null,
    request_id uuid not null,
    butler text not null,
    segment text,
    reason text not null,
    ok boolean not null,
    why text not null,
    at timestamptz not null default clock_timestamp(),
    primary key (conversation, session_id, n)
);
create index route_call_request on route_call (request_id);

-- One row per attempt to classify, whatever came of it. cost in micro-dollars; corrected_to: where it should have gone.
create table classification (
    request_id uuid not null,
    conversation text not null,
    team_id text not null,
    n integer not null,
    session_id uuid,
    candidates text[] not null,
    verdict jsonb not null,
    model text,
    tokens_in bigint not null,
    tokens_out bigint not null,
    cost bigint,
    ms integer not null,
    error text,
    corrected_to text,
    corrected_by text,
    at timestamptz not null default clock_timestamp(),
    primary key (request_id, conversation, team_id, n)
);

-- What models have cost on a day, and what running sessions have set aside; what nobody settled is free again at `until`.
create table model_day (
    day date primary key,
    tokens bigint not null default 0,
    micros bigint not null default 0
);
create table model_reservation (
    reservation_id uuid primary key,
    day date not null,
    tokens bigint not null,
    micros bigint not null,
    until timestamptz not null
);

-- The idempotency keys of messages that came into the pipeline without a request context: they are in no inbox.
create table pipeline_key (
    source text not null,
    key text not null,
    request_id uuid not null,
    primary key (source, key)
);

drop function accept_messages(
    text[], text[], uuid[], text[], text[], text[], text[], text[], bytea[], text[], timestamptz[], smallint[], bigint[],
    smallint[], text[], text[], integer[], text[], text[], text[], integer[], uuid[], text[], text[], text[], text[]);

-- Accept: dedupe, store, decide, deliver; one row back per message, in the order given.
-- d_*: deliveries, x_*: branches nobody could take; *_ord is the message they belong to, from 1.
-- _asks: what must be classified first, and is not decided here; null where nobody ever classifies. Under the lock of its
-- conversation's route lane whatever comes later waits behind it, decided or not.
create function accept_messages(
    _conversation text[], _key text[], _request_id uuid[], _channel text[], _endpoint text[], _sender text[],
    _thread text[], _envelope text[], _raw bytea[], _media_type text[], _received_at timestamptz[], _tier smallint[],
    _version bigint[], _branches smallint[], _trail text[], _facts text[], _asks boolean[], _pinned text[],
    d_ord integer[], d_lane text[], d_system text[], d_team text[],
    x_ord integer[], x_id uuid[], x_team text[], x_category text[], x_reason text[], x_handler text[]
) returns table (ord bigint, request_id uuid, waits boolean)
language plpgsql as $$
#variable_conflict use_column
declare
    _fresh boolean[];
    _decided boolean[];
    _route_lane text[] := case when _asks is null then '{}' else (
        select array_agg(distinct 'route:' || m.conversation) from unnest(_conversation) as m (conversation)
    ) end;
    _notice_lane text[] := (
        select coalesce(array_agg('notice:' || x.handler || ':' || _conversation[x.ord]), '{}')
        from unnest(x_ord, x_handler) as x (ord, handler) where x.handler is not null
    );
begin
    insert into lane (key, kind, pool, tier)
        select distinct on (l.key) l.key, split_part(l.key, ':', 1), case when l.key like 'route:%' then 'route' else 'work' end, 3
        from unnest(d_lane || _notice_lane || _route_lane) as l (key) order by l.key
        on conflict do nothing;
    perform from lane l where l.key = any (d_lane || _notice_lane || _route_lane) order by l.key for no key update;

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
        select m.request_id, m.conversation, m.channel, m.endpoint, m.sender, m.thread, m.envelope::jsonb, m.raw,
               m.media_type, m.received_at
        from unnest(_request_id, _conversation, _channel, _endpoint, _sender, _thread, _envelope, _raw, _media_type,
                    _received_at, _fresh)
             as m (request_id, conversation, channel, endpoint, sender, thread, envelope, raw, media_type, received_at, fresh)
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
                select n.key, n.seq, n.conversation, n.request_id, n.pinned, n.facts::jsonb, n.received_at from numbered n
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
        select m.request_id, m.conversation, 1, m.version, m.branches, m.trail::jsonb, m.received_at, m.facts::jsonb
        from unnest(_request_id, _conversation, _version, _branches, _trail, _received_at, _facts, _decided)
             as m (request_id, conversation, version, branches, trail, received_at, facts, decided)
        where m.decided;

    with numbered as (
        select d.lane, l.last_seq + row_number() over (partition by d.lane order by d.ord) as seq, d.ord, d.system_id, d.team_id
        from unnest(d_ord, d_lane, d_system, d_team) as d (ord, lane, system_id, team_id) join lane l on l.key = d.lane
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
        from unnest(_conversation, _key) with ordinality as m (conversation, key, ord)
        join dedupe d on d.conversation = m.conversation and d.key = m.key;
end $$;

-- Route: the decision about a message that waited, its deliveries and dead letters, and the step to the next one of its
-- conversation; or nothing at all (fenced). d_*, x_* as in accept_messages; d_text: the part of each butler.
create function settle_route(
    _owner bigint, _lane text, _epoch bigint, _seq bigint, _hand_on boolean, _started_at timestamptz,
    _version bigint, _trail text, _tier smallint,
    d_lane text[], d_system text[], d_team text[], d_text text[],
    x_id uuid[], x_team text[], x_category text[], x_reason text[], x_handler text[]
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
    _facts jsonb;
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

    insert into decision (request_id, conversation, n, version, branches, trail, decided_at, facts)
        values (_request_id, _conversation, 1, _version, cardinality(d_lane) + cardinality(x_id), _trail::jsonb, _now, _facts);
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
            array_agg(x.reason), array_agg(x.handler), array_agg(null::text), array_agg(null::bigint), array_agg(null::text))
        from unnest(x_id, x_team, x_category, x_reason, x_handler) as x (id, team, category, reason, handler);
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

-- Reroute: a further decision about the letter's message with its deliveries, at the end of their lanes, and the letter
-- handled; or nothing at all. d_*: who is to get it, x_*: branches that again nobody can take, as in accept_messages.
-- The outcome: rerouted; handled (it was before: by decision n, or by hand where n is null); taken (all of them have the
-- message, or were done with it); no row where there is no such letter.
create or replace function reroute_letter(
    _id uuid, _by text, _resolution text, _version bigint, _trail text, _tier smallint,
    d_lane text[], d_system text[], d_team text[],
    x_id uuid[], x_team text[], x_category text[], x_reason text[], x_handler text[]
) returns table (outcome text, n smallint)
language plpgsql as $$
#variable_conflict use_column
declare
    _request_id uuid;
    _conversation text;
    _touched text[];
    _status text;
    _n smallint;
    _fresh integer[];
    _now timestamptz;
begin
    select x.request_id, x.conversation into _request_id, _conversation from dead_letter x where x.dead_letter_id = _id;
    if not found then
        return;
    end if;
    _touched := d_lane || (
        select coalesce(array_agg('notice:' || h.handler || ':' || _conversation), '{}')
        from unnest(x_handler) as h (handler) where h.handler is not null
    );
    insert into lane (key, kind, pool, tier)
        select distinct on (l.key) l.key, split_part(l.key, ':', 1), 'work', 3 from unnest(_touched) as l (key) order by l.key
        on conflict do nothing;
    perform from lane l where l.key = any (_touched) order by l.key for no key update;
    -- all letters of the message: two of them at once must not bring it to one butler twice, nor take the same number
    perform from dead_letter x where x.request_id = _request_id order by x.dead_letter_id for no key update;
    -- under the lock: no two decisions of a message have one time, and by it a decision's deliveries are found
    _now := clock_timestamp();

    select x.status, x.rerouted_n into _status, _n from dead_letter x where x.dead_letter_id = _id;
    if _status = 'handled' then
        return query select 'handled', _n;
        return;
    end if;
    select array_agg(i.ord) into _fresh
        from unnest(d_system) with ordinality as i (system_id, ord)
        where not exists (
            select from delivery d
            where d.request_id = _request_id and d.system_id = i.system_id
              and d.state in ('pending', 'answered', 'declined')
        );
    if _fresh is null then
        return query select 'taken', null::smallint;
        return;
    end if;

    insert into decision (request_id, conversation, n, version, branches, trail, decided_at, facts)
        select _request_id, _conversation, max(d.n) + 1, _version, cardinality(_fresh) + cardinality(x_id), _trail::jsonb,
               _now, (select f.facts from decision f where f.request_id = _request_id and f.n = 1)
        from decision d where d.request_id = _request_id
        returning n into _n;
    insert into delivery (lane, seq, conversation, request_id, system_id, team_id, created_at, n)
        select l.key, l.last_seq + 1, _conversation, _request_id, d_system[f.ord], d_team[f.ord], _now, _n
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
            array_agg(x.reason), array_agg(x.handler), array_agg(null::text), array_agg(null::bigint), array_agg(null::text))
        from unnest(x_id, x_team, x_category, x_reason, x_handler) as x (id, team, category, reason, handler);
    end if;
    update dead_letter x set
        status = 'handled', handled_by_system_id = _by, resolution = _resolution, handled_at = _now, rerouted_n = _n
        where x.dead_letter_id = _id;
    return query select 'rerouted', _n;
end $$;

-- What became of a message as a whole: in flight while anything is, then the best that happened to it.
create or replace function message_state(_request_id uuid) returns text
language sql stable as $$
    select case
        when bool_or(s.state = 'pending') then 'in_flight'
        when bool_or(s.state = 'answered') then 'answered'
        when bool_or(s.state = 'declined') then 'declined'
        when bool_or(s.state = 'dead') then 'dead'
        when bool_or(s.state = 'cancelled') then 'cancelled'
        else 'missing' end
    from (
        select d.state from delivery d where d.request_id = _request_id
        union all
        select 'dead' from dead_letter x where x.request_id = _request_id and x.lane is null
        union all
        select 'pending' from routing r where r.request_id = _request_id and r.state = 'pending'
    ) s;
$$;
