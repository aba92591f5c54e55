-- Lock the lanes of a decision: those of the butlers and of the System4s that are notified; _also: one more of the conversation.
create or replace function lock_branches(_also text, _conversation uuid, d_system text[], x_handler text[]) returns void
language sql as $$
    select lock_lanes(array_agg(lane_key(w.kind, w.system_id, _conversation)), array_agg(w.kind), array_agg(w.system_id),
                      array_agg(_conversation), array_agg('work'::text))
    from (
        select 'turn' as kind, d.system_id from unnest(d_system) as d (system_id)
        union select 'notice', x.handler from unnest(x_handler) as x (handler) where x.handler is not null
        union select _also, null where _also is not null
    ) w;
$$;

-- A further decision about a message locks, in this order, the lanes of those who get it or are notified, its dead letters,
-- and its first decision: two at once must not deliver it to one butler twice, nor take the same number.
create or replace function hold_message(_request_id uuid, _conversation uuid, d_system text[], x_handler text[]) returns void
language plpgsql as $$
begin
    perform lock_branches(null, _conversation, d_system, x_handler);
    perform from dead_letter x where x.request_id = _request_id order by x.dead_letter_id for no key update;
    perform from decision d where d.request_id = _request_id and d.n = 1 for no key update;
end $$;

-- A further decision about a message that the caller has locked, with its deliveries at the end of their lanes. Returns its
-- number, or null if all of them have the message, or have finished with it. d_*: who is to get it; x_*: branches that nobody
-- can take, again. _text: only this part of it is delivered, null is the whole; a butler that has another part has neither
-- this one nor the whole.
create or replace function decide_again(
    _request_id uuid, _conversation uuid, _version bigint, _trail text, _tier smallint,
    d_system text[], d_team text[],
    x_id uuid[], x_team text[], x_category text[], x_reason text[], x_handler text[], _text text
) returns smallint
language plpgsql as $$
declare
    _n smallint;
    _fresh integer[];
    _lane uuid[];
    _now timestamptz := clock_timestamp();
begin
    select array_agg(i.ord order by i.ord), array_agg(lane_key('turn', i.system_id, _conversation) order by i.ord) into _fresh, _lane
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

    insert into decision (request_id, n, version, branches, trail, decided_at, facts, parts)
        select _request_id, max(d.n) + 1, _version, cardinality(_fresh) + cardinality(x_id), _trail::json,
               _now, (select f.facts from decision f where f.request_id = _request_id and f.n = 1),
               case when _text is not null then jsonb_build_object('', _text) end
        from decision d where d.request_id = _request_id
        returning n into _n;
    insert into delivery (lane, seq, request_id, system_id, team_id, segment, created_at, text, n)
        select f.lane, f.seq, _request_id, d_system[f.ord], d_team[f.ord],
               case when _text is null then 0 else f.ord end, _now, _text, _n
        from unnest(_fresh, _lane, enqueue_items(_lane, array_fill(flow_of(_request_id), array[cardinality(_lane)]), array_fill(_tier, array[cardinality(_lane)]))) as f (ord, lane, seq);
    if cardinality(x_id) > 0 then
        perform write_dead_letters(array_agg(
            (x.id, _request_id, _conversation, x.team, x.category, x.reason, x.handler, null, null, null, _text, _n)
            ::new_dead_letter))
        from unnest(x_id, x_team, x_category, x_reason, x_handler) as x (id, team, category, reason, handler);
    end if;
    return _n;
end $$;

-- Reroute: a further decision about the part of the message that the dead letter is about, which is handled by it; or
-- nothing at all. d_*, x_* as in decide_again. outcome: rerouted; handled (already: by decision n, or by hand if n is null);
-- taken (all of them have the message, or have finished with it). No row: there is no such dead letter.
create or replace function reroute_dead_letter(
    _id uuid, _by text, _resolution text, _version bigint, _trail text, _tier smallint,
    d_system text[], d_team text[],
    x_id uuid[], x_team text[], x_category text[], x_reason text[], x_handler text[]
) returns table (outcome text, n smallint)
language plpgsql as $$
#variable_conflict use_column
declare
    _request_id uuid;
    _conversation uuid;
    _text text;
    _status text;
    _n smallint;
