-- Rules at run time: their history, the facts of a decision, and what is done with dead letters.

alter table rule_set
    add column teams boolean not null default true,
    add column known boolean not null default true;

alter table rule add column version bigint;
alter table rule add column source text not null default '';
update rule set version = (select max(version) from rule_set);
alter table rule alter column version set not null;
create index rule_team on rule (team_id, rule_id);
create index rule_source on rule (source) where source <> '';

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

-- The history begins with the rules that are there, in the JSON form of core/routing/rulefile.py.
update rule_set set known = false where version < (select max(version) from rule_set);
insert into rule_change (team_id, rule_id, version, after)
select team_id, rule_id, version, jsonb_build_object(
    'rule_id', rule_id, 'team_id', team_id, 'name', name, 'channel', channel, 'filters', filters, 'targets', targets,
    'priority', priority, 'active', active, 'version', version, 'source', source,
    'created_by', created_by, 'updated_by', updated_by,
    'created_at', to_char(created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"'),
    'updated_at', to_char(updated_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"'))
from rule;

alter table decision add column facts jsonb;

alter table dead_letter
    add column handled_at timestamptz,
    add column rerouted_n smallint,
    add column notice_lane text,
    add column notice_seq bigint,
    add column sender_told_at timestamptz,
    add column emptied_at timestamptz,
    add column sender_spared boolean not null default false;
update dead_letter x set notice_lane = n.lane, notice_seq = n.seq from notice n where n.dead_letter_id = x.dead_letter_id;
create index dead_letter_notice on dead_letter (notice_lane, notice_seq) where notice_lane is not null;
create index dead_letter_waiting on dead_letter (handler, dead_letter_id)
    where handler is not null and notice_lane is null and status = 'pending';
create index dead_letter_untold on dead_letter (dead_letter_id)
    where status = 'pending' and sender_told_at is null and not sender_spared;
create index dead_letter_pending on dead_letter (dead_letter_id) where status = 'pending';
create index dead_letter_category on dead_letter (category, dead_letter_id);
create index dead_letter_kept on dead_letter (handled_at) where status = 'handled' and emptied_at is null;

alter table notice add column letters integer not null default 1;
create index notice_pending on notice (system_id) where state = 'pending';
create index outbox_told on outbox (hashtextextended(recipient, 0), created_at) where system_id = 'switchboard';

drop function accept_messages(
    text[], text[], uuid[], text[], text[], text[], text[], text[], bytea[], text[], timestamptz[], smallint[],
    bigint[], smallint[], text[], integer[], text[], text[], text[],
    integer[], uuid[], text[], text[], text[], text[]);

-- Accept: dedupe, store, decide, deliver; one row back per message, in the order given.
-- d_*: deliveries, x_*: branches nobody could take; *_ord is the message they belong to, from 1.
create function accept_messages(
    _conversation text[], _key text[], _request_id uuid[], _channel text[], _endpoint text[], _sender text[],
    _thread text[], _envelope text[], _raw bytea[], _media_type text[], _received_at timestamptz[], _tier smallint[],
    _version bigint[], _branches smallint[], _trail text[], _facts text[],
    d_ord integer[], d_lane text[], d_system text[], d_team text[],
    x_ord integer[], x_id uuid[], x_team text[], x_category text[], x_reason text[], x_handler text[]
) returns table (ord bigint, request_id uuid, fresh boolean)
language plpgsql as $$
#variable_conflict use_column
declare
    _fresh boolean[];
    _notice_lane text[] := (
        select coalesce(array_agg('notice:' || x.handler || ':' || _conversation[x.ord]), '{}')
        from unnest(x_ord, x_handler) as x (ord, handler) where x.handler is not null
    );
begin
    insert into lane (key, kind, pool, tier)
        select distinct on (l.key) l.key, split_part(l.key, ':', 1), 'work', 3
        from unnest(d_lane || _notice_lane) as l (key) order by l.key
        on conflict do nothing;
    perform from lane l where l.key = any (d_lane || _notice_lane) order by l.key for no key update;

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

    insert into decision
        select m.request_id, m.conversation, 1, m.version, m.branches, m.trail::jsonb, m.received_at, m.facts::jsonb
        from unnest(_request_id, _conversation, _version, _branches, _trail, _received_at, _facts, _fresh)
             as m (request_id, conversation, version, branches, trail, received_at, facts, fresh)
        where m.fresh;

    with numbered as (
        select d.lane, l.last_seq + row_number() over (partition by d.lane order by d.ord) as seq, d.ord, d.system_id, d.team_id
        from unnest(d_ord, d_lane, d_system, d_team) as d (ord, lane, system_id, team_id) join lane l on l.key = d.lane
        where _fresh[d.ord]
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
        where _fresh[x.ord];
    end if;

    return query
        select m.ord, d.request_id, f.fresh
        from unnest(_conversation, _key) with ordinality as m (conversation, key, ord)
        join unnest(_fresh) with ordinality as f (fresh, ord) using (ord)
        join dedupe d on d.conversation = m.conversation and d.key = m.key;
end $$;

-- Dead letters, whole, and the notices to their handlers. The caller holds the locks of the notice lanes.
-- A System4 with 20 notices before it is told of no further letter singly: those wait for a digest. Transactions at the
-- same time do not see each other's notices; a few more than 20 cost less than a lock that all of them wait for.
create or replace function bury(
    _id uuid[], _request_id uuid[], _conversation text[], _team text[], _category text[], _reason text[],
    _handler text[], _lane text[], _seq bigint[], _system text[]
) returns void
language plpgsql as $$
#variable_conflict use_column
begin
    with given as (
        select x.*, row_number() over (partition by x.handler order by x.id) as nth
        from unnest(_id, _request_id, _conversation, _team, _category, _reason, _handler, _lane, _seq, _system)
             as x (id, request_id, conversation, team, category, reason, handler, lane, seq, system_id)
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
                                 reason, lane, seq, system_id, handler, received_at, created_at, notice_lane, notice_seq)
            select g.id, g.conversation, g.request_id, g.team, m.channel, m.envelope, m.raw, g.category,
                   g.reason, g.lane, g.seq, g.system_id, g.handler, m.received_at, clock_timestamp(), t.lane, t.seq
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

-- Reroute: a further decision about the letter's message with its deliveries, at the end of their lanes, and the letter
-- handled; or nothing at all. d_*: who is to get it, x_*: branches that again nobody can take, as in accept_messages.
-- The outcome: rerouted; handled (it was before: by decision n, or by hand where n is null); taken (all of them have the
-- message, or were done with it); no row where there is no such letter.
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
    insert into delivery (lane, seq, conversation, request_id, system_id, team_id, created_at)
        select l.key, l.last_seq + 1, _conversation, _request_id, d_system[f.ord], d_team[f.ord], _now
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
