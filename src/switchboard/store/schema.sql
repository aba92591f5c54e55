-- The whole schema, as it is now. The numbered files in migrations/ lead here; a test proves it.
--
-- Laws:
--   * message_inbox is insert-only: what arrived is kept exactly.
--   * A lane is one row; its items are the rows with (lane, seq) in the ledger of its kind: delivery for `turn:`,
--     outbox for `send:`, notice for `notice:`, routing for `route:`. seq is given under the row lock of the lane and
--     has no gaps, so the next item of a lane is always done_seq + 1.
--   * (owner, epoch, state = running) is the fence: every write of a turn checks it in the same statement or transaction.
--   * Lock lanes in key order first, read in the next statement: a snapshot older than the lock misses what was committed
--     while waiting for it.
--   * No sequence and no trigger on a hot path; every unique key of a growing table contains its lane or conversation, so
--     that the schema can be distributed by conversation.

create table migration (
    number integer primary key,
    name text not null,
    applied_at timestamptz not null default now()
);

-- Who there is ------------------------------------------------------------------------------------------------------

create table team (
    team_id text primary key,
    parent_id text references team,
    purpose text not null default '',
    classify boolean not null default false
);
create unique index team_one_root on team ((parent_id is null)) where parent_id is null;

-- promised and what follows are of remote butlers: whether he says that he lives, when he last did or answered, what he
-- announced of himself and when, an endpoint set at run time (own: by himself), and who put him in quarantine.
create table member (
    system_id text primary key,
    team_id text not null references team,
    number smallint not null check (number between 1 and 5),
    engine text not null,
    options jsonb not null default '{}',
    description text not null default '',
    capabilities text[] not null default '{}',
    active boolean not null default true,
    since timestamptz not null default now(),
    promised boolean not null default false,
    last_seen_at timestamptz,
    announced jsonb not null default '{}',
    endpoint text,
    own_endpoint boolean not null default false,
    quarantined_by text,
    quarantine_reason text,
    announced_at timestamptz
);
create index member_remote on member (system_id) where engine = 'mcp';

-- Since when somebody has been there, without a gap, to hear that butlers live: silence before that says nothing.
create table listening (
    one boolean primary key default true check (one),
    since timestamptz not null default clock_timestamp(),
    at timestamptz not null default clock_timestamp()
);

create table rule (
    rule_id uuid primary key,
    team_id text not null references team,
    name text not null,
    channel text not null,
    filters jsonb not null,
    targets jsonb not null,
    priority integer not null,
    active boolean not null,
    created_by text not null,
    updated_by text not null,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    version bigint not null,
    source text not null default ''
);
create index rule_team on rule (team_id, rule_id);
create index rule_source on rule (source) where source <> '';

-- One row per version of teams, members and rules together; the newest is in force.
-- teams: teams or members may have changed, so whoever follows must look at them too.
-- known: its rules can be told from rule_change; false for versions that are older than that table.
create table rule_set (
    version bigint primary key,
    author text not null,
    reason text not null,
    created_at timestamptz not null default now(),
    teams boolean not null default true,
    known boolean not null default true
);

-- What a version did to a rule: before is null for a new rule, after for one that was removed. Insert-only; with it
-- the rules of any version can be told.
create table rule_change (
    team_id text not null,
    rule_id uuid not null,
    version bigint not null references rule_set,
    before jsonb,
    after jsonb,
    primary key (team_id, rule_id, version)
);
create index rule_change_version on rule_change (version);
create index rule_change_rule on rule_change (rule_id, version);

create table token (
    token_id uuid primary key,
    name text not null,
    hash bytea not null unique,
    role text not null check (role in ('operator', 'connector', 'agent')),
    channel text,
    endpoint text,
    system_id text,
    created_at timestamptz not null default now(),
    expires_at timestamptz,
    revoked_at timestamptz
);
create unique index token_live_name on token (name) where revoked_at is null;

create table audit (
    audit_id uuid primary key,
    at timestamptz not null default now(),
    actor text not null,
    action text not null,
    detail jsonb not null
);

create table connector (
    channel text not null,
    endpoint text not null,
    instance_id text not null,
    version text,
    state text not null,
    error_message text,
    counters jsonb not null,
    first_seen_at timestamptz not null default now(),
    last_seen_at timestamptz not null default now(),
    primary key (channel, endpoint)
);

-- What arrived ------------------------------------------------------------------------------------------------------

create table message_inbox (
    request_id uuid not null,
    conversation text not null,
    channel text not null,
    endpoint text not null,
    sender text not null,
    thread text,
    envelope json not null,
    raw bytea not null,
    media_type text not null,
    received_at timestamptz not null,
    primary key (request_id, conversation)
);

create table dedupe (
    conversation text not null,
    key text not null,
    request_id uuid not null,
    primary key (conversation, key)
);

-- branches = deliveries + dead letters that this decision made: what the books are balanced against.
-- parts: what of the text came to which team, where a model split it; '' is for all whom it does not name, and a team that
-- it does not tell of has the whole. null: all have the whole.
create table decision (
    request_id uuid not null,
    conversation text not null,
    n smallint not null,
    version bigint not null,
    branches smallint not null,
    trail json not null,
    decided_at timestamptz not null,
    facts json,
    parts jsonb,
    primary key (request_id, conversation, n)
);

-- The engine --------------------------------------------------------------------------------------------------------

