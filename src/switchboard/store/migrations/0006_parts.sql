-- Parts: what of a message is whose, where a model split it; and what else grows no more than it must.

alter table member add column announced_at timestamptz;
alter table decision add column parts jsonb;
alter table dead_letter add column text text, add column n smallint not null default 1;

-- Of letters of before: the part of the delivery that died, and its decision.
update dead_letter x set text = d.text, n = d.n from delivery d where x.emptied_at is null and d.lane = x.lane and d.seq = x.seq;

-- The oldest keys are the lowest ids.
create index pipeline_key_request on pipeline_key (request_id);

drop function bury(uuid[], uuid[], text[], text[], text[], text[], text[], text[], bigint[], text[]);
drop function settle_route(
    bigint, text, bigint, bigint, boolean, timestamptz, bigint, text, smallint, text[], text[], text[], text[],
    uuid[], text[], text[], text[], text[]);
drop function decide_again(
    uuid, text, bigint, text, smallint, text[], text[], text[], uuid[], text[], text[], text[], text[]);
drop function correct_route(uuid, text, text, text, text[], bigint, text, smallint, text, text);

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

    insert into decision (request_id, conversation, n, version, branches, trail, decided_at, facts, parts)
        values (_request_id, _conversation, 1, _version, cardinality(d_lane) + cardinality(x_id), _trail::jsonb, _now, _facts,
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
        select _request_id, _conversation, max(d.n) + 1, _version, cardinality(_fresh) + cardinality(x_id), _trail::jsonb,
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

-- Reroute: a further decision about what died of the letter's message, and the letter handled; or nothing at all. d_*, x_*
-- as in decide_again. The outcome: rerouted; handled (it was before: by decision n, or by hand where n is null); taken (all of
-- them have the message, or were done with it); no row where there is no such letter.
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

-- Complete: the turn, its delivery or notice, its reply, its dead letter and the next item, or nothing at all (fenced).
-- A reply goes to the conversation of the message, and nowhere else: it is looked up here, not given.
-- _pool is where the reply waits: null for a mailbox that is read at the door.
create or replace function settle_turns(
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
