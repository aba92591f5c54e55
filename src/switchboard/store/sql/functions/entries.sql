-- What has any of these words: of words of more than four letters, whatever their last two are. At most 40 words count.
create or replace function any_of_words(_words text) returns tsquery
language sql immutable as $$
    select string_agg('''' || replace(replace(w.lexeme, '\', '\\'), '''', '''''') || w.more, ' | ')::tsquery
    from (
        select case when length(u.lexeme) > 4 then left(u.lexeme, greatest(4, length(u.lexeme) - 2)) else u.lexeme end as lexeme,
               case when length(u.lexeme) > 3 then ''':*' else '''' end as more
        from unnest(to_tsvector('simple', left(_words, 1000))) u
        order by length(u.lexeme) desc, u.lexeme limit 40
    ) w;
$$;

-- Whether a message may be learned from where it was said: people switch that off and on, see core/turns/memory_command.py.
create or replace function is_learned_from(_conversation uuid, _request_id uuid) returns boolean
language sql stable as $$
    select coalesce(
        (select s.learns from switchboard.learning_switch s
         where s.conversation = _conversation and s.since < _request_id order by s.since desc limit 1),
        true);
$$;

-- The message with which the conversation of a lane began anew; what is older is not told any more. Zero: it never did.
create or replace function begun_anew(_lane uuid) returns uuid
language sql stable as $$
    select coalesce(
        (select c.since from switchboard.lane l join switchboard.conversation_start c on c.conversation = l.conversation
         where l.key = _lane),
        '00000000-0000-0000-0000-000000000000');
$$;

-- The conversations of these messages begin anew with them.
create or replace function begin_anew(_messages uuid[]) returns void
language sql as $$
    insert into switchboard.conversation_start as c (conversation, since)
        select distinct on (m.conversation) m.conversation, m.request_id from switchboard.message_inbox m
        where m.request_id = any (_messages)
        order by m.conversation, m.request_id desc
        on conflict (conversation) do update set since = greatest(c.since, excluded.since);
$$;

-- Up to which position a history was erased for its age.
create or replace function erased_position(_lane uuid) returns bigint
language sql stable as $$
    select coalesce((select h.position from switchboard.erased_history h where h.lane = _lane), 0);
$$;

-- The position of the last entry that a lane has, or had before it was erased.
create or replace function last_position(_lane uuid) returns bigint
language sql stable as $$
    select greatest(
        (select e.position from switchboard.entry e where e.lane = _lane order by e.position desc limit 1),
        switchboard.erased_position(_lane));
$$;

-- Erase what was said before the messages from _below on, in at most _limit histories; what is older but was said after
-- something younger goes with that. Returns how many histories have become shorter.
create or replace function erase_history(_below uuid, _limit integer) returns integer
language plpgsql as $$
declare
    _lanes uuid[] := array(
        select distinct x.lane from entry x
        where x.request_id < _below
          and not exists (select from entry y where y.lane = x.lane and y.position < x.position and y.request_id >= _below)
        limit _limit);
    _erased integer;
begin
    perform from lane l where l.key = any (_lanes) order by l.key for no key update;
    with gone as (
        delete from entry e
        where e.lane = any (_lanes) and e.request_id < _below
          and not exists (select from entry y where y.lane = e.lane and y.position < e.position and y.request_id >= _below)
        returning e.lane, e.position
    )
    insert into erased_history as h (lane, position) select g.lane, max(g.position) from gone g group by g.lane
        on conflict (lane) do update set position = greatest(h.position, excluded.position);
    get diagnostics _erased = row_count;
    return _erased;
end $$;

-- settle_turns, and what was said in these turns: both, or neither. A lane with 40 entries that no summary stands for is due to
-- be compacted; one whose tries are used up gets new ones. _entries: a JSON array of lane, n, role, person, private,
-- text, calls, created_at, own, name, told, learn, handle (as for save_facts); n is the order within a lane. A turn that fails leaves what it was asked, without
-- an answer; if its message comes again to the same butler, the entries of that turn take the place of this one: if it is not
-- learned from, they are not either, and facts that cite it cite them.
create or replace function settle_turns_with_entries(_owner bigint, _given settlement[], _entries text)
returns table (lane uuid, ok boolean, next_seq bigint)
language plpgsql as $$
#variable_conflict use_column
declare
    _lane uuid[];
    _ok boolean[];
    _next bigint[];
    _replaced entry[];
begin
    select array_agg(s.lane), array_agg(s.ok), array_agg(s.next_seq) into _lane, _ok, _next
        from settle_turns(_owner, _given) s;
    -- settle_turns has locked the lanes, so that nobody else gives positions there
    with gone as (
        delete from entry a
            using json_to_recordset(_entries::json) as e (lane uuid), unnest(_lane, _ok) as s (lane, ok), unnest(_given) i, delivery d
            where s.lane = e.lane and s.ok and i.lane = e.lane and d.lane = i.lane and d.seq = i.seq
              and d.n > 1 and a.lane = e.lane and a.request_id = d.request_id and a.compacted_at is null
              and not exists (select from entry b where b.request_id = a.request_id and b.lane = a.lane and b.role = 'assistant')
        returning a.*
    )
    select coalesce(array_agg(g::entry), '{}') into _replaced from gone g;
    insert into entry (lane, position, request_id, role, person, private, text, calls, created_at, learn, own, name, told, handle)
        select e.lane,
               last_position(e.lane) + row_number() over (partition by e.lane order by e.n),
               d.request_id, e.role, e.person, e.private, e.text, e.calls, e.created_at,
               coalesce(e.learn, true) and is_learned_from(l.conversation, d.request_id) and not exists (
                   select from unnest(_replaced) a where a.lane = e.lane and a.request_id = d.request_id and not a.learn),
               e.own, coalesce(e.name, ''), e.told, handle_key(e.handle ->> 0, e.handle ->> 1, e.handle ->> 2)
        from json_to_recordset(_entries::json) as e (lane uuid, n integer, role text, person text, private boolean, text text,
                                                     calls json, created_at timestamptz, own text, name text, told boolean,
                                                     learn boolean, handle json)
        join unnest(_lane, _ok) as s (lane, ok) on s.lane = e.lane and s.ok
        join unnest(_given) i on i.lane = e.lane
        join delivery d on d.lane = i.lane and d.seq = i.seq
        join lane l on l.key = e.lane;
    if cardinality(_replaced) > 0 then
        update fact_source f set position = e.position
            from unnest(_replaced) a
            join entry e on e.lane = a.lane and e.request_id = a.request_id and e.role = 'user'
            where f.lane = a.lane and f.position = a.position;
    end if;
    perform due_to_be_compacted(array(
        select distinct e.lane from json_to_recordset(_entries::json) as e (lane uuid)
        join unnest(_lane, _ok) as s (lane, ok) on s.lane = e.lane and s.ok));
    return query select s.lane, s.ok, s.next_seq from unnest(_lane, _ok, _next) as s (lane, ok, next_seq);
end $$;

-- settle_turns_with_entries, and what these turns have kept of people's words: both, or neither. What is from an entry that is
-- not learned from any more is not kept. _facts: a JSON array of lane and what save_facts takes, with one position; where that
-- is no entry of the author, such as 0, it is that of the message that the turn has answered. The facts come last, because
-- whoever writes them locks lanes first.
create or replace function settle_turns_with_facts(_owner bigint, _given settlement[], _entries text, _facts text)
returns table (lane uuid, ok boolean, next_seq bigint)
language plpgsql as $$
#variable_conflict use_column
declare
    _lane uuid[];
    _ok boolean[];
    _next bigint[];
    _kept record;
begin
    select array_agg(s.lane), array_agg(s.ok), array_agg(s.next_seq) into _lane, _ok, _next
        from settle_turns_with_entries(_owner, _given, _entries) s;
    for _kept in
        select f.lane, json_agg(jsonb_set(f.fact, '{positions}', jsonb_build_array(p.position)))::text as facts
        from jsonb_array_elements(_facts::jsonb) as g (fact)
        cross join lateral (
            select g.fact, (g.fact ->> 'lane')::uuid as lane, g.fact ->> 'author' as author,
                   (g.fact -> 'positions' ->> 0)::bigint as position) f
        join unnest(_lane, _ok) as s (lane, ok) on s.lane = f.lane and s.ok
        join unnest(_given) i on i.lane = f.lane
        join delivery d on d.lane = i.lane and d.seq = i.seq
        cross join lateral (
            select e.position, e.learn from (
                select x.* from entry x where x.lane = f.lane and x.position = f.position
                union all
                select x.* from entry x where x.lane = f.lane and x.request_id = d.request_id
            ) e
            where e.role = 'user' and e.person = f.author
            order by e.position = f.position desc, e.position desc limit 1
        ) p
        where p.learn
        group by f.lane order by f.lane
    loop
        perform save_facts(_kept.lane, _kept.facts);
    end loop;
    return query select s.lane, s.ok, s.next_seq from unnest(_lane, _ok, _next) as s (lane, ok, next_seq);
end $$;

-- Which of these lanes, whose entries have just become more, are due to be compacted.
create or replace function due_to_be_compacted(_lane uuid[]) returns void
language sql as $$
    insert into switchboard.compaction (lane)
        select l from unnest(_lane) l where switchboard.not_compacted(l) >= 40
        on conflict (lane) do update set tries = 0, ready_at = clock_timestamp() where compaction.tries >= 3;
$$;

-- Add to a lane, which is locked, what was said outside of its turns; there is no message of it, and whose words it has is
-- found when it is read.
create or replace function save_entry(_lane uuid, _id uuid, _role text, _person text, _private boolean, _text text)
returns void
language plpgsql as $$
begin
    insert into entry (lane, position, request_id, role, person, private, text, created_at, learn)
        select l.key, last_position(l.key) + 1, _id, _role, _person, _private, _text, clock_timestamp(),
               is_learned_from(l.conversation, _id)
        from lane l where l.key = any (array[_lane]);
    perform due_to_be_compacted(array[_lane]);
end $$;

-- The entries of a lane after a position that this reader may see: what was said in private is for the same person in
-- private, and who a message is from must be sure. A summary stands for those that are compacted. Older than the conversation's
-- beginning are also those of a turn that ended behind it.
create or replace function visible_entries(_lane uuid, _after bigint, _person text, _private boolean, _authentic boolean)
returns setof entry
language sql stable as $$
    select e.* from switchboard.entry e cross join switchboard.begun_anew(_lane) as since
    where e.lane = _lane and e.position > _after and e.compacted_at is null
      and _authentic
      and (not e.private or (_private and e.person = _person))
      and e.request_id > since;
$$;

-- What a reader may search of all that was said to and by a butler, also what a summary stands for: in private what they said and
-- were told in private, under each handle that is theirs now, and in front of others what was said in front of these, here.
-- Neither what is not learned from, because it was forgotten or was to be, nor what is older than its conversation's beginning.
create or replace function visible_history(
    _system_id text, _conversation uuid, _person text, _private boolean, _authentic boolean, _handle uuid default null
) returns setof entry
language plpgsql stable as $$
declare
    _handles uuid[] := handles_of(_handle);
begin
    return query
        select e.* from lane l
        cross join lateral begun_anew(l.key) as since
        join entry e on e.lane = l.key
        where l.system_id = _system_id
          and _authentic
          and _person <> ''
          and e.learn
          and e.request_id > since
          and (
              (not e.private and l.conversation = _conversation)
              or (e.private and _private and e.person = _person)
              or (e.private and _private and e.handle = any (_handles))
          );
end $$;