create table lane (
    key text primary key,
    kind text not null,
    pool text not null,
    tier smallint not null,
    last_seq bigint not null default 0,
    done_seq bigint not null default 0,
    state text not null default 'idle' check (state in ('idle', 'ready', 'running', 'paused')),
    owner bigint,
    epoch bigint not null default 0,
    attempts integer not null default 0,
    ready_at timestamptz not null default now(),
    lease_until timestamptz
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05);
create index lane_ready on lane (pool, tier, ready_at) where state = 'ready';
create index lane_owner on lane (owner) where state = 'running' and owner is not null;
create index lane_lease on lane (lease_until) where state = 'running' and lease_until is not null;
create index lane_busy on lane (pool) where state <> 'idle';

-- text: the butler's part of the message where a model split it; null is the whole. n: the decision that made it.
create table delivery (
    lane text not null,
    seq bigint not null,
    conversation text not null,
    request_id uuid not null,
    system_id text not null,
    team_id text not null,
    segment smallint not null default 0,
    state text not null default 'pending' check (state in ('pending', 'answered', 'declined', 'dead', 'cancelled')),
    error_class text,
    created_at timestamptz not null,
    settled_at timestamptz,
    text text,
    n smallint not null default 1,
    primary key (lane, seq)
) with (fillfactor = 85);
create unique index delivery_once on delivery (request_id, lane, n, segment);

-- A message that waits to be classified, or behind one of its conversation that does; its decision is not yet made.
create table routing (
    lane text not null,
    seq bigint not null,
    conversation text not null,
    request_id uuid not null,
    pinned text,
    facts json not null,
    state text not null default 'pending' check (state in ('pending', 'routed')),
    created_at timestamptz not null,
    settled_at timestamptz,
    primary key (lane, seq)
) with (fillfactor = 85);
create index routing_request on routing (request_id);
create index routing_pending on routing (created_at) where state = 'pending';

-- One row per finished run of a butler: answered, failed, lost with its worker, …
create table turn (
    lane text not null,
    seq bigint not null,
    epoch bigint not null,
    outcome text not null,
    error_class text,
    error text,
    engine text,
    worker bigint,
    started_at timestamptz,
    finished_at timestamptz not null,
    primary key (lane, seq, epoch)
);

create table step (
    lane text not null,
    seq bigint not null,
    n integer not null,
    name text not null,
    effect text not null check (effect in ('idempotent', 'queryable', 'effectful')),
    state text not null check (state in ('started', 'done')),
    idempotency_key uuid not null,
    epoch bigint not null,
    result jsonb,
    started_at timestamptz not null default clock_timestamp(),
    done_at timestamptz,
    primary key (lane, seq, n)
);

create table outbox (
    lane text not null,
    seq bigint not null,
    outbox_id uuid not null,
    conversation text not null,
    request_id uuid not null,
    system_id text not null,
    channel text not null,
    endpoint text not null,
    thread text,
    recipient text not null,
    reply_to text not null,
    text text not null,
    state text not null check (state in ('pending', 'sending', 'sent', 'uncertain', 'failed', 'dead')),
    idempotent boolean not null default false,
    platform_message_id text,
    error text,
    created_at timestamptz not null,
    settled_at timestamptz,
    primary key (lane, seq)
) with (fillfactor = 85);
create index outbox_request on outbox (request_id);
create index outbox_id on outbox (outbox_id);
create index outbox_platform on outbox (conversation, platform_message_id) where platform_message_id is not null;
create index outbox_open on outbox (created_at, outbox_id) where state <> 'sent';
-- A hash, because a recipient may be longer than an entry of an index.
create index outbox_told on outbox (hashtextextended(recipient, 0), created_at) where system_id = 'switchboard';

-- One row per attempt to send, and what the platform said of it.
create table receipt (
    outbox_id uuid not null,
    lane text not null,
    epoch bigint not null,
    outcome text not null,
    platform_message_id text,
    error text,
    at timestamptz not null,
    primary key (outbox_id, lane, epoch)
);

-- handler is who is told, notice_lane and notice_seq by which notice: null while it waits for a digest. rerouted_n is the
-- decision that took it back into the house. sender_spared: the sender is not to be told (mailing lists, automatic mail).
-- emptied_at: it was handled long ago; payload, raw and text are kept no more. text: the part of the message that died
-- here, where a model split it; null is the whole. n: the decision that it is of.
create table dead_letter (
    dead_letter_id uuid not null,
    conversation text not null,
    request_id uuid not null,
    team_id text not null,
    channel text not null,
    payload jsonb not null,
    raw bytea not null,
    category text not null,
    reason text not null,
    lane text,
    seq bigint,
    system_id text,
    handler text,
    received_at timestamptz not null,
    created_at timestamptz not null,
    status text not null default 'pending' check (status in ('pending', 'handled')),
    handled_by_system_id text,
    resolution text,
    handled_at timestamptz,
    rerouted_n smallint,
    notice_lane text,
    notice_seq bigint,
    sender_told_at timestamptz,
    emptied_at timestamptz,
    sender_spared boolean not null default false,
    text text,
    n smallint not null default 1,
    primary key (dead_letter_id, conversation)
);
create index dead_letter_request on dead_letter (request_id);
create index dead_letter_team on dead_letter (team_id, dead_letter_id);
create index dead_letter_notice on dead_letter (notice_lane, notice_seq) where notice_lane is not null;
create index dead_letter_waiting on dead_letter (handler, dead_letter_id)
    where handler is not null and notice_lane is null and status = 'pending';
create index dead_letter_untold on dead_letter (dead_letter_id)
    where status = 'pending' and sender_told_at is null and not sender_spared;
create index dead_letter_pending on dead_letter (dead_letter_id) where status = 'pending';
create index dead_letter_category on dead_letter (category, dead_letter_id);
create index dead_letter_kept on dead_letter (handled_at) where status = 'handled' and emptied_at is null;

