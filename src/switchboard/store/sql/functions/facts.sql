-- Open the table of facts to the function that calls this, which closes it again; it would stay open to the end of its
-- transaction. A `set` of the function itself may not name a setting of ours.
create or replace function facts_open(_open boolean) returns void
language sql as $$
    select set_config('switchboard.facts', case when _open then 'open' else '' end, true);
$$;

-- The handles of the person who has this one; none unless an operator has linked it.
create or replace function handles_of(_handle uuid) returns uuid[]
language plpgsql stable as $$
begin
    return array(
        select o.key from person_handle h join person_handle o on o.person_id = h.person_id where h.key = _handle);
end $$;

-- The wall: the facts that may be told where a turn answers. A turn reads them by this alone. All that is given is found out
-- from the message that the turn answers, see core/people/readers.py. _handle: that of the reader, null where nobody vouches
-- for it; who it is linked with is looked up here, so that nothing told outlives a link. _among: of these alone, and of those
-- with _rivals; null: of all.
create or replace function visible(
    _system_id text, _conversation uuid, _person text, _private boolean, _authentic boolean, _handle uuid default null,
    _among uuid[] default null, _rivals uuid[] default null
) returns setof fact
language plpgsql set plan_cache_mode = force_custom_plan as $$
declare
    _handles uuid[] := handles_of(_handle);
begin
    perform facts_open(true);
    return query
        select f.* from fact f
        where f.system_id = _system_id
          and f.undone_at is null
          and (_private or not f.special)
          and _authentic
          and (
              f.space = 'shared'
              or (f.space = 'private' and _private and f.author = _person)
              or (f.space = 'private' and _private and f.handle = any (_handles))
              or (f.space = 'group' and not _private and _person <> '' and f.conversation = _conversation)
          )
          and (_among is null or f.fact_id = any (_among) or f.rivals = any (_rivals));
    perform facts_open(false);
end $$;

-- Every transaction that writes facts is alone with them, so that none misses what another one is just forgetting.
create or replace function alone_with_facts() returns void
language sql as $$
    select pg_advisory_xact_lock(hashtextextended('switchboard.facts', 0));
$$;

-- What is known of a forgotten fact besides its mark: that it had these words, of a handle. _words: the hash of words without
-- an author.
create or replace function handle_mark(_handle uuid, _words uuid) returns uuid
language sql immutable strict as $$
    select encode(substr(sha256(uuid_send(_handle) || uuid_send(_words)), 1, 16), 'hex')::uuid;
$$;

-- Whether a fact was forgotten: its mark, or the same words of the same person under another handle.
create or replace function was_forgotten(_mark uuid, _handle uuid, _words uuid) returns boolean
language sql stable as $$
    select exists (select from switchboard.forgotten g where g.mark = _mark)
        or exists (
            select from switchboard.forgotten g
            where g.mark = any (array(
                select switchboard.handle_mark(h, _words) from unnest(switchboard.handles_of(_handle)) h)));
$$;

-- Keep facts, unless they were forgotten; one that is known gets further sources, and its predicate if it had none. One that was
-- undone counts again if it is said again; who reads the same entry once more, and words it otherwise, does not bring it back. _facts: a JSON array of fact_id, author, subject, space, text, mark, positions, handle
-- (channel, realm and identity), words, and what the table has besides: predicate to run; said_at where no entry is cited; terms, as
-- for put_terms. Returns how many are new.
create or replace function save_facts(_lane uuid, _facts text) returns integer
language plpgsql as $$
#variable_conflict use_column
declare
    _new integer;
    _known uuid[];
    _terms text;
