-- Operations: where messages should have gone, what models cost, and which of them are left alone.

alter table classification add column corrected_at timestamptz, add column correction text;
create index classification_at on classification (at);
create index classification_corrected on classification (request_id) where corrected_to is not null;
create index route_call_at on route_call (at);

-- Its message came to something: the key is taken for good, also when the log of what models chose is forgotten.
alter table pipeline_key add column done boolean not null default false;
update pipeline_key k set done = true where exists (select from classification c where c.request_id = k.request_id);

alter table model_day add column refused bigint not null default 0;

-- Models that a process leaves alone for a while: they failed, or their provider asked for a pause.
create table model_rest (
    model text not null,
    process uuid not null,
    until timestamptz not null,
    why text not null,
    at timestamptz not null default clock_timestamp(),
    primary key (model, process)
);

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
-- all of them have the message, or were done with it. d_*: who is to get it, x_*: branches that again nobody can take.
create function decide_again(
    _request_id uuid, _conversation text, _version bigint, _trail text, _tier smallint,
    d_lane text[], d_system text[], d_team text[],
    x_id uuid[], x_team text[], x_category text[], x_reason text[], x_handler text[]
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
        );
    if _fresh is null then
        return null;
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
    return _n;
end $$;

-- Reroute: a further decision about the letter's message, and the letter handled; or nothing at all. d_*, x_* as in
-- decide_again. The outcome: rerouted; handled (it was before: by decision n, or by hand where n is null); taken (all of
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
    _status text;
    _n smallint;
begin
    select x.request_id, x.conversation into _request_id, _conversation from dead_letter x where x.dead_letter_id = _id;
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
                       x_id, x_team, x_category, x_reason, x_handler);
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
-- because no model chose are settled by it. decided: false while it waits for a model, and then nothing has changed; noted:
-- the log said something else before; n: the decision, null where the butler has the message already.
create function correct_route(
    _request_id uuid, _to text, _by text, _reason text, _teams text[],
    _version bigint, _trail text, _tier smallint, _lane text, _team text
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
                           '{}', '{}', '{}', '{}', '{}');
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