-- A dead letter told to the System4 that handles it; a digest, in the lane `notice:<System4>:digest`, tells of as many as
-- `letters` says, and names the first.
create table notice (
    lane text not null,
    seq bigint not null,
    dead_letter_id uuid not null,
    conversation text not null,
    request_id uuid not null,
    team_id text not null,
    system_id text not null,
    state text not null default 'pending' check (state in ('pending', 'delivered', 'failed')),
    error_class text,
    created_at timestamptz not null,
    settled_at timestamptz,
    letters integer not null default 1,
    primary key (lane, seq)
);
create index notice_request on notice (request_id);
create index notice_pending on notice (system_id) where state = 'pending';

create table worker (
    worker_id bigint generated always as identity primary key,
    host text not null,
    pid integer not null,
    version text not null,
    ttl interval not null,
    has_lock boolean not null,
    started_at timestamptz not null default clock_timestamp(),
    beat timestamptz not null default clock_timestamp()
);

create table schedule (
    name text primary key,
    every interval not null,
    next_at timestamptz not null default now(),
    last_at timestamptz,
    last_error text
);

-- What the memo engine keeps ------------------------------------------------------------------------------------------

create table memo (
    conversation text not null,
    memo_id uuid not null,
    system_id text not null,
    request_id uuid not null,
    person text not null,
    private boolean not null,
    text text not null,
    words tsvector generated always as (to_tsvector('simple', left(text, 100000))) stored,
    created_at timestamptz not null default now(),
    primary key (conversation, memo_id)
);
create index memo_words on memo using gin (words);
create index memo_person on memo (system_id, person);

-- Functions: one per transaction of 3. They exist to be one round trip, and to lock before they read. ---------------------