begin
    perform alone_with_facts();
    perform facts_open(true);
    insert into fact as k (
            fact_id, system_id, conversation, author, subject, space, text, mark, handle, words, predicate, value, denied, said_by,
            valid_from, valid_to, importance, permanence, rivals, special, run, said_at)
        select f.fact_id, l.system_id, l.conversation, f.author, f.subject, f.space, f.text, f.mark, k.handle, f.words,
               coalesce(f.predicate, 'other'), coalesce(f.value, ''), coalesce(f.denied, false), coalesce(f.said_by, 'other'),
               f.valid_from, f.valid_to, coalesce(f.importance, 0.5), coalesce(f.permanence, 'stable'), f.rivals,
               coalesce(f.special, false), f.run, coalesce(f.said_at, s.at, clock_timestamp())
        from json_to_recordset(_facts::json) as f (
            fact_id uuid, author text, subject text, space text, text text, mark uuid, handle json, words uuid, positions json,
            predicate text, value text, denied boolean, said_by text, valid_from timestamptz, valid_to timestamptz,
            importance real, permanence text, rivals uuid, special boolean, run uuid, said_at timestamptz)
        cross join lateral (select handle_key(f.handle ->> 0, f.handle ->> 1, f.handle ->> 2) as handle) k
        cross join lateral (
            select min(e.created_at) as at from json_array_elements_text(f.positions) as p (position)
            join entry e on e.lane = _lane and e.position = p.position::bigint) s
        join lane l on l.key = _lane
        where not was_forgotten(f.mark, k.handle, f.words)
          and not exists (select from forgotten g where g.fact_id = f.fact_id)
          and not exists (select from fact k where k.mark = f.mark and k.space = 'shared' and k.conversation = l.conversation)
          and not exists (
              select from json_array_elements_text(f.positions) as p (position)
              join fact_source c on c.lane = _lane and c.position = p.position::bigint
              join fact k on k.fact_id = c.fact_id
              where k.undone_at > c.said_at and k.author = f.author and k.mark <> f.mark
                and (k.rivals = f.rivals or has_words(k.text, coalesce(nullif(f.value, ''), f.text))))
        order by f.mark
        on conflict (mark, space, conversation) do update set
            predicate = excluded.predicate, value = excluded.value, denied = excluded.denied, permanence = excluded.permanence,
            rivals = excluded.rivals, special = excluded.special, subject = excluded.subject
            where k.predicate = 'other' and excluded.predicate <> 'other';
    select count(*) into _new from json_to_recordset(_facts::json) as f (fact_id uuid) join fact k on k.fact_id = f.fact_id;
    update fact k set
            said_at = a.at, valid_from = f.valid_from, valid_to = f.valid_to, run = f.run,
            undone_at = case when k.undone_at > a.at then k.undone_at end
        from json_to_recordset(_facts::json) as f (
            space text, mark uuid, positions json, valid_from timestamptz, valid_to timestamptz, said_at timestamptz, run uuid)
        cross join lateral (select coalesce(f.said_at, clock_timestamp()) as at) a, lane l
        where l.key = _lane and k.mark = f.mark and k.space in (f.space, 'shared') and k.conversation = l.conversation
          and json_array_length(f.positions) = 0 and k.said_at < a.at;
    insert into fact_source (fact_id, lane, position, said_at, valid_from, valid_to, run)
        select k.fact_id, _lane, p.position, coalesce(e.created_at, f.said_at, k.said_at), f.valid_from, f.valid_to, f.run
        from json_to_recordset(_facts::json) as f (
            space text, mark uuid, positions json, said_at timestamptz, valid_from timestamptz, valid_to timestamptz, run uuid)
        join lane l on l.key = _lane
        join fact k on k.mark = f.mark and k.space in (f.space, 'shared') and k.conversation = l.conversation
        cross join lateral json_array_elements_text(f.positions) as c (position)
        cross join lateral (select c.position::bigint as position) p
        left join entry e on e.lane = _lane and e.position = p.position
        on conflict do nothing;
    update fact k set undone_at = null
        from json_to_recordset(_facts::json) as f (mark uuid)
        where k.mark = f.mark and exists (select from fact_source s where s.fact_id = k.fact_id and s.said_at > k.undone_at);
    _known := array(
        select k.fact_id from json_to_recordset(_facts::json) as f (fact_id uuid, space text, mark uuid)
        join lane l on l.key = _lane
        join fact k on k.mark = f.mark and k.space in (f.space, 'shared') and k.conversation = l.conversation
        where k.fact_id <> f.fact_id and k.undone_at is null);
    _terms := (
        select json_agg(jsonb_set(f.terms, '{fact_id}', to_jsonb(k.fact_id)))
        from json_to_recordset(_facts::json) as f (fact_id uuid, space text, mark uuid, terms jsonb)
        join lane l on l.key = _lane
        join fact k on k.mark = f.mark and k.space in (f.space, 'shared') and k.conversation = l.conversation
        where k.undone_at is null and jsonb_typeof(f.terms) = 'object'
          and (k.fact_id = f.fact_id or not exists (select from fact_terms t where t.fact_id = k.fact_id)));
    -- the subject of a known one may be another now
    insert into fact_unread (fact_id)
        select u.fact_id from unnest(_known) u (fact_id)
        union
        select k.fact_id from json_to_recordset(_facts::json) as f (fact_id uuid, terms json)
        join fact k on k.fact_id = f.fact_id where f.terms is null
        on conflict do nothing;
    perform facts_open(false);
    perform move_terms(_known);
    if _terms is not null then
        perform put_terms(_terms);
    end if;
    return _new;