begin
    select x.request_id, x.conversation, x.text into _request_id, _conversation, _text from dead_letter x where x.dead_letter_id = _id;
    if not found then
        return;
    end if;
    perform hold_message(_request_id, _conversation, d_system, x_handler);

    select x.status, x.rerouted_n into _status, _n from dead_letter x where x.dead_letter_id = _id;
    if _status = 'handled' then
        return query select 'handled', _n;
        return;
    end if;
    _n := decide_again(_request_id, _conversation, _version, _trail, _tier, d_system, d_team,
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

-- Correct: record where a message should have gone, in the log of the teams that asked a model (_teams; null: all of them);
-- and, unless d_system is empty, make a further decision by which it goes there. This handles the dead letters that these
-- teams have of the message because no model chose. Delivered is the part that reached team _of (null: the whole). d_*, x_*
-- as in decide_again.
-- decided: false while the message waits for a model, and then nothing has changed; noted: the log said something else
-- before; n: the decision, null if all of them have the message already.
create or replace function correct_decision(
    _request_id uuid, _to text, _by text, _reason text, _teams text[], _of text,
    _version bigint, _trail text, _tier smallint,
    d_system text[], d_team text[],
    x_id uuid[], x_team text[], x_category text[], x_reason text[], x_handler text[]
) returns table (decided boolean, noted boolean, n smallint)
language plpgsql as $$
#variable_conflict use_column
declare
    _conversation uuid;
    _noted boolean;
    _n smallint;
begin
    select m.conversation into _conversation from message_inbox m where m.request_id = _request_id;
    if not found then
        return;
    end if;
    perform hold_message(_request_id, _conversation, d_system, x_handler);
    if not exists (select from decision d where d.request_id = _request_id and d.n = 1) then
        return query select false, false, null::smallint;
        return;
    end if;

    update classification c set
        corrected_to = _to, corrected_by = _by, correction = _reason, corrected_at = clock_timestamp()
        where c.request_id = _request_id and (_teams is null or c.team_id = any (_teams))
          and c.corrected_to is distinct from _to;
    _noted := found;
    if cardinality(d_system) > 0 then
        _n := decide_again(_request_id, _conversation, _version, _trail, _tier, d_system, d_team,
                           x_id, x_team, x_category, x_reason, x_handler,
                           (select d.parts ->> _of from decision d where d.request_id = _request_id and d.n = 1));
    end if;
    if _n is not null then
        update dead_letter x set
            status = 'handled', handled_by_system_id = _by, handled_at = clock_timestamp(), rerouted_n = _n,
            resolution = coalesce(_reason, 'corrected')
            where x.request_id = _request_id and x.status = 'pending' and x.category = 'classification_failed'
              and x.n <> _n and (_teams is null or x.team_id = any (_teams));
    end if;
    return query select true, _noted, _n;
end $$;

-- Hand on: the end of a turn without a reply, and a further decision about what its butler was given, or nothing at all
-- (fenced). d_*, x_* as in decide_again. Those who have it already do not get it twice: they answer it.
create or replace function hand_on(
    _owner bigint, _given settlement[], _version bigint, _trail text,
    d_system text[], d_team text[],
    x_id uuid[], x_team text[], x_category text[], x_reason text[], x_handler text[]
) returns table (lane uuid, ok boolean, next_seq bigint)
language plpgsql as $$
#variable_conflict use_column
declare
    _conversation uuid;
    _tier smallint;
    _request_id uuid;
    _text text;
    _ended record;
begin
    select l.conversation, l.tier, d.request_id, d.text into _conversation, _tier, _request_id, _text
        from unnest(_given) i join lane l on l.key = i.lane join delivery d on d.lane = i.lane and d.seq = i.seq;
    -- all lanes at once, as they are locked in one order everywhere
    perform lock_lanes(array_agg(w.key), array_agg(w.kind), array_agg(w.system_id), array_agg(w.conversation), array_agg('work'::text))
        from (
            select l.key, l.kind, l.system_id, l.conversation from unnest(_given) i join lane l on l.key = i.lane
            union select lane_key('turn', d.system_id, _conversation), 'turn', d.system_id, _conversation
                from unnest(d_system) as d (system_id)
            union select lane_key('notice', x.handler, _conversation), 'notice', x.handler, _conversation
                from unnest(x_handler) as x (handler) where x.handler is not null
        ) w;
    perform hold_message(_request_id, _conversation, d_system, x_handler);
    select s.lane, s.ok, s.next_seq into _ended from settle_turns(_owner, _given) s;
    if _ended.ok then
        perform decide_again(_request_id, _conversation, _version, _trail, _tier, d_system, d_team,
                             x_id, x_team, x_category, x_reason, x_handler, _text);
    end if;
    return query select _ended.lane, _ended.ok, _ended.next_seq;
end $$;