-- Accept: dedupe, store, decide, deliver; one row back per message that is not simply new, and one with ord 0 if workers
-- are to be woken. d_*: deliveries, x_*: branches nobody could take; *_ord is the message they belong to, from 1.
-- Of _raw, in which all are one after the other, a message has _size bytes from _at. _asks: what must be classified first,
-- and is not decided here; null where the caller knows nobody who classifies. Under the lock of its conversation's route
-- lane whatever comes later waits behind it, decided or not.
create function accept_messages(
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
create function settle_route(
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

-- What of a message came to a team by decision n: null is the whole, and so it is for nobody's team.
create function part_of(_request_id uuid, _conversation text, _n smallint, _team text) returns text
language sql stable as $$
    select coalesce(d.parts ->> _team, d.parts ->> '') from decision d
    where _team is not null and d.request_id = _request_id and d.conversation = _conversation and d.n = _n;
$$;

-- Dead letters, and the notices to their handlers. The caller holds the locks of the notice lanes. _text: the part of each,
-- null is the whole; _n: the decision that each is of.
-- A System4 with 20 notices before it is told of no further letter singly: those wait for a digest. Transactions at the
-- same time do not see each other's notices; a few more than 20 cost less than a lock that all of them wait for.
create function bury(
    _id uuid[], _request_id uuid[], _conversation text[], _team text[], _category text[], _reason text[],
    _handler text[], _lane text[], _seq bigint[], _system text[], _text text[] default null, _n smallint[] default null
) returns void
language plpgsql as $$
#variable_conflict use_column
begin
    with given as (
        select x.*, row_number() over (partition by x.handler order by x.id) as nth
        from unnest(_id, _request_id, _conversation, _team, _category, _reason, _handler, _lane, _seq, _system, _text, _n)
             as x (id, request_id, conversation, team, category, reason, handler, lane, seq, system_id, part, n)
    ), busy as (
        select h.handler, (
            select count(*) from (
                select from notice n where n.system_id = h.handler and n.state = 'pending' limit 20
            ) p
        ) as notices
        from (select distinct g.handler from given g where g.handler is not null) h
    ), told as (
        select g.id, l.key as lane, l.last_seq + row_number() over (partition by l.key order by g.id) as seq
        from given g
        join busy b on b.handler = g.handler and b.notices + g.nth <= 20
        join lane l on l.key = 'notice:' || g.handler || ':' || g.conversation
    ), buried as (
        insert into dead_letter (dead_letter_id, conversation, request_id, team_id, channel, payload, raw, category,
                                 reason, lane, seq, system_id, handler, received_at, created_at, notice_lane, notice_seq,
                                 text, n)
            select g.id, g.conversation, g.request_id, g.team, m.channel, m.envelope, m.raw, g.category,
                   g.reason, g.lane, g.seq, g.system_id, g.handler, m.received_at, clock_timestamp(), t.lane, t.seq,
                   g.part, coalesce(g.n, 1)
            from given g
            join message_inbox m on m.request_id = g.request_id and m.conversation = g.conversation
            left join told t on t.id = g.id
    ), written as (
        insert into notice (lane, seq, dead_letter_id, conversation, request_id, team_id, system_id, created_at)
            select t.lane, t.seq, g.id, g.conversation, g.request_id, g.team, g.handler, clock_timestamp()
            from told t join given g on g.id = t.id
    ), last as (
        select t.lane, max(t.seq) as seq from told t group by t.lane
    )
    update lane l set
        last_seq = last.seq,
        ready_at = case when l.state = 'idle' then now() else l.ready_at end,
        state = case when l.state = 'idle' then 'ready' else l.state end
        from last where l.key = last.lane;
end $$;

-- Digest: letters of one System4 that wait to be told, in one notice at the end of its lane of digests. The last one
-- there grows, unless it is next: that one may have been read already. Returns how many letters it told of: 200 at most,
-- so that few conversations are held at once; the caller asks again until it is 0.
create function digest_letters(_handler text) returns bigint
language plpgsql as $$
#variable_conflict use_column
declare
    _key text := 'notice:' || _handler || ':digest';
    _ids uuid[];
    _grows boolean;
    _seq bigint;
begin
    insert into lane (key, kind, pool, tier) values (_key, 'notice', 'work', 3) on conflict do nothing;
    perform from lane l where l.key = _key for no key update;
    select array_agg(x.dead_letter_id) into _ids
        from (
            select x.dead_letter_id from dead_letter x
            where x.handler = _handler and x.notice_lane is null and x.status = 'pending'
            order by x.dead_letter_id limit 200 for no key update skip locked
        ) x;
    if _ids is null then
        return 0;
    end if;
    select l.last_seq > l.done_seq + 1, l.last_seq into _grows, _seq from lane l where l.key = _key;
    if _grows then
        update notice n set letters = n.letters + cardinality(_ids) where n.lane = _key and n.seq = _seq;
    else
        _seq := _seq + 1;
        insert into notice (lane, seq, dead_letter_id, conversation, request_id, team_id, system_id, created_at, letters)
            select _key, _seq, x.dead_letter_id, x.conversation, x.request_id, x.team_id, _handler, clock_timestamp(),
                   cardinality(_ids)
            from dead_letter x where x.dead_letter_id = _ids[1];
        update lane l set
            last_seq = _seq,
            ready_at = case when l.state = 'idle' then clock_timestamp() else l.ready_at end,
            state = case when l.state = 'idle' then 'ready' else l.state end
            where l.key = _key;
    end if;
    update dead_letter x set notice_lane = _key, notice_seq = _seq where x.dead_letter_id = any (_ids);
    return cardinality(_ids);
end $$;

-- Whoever decides about a message again holds, in this order, the lanes of those who get it or are told, its letters, and
-- its first decision: two at once must not bring it to one butler twice, nor take the same number.
create function hold_message(_request_id uuid, _conversation text, d_lane text[], x_handler text[]) returns void
language plpgsql as $$
declare
    _touched text[] := d_lane || (
        select coalesce(array_agg('notice:' || h.handler || ':' || _conversation), '{}')
        from unnest(x_handler) as h (handler) where h.handler is not null
    );
begin
    insert into lane (key, kind, pool, tier)
        select distinct on (l.key) l.key, split_part(l.key, ':', 1), 'work', 3 from unnest(_touched) as l (key) order by l.key
        on conflict do nothing;
    perform from lane l where l.key = any (_touched) order by l.key for no key update;
    perform from dead_letter x where x.request_id = _request_id order by x.dead_letter_id for no key update;
    perform from decision d where d.request_id = _request_id and d.n = 1 for no key update;
end $$;

-- A further decision about a message that is held, with its deliveries at the end of their lanes; its number, or null where
-- all of them have the message, or were done with it. d_*: who is to get it, x_*: branches that again nobody can take. _text:
-- but this part of it is brought on, null is the whole; who has another part has neither this one nor the whole.
create function decide_again(
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

-- Reroute: a further decision about what died of the letter's message, and the letter handled; or nothing at all. d_*, x_*
-- as in decide_again. The outcome: rerouted; handled (it was before: by decision n, or by hand where n is null); taken (all of
-- them have the message, or were done with it); no row where there is no such letter.
create function reroute_letter(
    _id uuid, _by text, _resolution text, _version bigint, _trail text, _tier smallint,
    d_lane text[], d_system text[], d_team text[],
    x_id uuid[], x_team text[], x_category text[], x_reason text[], x_handler text[]
) returns table (outcome text, n smallint)
language plpgsql as $$
#variable_conflict use_column
declare
    _request_id uuid;
    _conversation text;
    _text text;
    _status text;
    _n smallint;
begin
    select x.request_id, x.conversation, x.text into _request_id, _conversation, _text from dead_letter x where x.dead_letter_id = _id;
    if not found then
        return;
    end if;
    perform hold_message(_request_id, _conversation, d_lane, x_handler);

    select x.status, x.rerouted_n into _status, _n from dead_letter x where x.dead_letter_id = _id;
    if _status = 'handled' then
        return query select 'handled', _n;
        return;
    end if;
    _n := decide_again(_request_id, _conversation, _version, _trail, _tier, d_lane, d_system, d_team,
                       x_id, x_team, x_category, x_reason, x_handler, _text);
    if _n is null then
        return query select 'taken', null::smallint;
        return;
    end if;
    update dead_letter x set
        status = 'handled', handled_by_system_id = _by, resolution = _resolution, handled_at = clock_timestamp(),
        rerouted_n = _n
        where x.dead_letter_id = _id;
    return query select 'rerouted', _n;
end $$;

-- Correct: where a message should have gone, in the log of the teams that asked a model (_teams; null: all of them); and
-- unless _lane is null a further decision by which that butler gets it. Letters of this message that these teams have
-- because no model chose are settled by it. The butler gets what of it came to team _of (null: the whole). decided: false while it waits for a model, and then nothing has changed; noted:
-- the log said something else before; n: the decision, null where the butler has the message already.
create function correct_route(
    _request_id uuid, _to text, _by text, _reason text, _teams text[],
    _version bigint, _trail text, _tier smallint, _lane text, _team text, _of text default null
) returns table (decided boolean, noted boolean, n smallint)
language plpgsql as $$
#variable_conflict use_column
declare
    _conversation text;
    _noted boolean;
    _n smallint;
begin
    select m.conversation into _conversation from message_inbox m where m.request_id = _request_id;
    if not found then
        return;
    end if;
    perform hold_message(_request_id, _conversation, array_remove(array[_lane], null), '{}');
    if not exists (select from decision d where d.request_id = _request_id and d.n = 1) then
        return query select false, false, null::smallint;
        return;
    end if;

    update classification c set
        corrected_to = _to, corrected_by = _by, correction = _reason, corrected_at = clock_timestamp()
        where c.request_id = _request_id and (_teams is null or c.team_id = any (_teams))
          and c.corrected_to is distinct from _to;
    _noted := found;
    if _lane is not null then
        _n := decide_again(_request_id, _conversation, _version, _trail, _tier, array[_lane], array[_to], array[_team],
                           '{}', '{}', '{}', '{}', '{}',
                           (select d.parts ->> _of from decision d where d.request_id = _request_id and d.n = 1));
    end if;
    if _n is not null then
        update dead_letter x set
            status = 'handled', handled_by_system_id = _by, handled_at = clock_timestamp(), rerouted_n = _n,
            resolution = coalesce(_reason, 'corrected')
            where x.request_id = _request_id and x.status = 'pending' and x.category = 'classification_failed'
              and (_teams is null or x.team_id = any (_teams));
    end if;
    return query select true, _noted, _n;
end $$;

-- Tell the sender, once per message and while nobody has taken it, that nobody could. _pool as in settle_turns.
-- A machine that answers each of our words would go round in circles, in a new conversation each time if it likes: a sender
-- is told by one endpoint five times an hour at most.
create function tell_sender(_request_id uuid, _outbox_id uuid, _text text, _pool text) returns boolean
language plpgsql as $$
#variable_conflict use_column
declare
    _conversation text := (select x.conversation from dead_letter x where x.request_id = _request_id limit 1);
    _key text := 'send:' || _conversation;
    _seq bigint;
begin
    insert into lane (key, kind, pool, tier) values (_key, 'send', coalesce(_pool, 'work'), 1) on conflict do nothing;
    perform from lane l where l.key = _key for no key update;
    perform from dead_letter x where x.request_id = _request_id order by x.dead_letter_id for no key update;

    if message_state(_request_id) <> 'dead'
       or exists (select from outbox o where o.request_id = _request_id)
       or exists (
           select from dead_letter x
           where x.request_id = _request_id and (x.status <> 'pending' or x.sender_told_at is not null or x.sender_spared)
       ) then
        return false;
    end if;
    select l.last_seq + 1 into _seq from lane l where l.key = _key;
    if (select count(*) from message_inbox m
        join outbox o on hashtextextended(o.recipient, 0) = hashtextextended(m.sender, 0) and o.system_id = 'switchboard'
        where m.request_id = _request_id and m.conversation = _conversation
          and (o.channel, o.endpoint, o.recipient) = (m.channel, m.endpoint, m.sender)
          and o.created_at > clock_timestamp() - interval '1 hour') >= 5 then
        update dead_letter x set sender_spared = true where x.request_id = _request_id;
        return false;
    end if;
    insert into outbox (lane, seq, outbox_id, conversation, request_id, system_id, channel, endpoint, thread, recipient,
                        reply_to, text, state, created_at, settled_at)
        select _key, _seq, _outbox_id, m.conversation, m.request_id, 'switchboard', m.channel, m.endpoint, m.thread,
               m.sender, m.envelope #>> '{event,external_event_id}', _text,
               case when _pool is null then 'sent' else 'pending' end, clock_timestamp(),
               case when _pool is null then clock_timestamp() end
        from message_inbox m where m.request_id = _request_id and m.conversation = _conversation;
    update lane l set
        last_seq = _seq,
        done_seq = case when _pool is null then _seq else l.done_seq end,
        pool = coalesce(_pool, l.pool),
        ready_at = case when l.state = 'idle' then clock_timestamp() else l.ready_at end,
        state = case when l.state = 'idle' and _pool is not null then 'ready' else l.state end
        where l.key = _key;
    update dead_letter x set sender_told_at = clock_timestamp() where x.request_id = _request_id;
    return true;
end $$;

-- Claim: _quota[1] lanes of tier 0, _quota[2] of tier 1, … of one pool.
-- statement_timestamp, not clock_timestamp: only a clock that stands still can be looked up in an index.
create function claim_lanes(_pool text, _owner bigint, _lease interval, _quota integer[])
returns table (key text, kind text, tier smallint, seq bigint, epoch bigint, attempts integer)
language sql rows 20 as $$
    with picked as (
        select p.key
        from unnest(_quota) with ordinality as q (n, tier)
        cross join lateral (
            select l.key from lane l
            where l.state = 'ready' and l.pool = _pool and l.tier = q.tier - 1 and l.ready_at <= statement_timestamp()
            order by l.ready_at limit q.n for no key update skip locked
        ) p
        -- whoever was declared dead while he was stopped must not begin anew under his old name
        where _owner is null or exists (select from worker w where w.worker_id = _owner)
    )
    update lane l set state = 'running', owner = _owner, lease_until = clock_timestamp() + _lease, epoch = l.epoch + 1,
                      attempts = l.attempts + 1
        from picked where l.key = picked.key
        returning l.key, l.kind, l.tier, l.done_seq + 1, l.epoch, l.attempts;
$$;

-- Step: false means fenced. The row of the lane is locked against a rescue while the step is written.
create function write_step(
    _owner bigint, _lane text, _epoch bigint, _seq bigint, _n integer, _name text, _effect text, _key uuid, _state text,
    _result text
) returns boolean
language sql as $$
    with held as (
        select from lane l
        where l.key = _lane and l.owner = _owner and l.epoch = _epoch and l.state = 'running' and l.done_seq + 1 = _seq
        for share
    ), due as (
        -- A rescue locks workers before lanes. Whoever holds a lane must therefore never wait for a worker.
        select w.worker_id from worker w
        where w.worker_id = _owner and w.beat < clock_timestamp() - w.ttl / 8 and exists (select from held)
        for no key update skip locked
    ), beaten as (
        update worker w set beat = clock_timestamp() from due where w.worker_id = due.worker_id
    ), written as (
        insert into step (lane, seq, n, name, effect, state, idempotency_key, epoch, result, done_at)
            select _lane, _seq, _n, _name, _effect, _state, _key, _epoch, _result::jsonb,
                   case when _state = 'done' then clock_timestamp() end
            from held
            on conflict (lane, seq, n) do update
                set state = excluded.state, epoch = excluded.epoch, result = excluded.result, done_at = excluded.done_at
    )
    select exists (select from held);
$$;

-- Complete: the turn, its delivery or notice, its reply, its dead letter and the next item, or nothing at all (fenced).
-- A reply goes to the conversation of the message, and nowhere else: it is looked up here, not given.
-- _pool is where the reply waits: null for a mailbox that is read at the door.
create function settle_turns(
    _owner bigint, _lane text[], _epoch bigint[], _seq bigint[], _outcome text[], _error_class text[], _error text[],
    _engine text[], _started_at timestamptz[], _hand_on boolean[], _pause boolean[],
    _outbox_id uuid[], _text text[], _pool text[],
    _dead_id uuid[], _category text[], _reason text[], _handler text[]
) returns table (lane text, ok boolean, next_seq bigint)
language plpgsql as $$
#variable_conflict use_column
declare
    -- a lane of a butler reads kind:system_id:conversation, and of these a butler's name alone may contain a colon
    _conversation text[] := (select array_agg(substring(l.key from '[^:]*$') order by l.ord)
                             from unnest(_lane) with ordinality as l (key, ord));
    -- replies that are read at the door never wait for a sender, so they have a lane of their own that is always idle
    _send_lane text[] := (select array_agg(case when r.pool is null then 'mailbox:' else 'send:' end || r.conversation order by r.ord)
                          from unnest(_pool, _conversation) with ordinality as r (pool, conversation, ord));
    _touched text[] := (
        select array_agg(k.key) from (
            select unnest(_lane) as key
            union select _send_lane[i] from generate_subscripts(_lane, 1) i where _outbox_id[i] is not null
            union select 'notice:' || _handler[i] || ':' || _conversation[i]
                from generate_subscripts(_lane, 1) i where _dead_id[i] is not null and _handler[i] is not null
        ) k
    );
    _ok boolean[];
begin
    insert into lane (key, kind, pool, tier)
        select distinct on (k.key) k.key, split_part(k.key, ':', 1), coalesce(p.pool, 'work'), 1
        from unnest(_touched) as k (key)
        left join unnest(_send_lane, _pool) as p (key, pool) on p.key = k.key
        where not k.key = any (_lane) order by k.key
        on conflict do nothing;
    perform from lane l where l.key = any (_touched) order by l.key for no key update;

    select array_agg(l.key is not null order by i.ord) into _ok
        from unnest(_lane, _epoch, _seq) with ordinality as i (lane, epoch, seq, ord)
        left join lane l on l.key = i.lane and l.owner = _owner and l.epoch = i.epoch and l.state = 'running'
                        and l.done_seq + 1 = i.seq;

    insert into turn
        select i.lane, i.seq, i.epoch, i.outcome, i.error_class, i.error, i.engine, _owner, i.started_at, clock_timestamp()
        from unnest(_lane, _seq, _epoch, _outcome, _error_class, _error, _engine, _started_at, _ok)
             as i (lane, seq, epoch, outcome, error_class, error, engine, started_at, ok)
        where i.ok;

    update delivery d set
        state = case when i.dead_id is not null then 'dead' else i.outcome end,
        error_class = i.error_class, settled_at = clock_timestamp()
        from unnest(_lane, _seq, _outcome, _error_class, _dead_id, _ok) as i (lane, seq, outcome, error_class, dead_id, ok)
        where i.ok and d.lane = i.lane and d.seq = i.seq;
    update notice n set
        state = case when i.outcome in ('answered', 'declined') then 'delivered' else 'failed' end,
        error_class = i.error_class, settled_at = clock_timestamp()
        from unnest(_lane, _seq, _outcome, _error_class, _ok) as i (lane, seq, outcome, error_class, ok)
        where i.ok and i.lane like 'notice:%' and n.lane = i.lane and n.seq = i.seq;

    if exists (select from unnest(_outbox_id) as o (id) where o.id is not null) then
        with numbered as (
            select l.last_seq + row_number() over (partition by l.key order by i.ord) as send_seq, i.*
            from unnest(_lane, _seq, _outbox_id, _text, _pool, _send_lane, _conversation, _ok) with ordinality
                 as i (lane, seq, outbox_id, text, pool, send_lane, conversation, ok, ord)
            join lane l on l.key = i.send_lane
            where i.ok and i.outbox_id is not null
        ), written as (
            insert into outbox (lane, seq, outbox_id, conversation, request_id, system_id, channel, endpoint, thread, recipient,
                                reply_to, text, state, created_at, settled_at)
                select n.send_lane, n.send_seq, n.outbox_id, n.conversation, d.request_id, d.system_id, m.channel, m.endpoint,
                       m.thread, m.sender, m.envelope #>> '{event,external_event_id}', n.text,
                       case when n.pool is null then 'sent' else 'pending' end, clock_timestamp(),
                       case when n.pool is null then clock_timestamp() end
                from numbered n
                join delivery d on d.lane = n.lane and d.seq = n.seq
                join message_inbox m on m.request_id = d.request_id and m.conversation = d.conversation
        ), last as (
            select n.send_lane, max(n.send_seq) as seq, bool_and(n.pool is null) as mailbox, max(n.pool) as pool
            from numbered n group by n.send_lane
        )
        update lane l set
            last_seq = last.seq,
            done_seq = case when last.mailbox then last.seq else l.done_seq end,
            pool = coalesce(last.pool, l.pool),
            ready_at = case when l.state = 'idle' then now() else l.ready_at end,
            state = case when l.state = 'idle' and not last.mailbox then 'ready' else l.state end
            from last where l.key = last.send_lane;
    end if;

    if exists (select from unnest(_dead_id) as x (id) where x.id is not null) then
        perform bury(array_agg(i.dead_id), array_agg(d.request_id), array_agg(d.conversation), array_agg(d.team_id),
                     array_agg(i.category), array_agg(i.reason), array_agg(i.handler), array_agg(i.lane), array_agg(i.seq),
                     array_agg(d.system_id), array_agg(d.text), array_agg(d.n))
            from unnest(_lane, _seq, _dead_id, _category, _reason, _handler, _ok)
                 as i (lane, seq, dead_id, category, reason, handler, ok)
            join delivery d on d.lane = i.lane and d.seq = i.seq
            where i.ok and i.dead_id is not null;
    end if;

    return query
        with moved as (
            update lane l set
                done_seq = i.seq,
                attempts = case when i.hand_on and not i.pause and l.last_seq > i.seq then 1 else 0 end,
                owner = case when i.hand_on and not i.pause and l.last_seq > i.seq then l.owner end,
                state = case when i.pause then 'paused' when l.last_seq = i.seq then 'idle'
                             when i.hand_on then 'running' else 'ready' end,
                ready_at = clock_timestamp()
                from unnest(_lane, _seq, _hand_on, _pause, _ok) as i (lane, seq, hand_on, pause, ok)
                where i.ok and l.key = i.lane
                returning l.key, case when l.state = 'running' then l.done_seq + 1 end as next_seq
        )
        select i.lane, i.ok, m.next_seq
        from unnest(_lane, _ok) as i (lane, ok) left join moved m on m.key = i.lane;
end $$;

-- Fail, to be tried again: the lane waits, so that nothing overtakes. False means fenced.
create function retry_turn(
    _owner bigint, _lane text, _epoch bigint, _seq bigint, _outcome text, _error_class text, _error text, _engine text,
    _started_at timestamptz, _delay interval
) returns boolean
language sql as $$
    with freed as (
        update lane l set state = 'ready', owner = null, ready_at = clock_timestamp() + _delay
        where l.key = _lane and l.owner = _owner and l.epoch = _epoch and l.state = 'running' and l.done_seq + 1 = _seq
        returning l.key
    ), written as (
        insert into turn
            select _lane, _seq, _epoch, _outcome, _error_class, _error, _engine, _owner, _started_at, clock_timestamp()
            from freed
    )
    select exists (select from freed);
$$;

-- Rescue: workers that let go of their lock or stopped beating lose their lanes to whoever is alive.
-- The lock is only asked of workers that took one: the others live by their beat alone. A lane is freed because its owner
-- is not registered, whenever that came about: a claim may be committed after its worker was struck off.
create function rescue_lanes(_lock_class integer) returns bigint
language plpgsql as $$
#variable_conflict use_column
declare
    _count bigint;
begin
    with gone as (
        select w.worker_id from worker w
        where w.beat + w.ttl < clock_timestamp()
           or (w.has_lock and pg_try_advisory_xact_lock(_lock_class, w.worker_id::integer))
        for update skip locked
    )
    delete from worker w using gone where w.worker_id = gone.worker_id;
    with freed as (
        select l.key, l.owner from lane l
        where l.state = 'running' and l.owner is not null
          and not exists (select from worker w where w.worker_id = l.owner)
        order by l.key for no key update
    ), moved as (
        update lane l set state = 'ready', owner = null, ready_at = clock_timestamp()
        from freed where l.key = freed.key returning l.key, l.kind, l.done_seq + 1 as seq, l.epoch, freed.owner
    ), turns as (
        insert into turn (lane, seq, epoch, outcome, error_class, error, worker, finished_at)
            select m.key, m.seq, m.epoch, 'lost', 'worker_lost', 'the worker died or was cut off', m.owner, clock_timestamp()
            from moved m where m.kind <> 'send'
    ), receipts as (
        insert into receipt (outbox_id, lane, epoch, outcome, error, at)
            select o.outbox_id, m.key, m.epoch, 'lost', 'the worker died or was cut off', clock_timestamp()
            from moved m join outbox o on o.lane = m.key and o.seq = m.seq where m.kind = 'send'
    )
    select count(*) into _count from moved;
    return _count;
end $$;

-- A worker that leaves in good order: what it could not finish is taken over at once, and does not count as an attempt.
create function release_worker(_worker bigint) returns bigint
language plpgsql as $$
declare
    _count bigint;
begin
    delete from worker w where w.worker_id = _worker;
    perform from lane l where l.owner = _worker and l.state = 'running' order by l.key for no key update;
    update lane l set state = 'ready', owner = null, ready_at = clock_timestamp(), attempts = greatest(l.attempts - 1, 0)
        where l.owner = _worker and l.state = 'running';
    get diagnostics _count = row_count;
    return _count;
end $$;

-- Lease replies of one endpoint to a connector, the next of each conversation, oldest first (send lanes are of tier 1).
create function lease_replies(_pool text, _limit integer, _lease interval, _idempotent boolean)
returns table (
    outbox_id uuid, lane text, seq bigint, conversation text, request_id uuid, system_id text, channel text, endpoint text,
    thread text, recipient text, reply_to text, text text, state text, platform_message_id text, error text,
    created_at timestamptz, settled_at timestamptz, attempts integer, lease bigint
)
language plpgsql as $$
#variable_conflict use_column
declare
    _claimed jsonb := (select jsonb_agg(c) from claim_lanes(_pool, null, _lease, array[0, _limit]) c);
begin
    -- a statement of its own: in that of the claim a reply committed in between would be claimed and not be seen
    return query
        update outbox o set state = 'sending', idempotent = _idempotent
            from jsonb_to_recordset(_claimed) as c (key text, seq bigint, epoch bigint, attempts integer)
            where o.lane = c.key and o.seq = c.seq
            returning o.outbox_id, o.lane, o.seq, o.conversation, o.request_id, o.system_id, o.channel, o.endpoint,
                o.thread, o.recipient, o.reply_to, o.text, o.state, o.platform_message_id, o.error,
                o.created_at, o.settled_at, c.attempts, c.epoch;
end $$;

-- Settle one send: a receipt with the outcome; a retryable one goes back into the lane until its attempts are used up.
-- Returns the state the reply is in now, or null when the lease is not the holder's any more.
create function settle_send(
    _owner bigint, _lane text, _epoch bigint, _seq bigint, _outcome text, _platform_message_id text, _error text,
    _delay interval, _max_attempts integer
) returns text
language plpgsql as $$
#variable_conflict use_column
declare
    _attempts integer;
    _state text;
begin
    select l.attempts into _attempts from lane l
        where l.key = _lane and l.epoch = _epoch and l.state = 'running' and l.done_seq + 1 = _seq
          and l.owner is not distinct from _owner
        for no key update;
    if not found then
        return null;
    end if;
    _state := case when _outcome <> 'retryable' then _outcome when _attempts >= _max_attempts then 'dead' else 'pending' end;
    insert into receipt
        select o.outbox_id, _lane, _epoch, _outcome, _platform_message_id, _error, clock_timestamp()
        from outbox o where o.lane = _lane and o.seq = _seq;
    update outbox o set
        state = _state, error = _error,
        platform_message_id = coalesce(_platform_message_id, o.platform_message_id),
        settled_at = case when _state <> 'pending' then clock_timestamp() end
        where o.lane = _lane and o.seq = _seq;
    update lane l set
        owner = null, lease_until = null,
        done_seq = case when _state = 'pending' then l.done_seq else _seq end,
        attempts = case when _state = 'pending' then l.attempts else 0 end,
        state = case when _state = 'pending' or l.last_seq > _seq then 'ready' else 'idle' end,
        ready_at = clock_timestamp() + case when _state = 'pending' then _delay else interval '0' end
        where l.key = _lane;
    return _state;
end $$;

-- Leases that a connector let run out: what takes an idempotency key is offered again, the rest is honestly uncertain.
create function expire_leases(_max_attempts integer) returns bigint
language plpgsql as $$
#variable_conflict use_column
declare
    _due record;
    _count bigint := 0;
begin
    for _due in
        select l.key, l.epoch, o.seq, o.idempotent
        from lane l join outbox o on o.lane = l.key and o.seq = l.done_seq + 1
        where l.state = 'running' and l.owner is null and l.lease_until < clock_timestamp()
        order by l.key for no key update of l skip locked
    loop
        perform settle_send(null, _due.key, _due.epoch, _due.seq,
            case when _due.idempotent then 'retryable' else 'uncertain' end, null,
            'the lease ran out before a receipt came', interval '0', _max_attempts);
        _count := _count + 1;
    end loop;
    return _count;
end $$;

-- Send again what was not (or perhaps not) sent: the same reply with the same idempotency key, at the end of its lane.
create function resend_reply(_outbox_id uuid) returns boolean
language plpgsql as $$
#variable_conflict use_column
declare
    _lane text := (select o.lane from outbox o where o.outbox_id = _outbox_id);
begin
    perform from lane l where l.key = _lane for no key update;
    update outbox o set seq = l.last_seq + 1, state = 'pending', error = null, settled_at = null
        from lane l where l.key = _lane and o.outbox_id = _outbox_id and o.state in ('uncertain', 'failed', 'dead');
    if not found then
        return false;
    end if;
    update lane l set
        last_seq = l.last_seq + 1,
        ready_at = case when l.state = 'idle' then clock_timestamp() else l.ready_at end,
        state = case when l.state = 'idle' then 'ready' else l.state end
        where l.key = _lane;
    return true;
end $$;

-- What became of a message as a whole: in flight while anything is, then the best that happened to it.
create function message_state(_request_id uuid) returns text
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
create index route_call_at on route_call (at);

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
    corrected_at timestamptz,
    correction text,
    primary key (request_id, conversation, team_id, n)
);
create index classification_at on classification (at);
create index classification_corrected on classification (request_id) where corrected_to is not null;

-- What models have cost on a day, and what running sessions have set aside; what nobody settled is free again at `until`.
-- refused: how often a model was not asked because of a cap of the day.
create table model_day (
    day date primary key,
    tokens bigint not null default 0,
    micros bigint not null default 0,
    refused bigint not null default 0
);
create table model_reservation (
    reservation_id uuid primary key,
    day date not null,
    tokens bigint not null,
    micros bigint not null,
    until timestamptz not null
);

-- Models that a process leaves alone for a while: they failed, or their provider asked for a pause.
create table model_rest (
    model text not null,
    process uuid not null,
    until timestamptz not null,
    why text not null,
    at timestamptz not null default clock_timestamp(),
    primary key (model, process)
);

-- The idempotency keys of messages that came into the pipeline without a request context: they are in no inbox.
create table pipeline_key (
    source text not null,
    key text not null,
    request_id uuid not null,
    done boolean not null default false,
    primary key (source, key)
);
create index pipeline_key_request on pipeline_key (request_id);