end $$;

-- Let all who talk to the butler hear a fact; only its author may say so, under any handle, or an operator. Whether it may be
-- and is.
create or replace function share_fact(
    _fact_id uuid, _system_id text, _person text, _authentic boolean, _operator boolean, _handle uuid default null
) returns boolean
language plpgsql as $$
declare
    _handles uuid[] := handles_of(_handle);
    _shared boolean;
begin
    perform alone_with_facts();
    perform facts_open(true);
    _shared := exists (
        select from fact f
        where f.fact_id = _fact_id
          and (_operator
               or (_authentic and f.system_id = _system_id and (f.author = _person or f.handle = any (_handles)))));
    update fact f set space = 'shared'
        where f.fact_id = _fact_id and _shared
          and not exists (select from fact k where k.mark = f.mark and k.space = 'shared' and k.conversation = f.conversation);
    perform facts_open(false);
    perform move_terms(array[_fact_id]);
    return _shared;
end $$;

-- Whether two facts, of one author, say the same in whatever words to the same people; as core/memory/settling.py reads them, one is
-- shown for both.
create or replace function says_the_same(_one fact, _other fact) returns boolean
language sql immutable as $$
    select _one.rivals = _other.rivals and _one.denied = _other.denied
        and _one.space = _other.space and (_one.space <> 'group' or _one.conversation = _other.conversation)
        and lower(btrim(coalesce(nullif(_one.value, ''), _one.text), ' .,;:!'))
            = lower(btrim(coalesce(nullif(_other.value, ''), _other.text), ' .,;:!'))
        and _one.valid_from is not distinct from _other.valid_from and _one.valid_to is not distinct from _other.valid_to;
$$;

-- Count a fact as never said, and what its author told the same people to the same effect. Whether it counted until now.
create or replace function undo_fact(_fact_id uuid) returns boolean
language plpgsql as $$
declare
    _facts uuid[];
begin
    perform alone_with_facts();
    perform facts_open(true);
    _facts := array(
        select c.fact_id from fact f
        cross join lateral (select handles_of(f.handle) as handles offset 0) o
        join fact c on c.system_id = f.system_id and (c.author = f.author or c.handle = any (o.handles))
        where f.fact_id = _fact_id and f.undone_at is null and c.undone_at is null
          and (c.fact_id = f.fact_id or says_the_same(c, f)));
    update fact f set undone_at = clock_timestamp() where f.fact_id = any (_facts);
    perform drop_terms(_facts);
    perform facts_open(false);
    return cardinality(_facts) > 0;
end $$;

-- The turns of these entries are not learned from: neither what was said, nor the reply to it. Returns how many entries.
create or replace function unlearn(_lane uuid, _positions bigint[]) returns integer
language plpgsql as $$
declare
    _unlearned integer;
begin
    update entry e set learn = false
        where e.lane = _lane and e.learn
          and e.request_id in (select s.request_id from entry s where s.lane = _lane and s.position = any (_positions));
    get diagnostics _unlearned = row_count;
    return _unlearned;
end $$;

-- What says again what was forgotten is not learned from either. _facts: as for save_facts. Returns how many entries say so.
create or replace function unlearn_forgotten(_lane uuid, _facts text) returns integer
language sql as $$
    select switchboard.unlearn(_lane, array_agg(e.position::bigint))
    from json_to_recordset(_facts::json) as f (mark uuid, positions json, handle json, words uuid)
    cross join lateral json_array_elements_text(f.positions) as e (position)
    where switchboard.was_forgotten(
        f.mark, switchboard.handle_key(f.handle ->> 0, f.handle ->> 1, f.handle ->> 2), f.words);
$$;

-- Whether the words of another text are in this one, in their order; those of a text without a word are in none.
create or replace function has_words(_text text, _words text) returns boolean
language sql immutable as $$
    select _words ~ '[^[:space:][:punct:]]'
        and lower(_text) ~ (
            '(^|[[:space:][:punct:]])'
            || regexp_replace(rtrim(lower(_words), ' .!'), '([][\\.^$*+?(){}|])', '\\\1', 'g')
            || '($|[[:space:][:punct:]])');
$$;

-- Facts, and what their authors said elsewhere, under whatever handle, in the same words, with them in it, or to the same effect.
create or replace function facts_like(_fact_ids uuid[]) returns uuid[]
language plpgsql as $$
declare
    _facts uuid[];
begin
    perform facts_open(true);
    _facts := array(
        select distinct c.fact_id from fact f
        cross join lateral (select handles_of(f.handle) as handles offset 0) o
        join fact c on c.system_id = f.system_id and (c.author = f.author or c.handle = any (o.handles))
        where f.fact_id = any (_fact_ids)
          and (c.mark = f.mark or has_words(c.text, f.text) or says_the_same(c, f)));
    perform facts_open(false);
    return _facts;
end $$;

create or replace function lanes_of_facts(_fact_ids uuid[]) returns uuid[]
language sql stable as $$
    select array(select distinct s.lane from switchboard.fact_source s where s.fact_id = any (_fact_ids));
$$;

-- Forget facts for good: them, those like them, and every summary that may repeat them. What they were learned from is not learned
-- from again. Returns how many facts are gone.
create or replace function forget_facts(_fact_ids uuid[]) returns integer
language plpgsql as $$
declare
    _facts uuid[];
    _lanes uuid[] := '{}';
    _gone integer;
begin
    loop
        begin
            _lanes := _lanes || lanes_of_facts(facts_like(_fact_ids));
            perform from lane l where l.key = any (_lanes) order by l.key for no key update;
            perform alone_with_facts();
            -- looked up once more behind the locks: what was learned meanwhile may say the same
            _facts := facts_like(_fact_ids);
            exit when lanes_of_facts(_facts) <@ _lanes;
            raise exception 'in another lane, too' using errcode = 'SW001';
        exception when sqlstate 'SW001' then
            null;  -- without the locks, which are taken in their order again, with that lane
        end;
    end loop;
    perform facts_open(true);
    insert into forgotten (fact_id, mark) select f.fact_id, f.mark from fact f where f.fact_id = any (_facts)
        on conflict (fact_id) do nothing;
    insert into forgotten (fact_id, mark)
        select gen_random_uuid(), m.mark from (
            select distinct handle_mark(f.handle, f.words) as mark from fact f where f.fact_id = any (_facts)) m
        where m.mark is not null and not exists (select from forgotten g where g.mark = m.mark);
    perform unlearn(s.lane, array_agg(s.position)) from fact_source s where s.fact_id = any (_facts) group by s.lane;
    update summary y set text = '' from (
            select s.lane, min(s.position) as position from fact_source s where s.fact_id = any (_facts) group by s.lane
        ) s where y.lane = s.lane and y.position >= s.position;
    delete from fact_source s where s.fact_id = any (_facts);
    perform drop_terms(_facts);
    delete from fact f where f.fact_id = any (_facts);
    get diagnostics _gone = row_count;
    perform facts_open(false);
    return _gone;
end $$;

-- The same for one fact; 0: there is none.
create or replace function forget_fact(_fact_id uuid) returns integer
language sql as $$
    select switchboard.forget_facts(array[_fact_id]);
$$;

-- Forget what is known to be forgotten and is there all the same: a backup had it. Returns how many facts are gone.
create or replace function forget_again() returns integer
language plpgsql as $$
declare
    _facts uuid[];
begin
    perform facts_open(true);
    _facts := array(select f.fact_id from fact f where exists (select from forgotten g where g.mark = f.mark));
    perform facts_open(false);
    return case when cardinality(_facts) = 0 then 0 else forget_facts(_facts) end;
end $$;

-- What operators see: everything, or that of one butler or author; below an id, newest first.
create or replace function facts_for_operator(_system_id text, _author text, _below uuid, _limit integer)
returns setof fact
language plpgsql as $$
begin
    perform facts_open(true);
    return query
        select f.* from fact f
        where (_system_id is null or f.system_id = _system_id) and (_author is null or f.author = _author)
          and (_below is null or f.fact_id < _below)
        order by f.fact_id desc limit _limit;
    perform facts_open(false);
end $$;

create or replace function fact_for_operator(_fact_id uuid)
returns setof fact
language plpgsql as $$
begin
    perform facts_open(true);
    return query select f.* from fact f where f.fact_id = _fact_id;
    perform facts_open(false);
end $$;

-- How many facts there are by butler and author, and when the newest was learned: of the newest _most those that count. What they
-- say is not told.
create or replace function count_facts(_most integer)
returns table (system_id text, author text, facts bigint, newest timestamptz)
language plpgsql as $$
begin
    perform facts_open(true);
    return query
        select f.system_id, f.author, count(*), max(f.created_at)
        from (select n.* from fact n order by n.fact_id desc limit _most) f
        where f.undone_at is null
        group by f.system_id, f.author
        order by max(f.created_at) desc, f.system_id, f.author;
    perform facts_open(false);
end $$;
