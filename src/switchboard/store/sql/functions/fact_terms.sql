-- Terms, and what is counted of them, change in the transaction that changes their facts, which is alone with them.

-- The space of a fact, made if it is new.
create or replace function space_of_fact(_fact fact) returns integer
language plpgsql as $$
#variable_conflict use_column
declare
    _author text := case when _fact.space = 'private' then _fact.author end;
    _handle uuid := case when _fact.space = 'private' then _fact.handle end;
    _conversation uuid := case when _fact.space = 'group' then _fact.conversation end;
    _key uuid := encode(substr(sha256(convert_to(jsonb_build_array(
        _fact.system_id, _fact.space, _author, _handle, _conversation, _fact.special)::text, 'UTF8')), 1, 16), 'hex')::uuid;
    _space_id integer;
begin
    select s.space_id into _space_id from fact_space s where s.key = _key;
    if _space_id is null then
        insert into fact_space (key, system_id, space, author, handle, conversation, special)
            values (_key, _fact.system_id, _fact.space, _author, _handle, _conversation, _fact.special)
            returning space_id into _space_id;
    end if;
    return _space_id;
end $$;

-- The spaces of the facts that `visible` returns for the same reader, for the statistics of what they look for.
create or replace function visible_spaces(
    _system_id text, _conversation uuid, _person text, _private boolean, _authentic boolean, _handle uuid default null
) returns table (space_id integer, facts integer, words bigint)
language plpgsql stable as $$
declare
    _handles uuid[] := handles_of(_handle);
begin
    return query
        select s.space_id, s.facts, s.words from fact_space s
        where s.system_id = _system_id
          and (_private or not s.special)
          and _authentic
          and (
              s.space = 'shared'
              or (s.space = 'private' and _private and s.author = _person)
              or (s.space = 'private' and _private and s.handle = any (_handles))
              or (s.space = 'group' and not _private and _person <> '' and s.conversation = _conversation)
          );
end $$;

-- The forms of a space as its facts have them.
create or replace function forms_in(_space_id integer, _forms text[]) returns text[]
language sql immutable as $$
    select coalesce(array_agg(_space_id || ':' || f), '{}') from unnest(_forms) f;
$$;

-- The forms without their space.
create or replace function forms_of(_forms tsvector) returns text[]
language sql immutable as $$
    select coalesce(array_agg(substr(f, strpos(f, ':') + 1)), '{}') from unnest(tsvector_to_array(_forms)) f;
$$;

-- The trigrams of a word, as core/memory/terms.py has them.
create or replace function trigrams_of(_word text) returns text[]
language sql immutable as $$
    select array_agg(distinct substr(' ' || _word || ' ', n, 3)) from generate_series(1, length(_word)) n;
$$;

-- Add the terms of these facts to what is counted, or take them away: _times is 1 or -1.
create or replace function count_terms(_fact_ids uuid[], _times integer) returns void
language plpgsql as $$
#variable_conflict use_column
begin
    update fact_space s set facts = s.facts + n.facts, words = s.words + n.words
        from (
            select t.space_id, _times * count(*) as facts, _times * sum(t.words) as words
            from fact_terms t where t.fact_id = any (_fact_ids) group by t.space_id
        ) n where s.space_id = n.space_id;
    insert into fact_term_count as c (space_id, kind, term, facts, trigrams)
        select t.space_id, x.kind, x.term, _times * count(*), case when x.kind = 'form' then trigrams_of(x.term) end
        from fact_terms t
        cross join lateral (
            select 'form' as kind, f as term from unnest(forms_of(t.forms)) f
            union all
            select 'trigram', substr(t.trigrams, 3 * n - 2, 3) from generate_series(1, length(t.trigrams) / 3) n
        ) x
        where t.fact_id = any (_fact_ids)
        group by t.space_id, x.kind, x.term
        on conflict (space_id, kind, term) do update set facts = c.facts + excluded.facts;
end $$;

-- Remove what counts nothing any more: a word that was forgotten is in no table.
create or replace function drop_counts(_space_ids integer[]) returns void
language plpgsql as $$
begin
    delete from fact_term_count c where c.space_id = any (_space_ids) and c.facts = 0;
    delete from fact_space s where s.space_id = any (_space_ids) and s.facts = 0;
end $$;

-- Facts are found by their words no more.
create or replace function drop_terms(_fact_ids uuid[]) returns void
language plpgsql as $$
declare
    _space_ids integer[] := array(select distinct t.space_id from fact_terms t where t.fact_id = any (_fact_ids));
begin
    if cardinality(_space_ids) > 0 then
        perform count_terms(_fact_ids, -1);
        delete from fact_terms t where t.fact_id = any (_fact_ids);
        perform drop_counts(_space_ids);
    end if;
end $$;

-- Facts are found by these terms, and wait for vectors, unless they were only read by other languages. _terms: a JSON array of what
-- fact_terms has, but the space, with forms as an array.
create or replace function put_terms(_terms text) returns void
language plpgsql as $$
#variable_conflict use_column
declare
    _fact_ids uuid[] := array(select t.fact_id from json_to_recordset(_terms::json) as t (fact_id uuid));
    _known uuid[];
    _left integer[];
begin
    perform alone_with_facts();
    _known := array(select t.fact_id from fact_terms t where t.fact_id = any (_fact_ids));
    insert into fact_unembedded (model_id, fact_id)
        select m.model_id, t.fact_id
        from json_to_recordset(_terms::json) as g (fact_id uuid, read_as text)
        join fact_terms t on t.fact_id = g.fact_id and t.read_as = g.read_as
        cross join fact_model m
        on conflict do nothing;
    _left := array(select distinct t.space_id from fact_terms t where t.fact_id = any (_fact_ids));
    perform count_terms(_fact_ids, -1);
    perform facts_open(true);
    with given as (
        select t.fact_id, s.space_id, t.words, t.trigrams, t.safety, t.read_as,
               array_to_tsvector(forms_in(s.space_id, array(select json_array_elements_text(t.forms)))) as forms
        from json_to_recordset(_terms::json) as t (
            fact_id uuid, words smallint, forms json, trigrams text, safety boolean, read_as text)
        join fact f on f.fact_id = t.fact_id and f.undone_at is null
        cross join lateral (select space_of_fact(f) as space_id offset 0) s
    ), known as (
        update fact_terms k
            set space_id = g.space_id, words = g.words, forms = g.forms, trigrams = g.trigrams, safety = g.safety, read_as = g.read_as
            from given g where k.fact_id = g.fact_id returning k.fact_id
    )
    insert into fact_terms (fact_id, space_id, words, forms, trigrams, safety, read_as)
        select g.fact_id, g.space_id, g.words, g.forms, g.trigrams, g.safety, g.read_as
        from given g where g.fact_id not in (select k.fact_id from known k)
        on conflict (fact_id) do nothing;
    perform facts_open(false);
    insert into fact_unembedded (model_id, fact_id)
        select m.model_id, t.fact_id from fact_terms t cross join fact_model m
        where t.fact_id = any (_fact_ids) and t.fact_id <> all (_known)
        on conflict do nothing;
    perform count_terms(_fact_ids, 1);
    perform drop_counts(_left);
    delete from fact_unread u where u.fact_id = any (_fact_ids);
end $$;

-- Count the terms of facts in the spaces where these are now.
create or replace function move_terms(_fact_ids uuid[]) returns void
language plpgsql as $$
#variable_conflict use_column
declare
    _moved uuid[];
    _left integer[];
begin
    perform facts_open(true);
    select coalesce(array_agg(t.fact_id), '{}'), array_agg(distinct t.space_id) into _moved, _left
        from fact f join fact_terms t on t.fact_id = f.fact_id
        where f.fact_id = any (_fact_ids) and t.space_id <> space_of_fact(f);
    if cardinality(_moved) > 0 then
        perform count_terms(_moved, -1);
        update fact_terms t
            set space_id = s.space_id, forms = array_to_tsvector(forms_in(s.space_id, forms_of(t.forms)))
            from fact f cross join lateral (select space_of_fact(f) as space_id offset 0) s
            where f.fact_id = t.fact_id and t.fact_id = any (_moved);
        perform count_terms(_moved, 1);
        perform drop_counts(_left);
    end if;
    perform facts_open(false);
end $$;

-- Read all facts anew if this is another way to read them. Whether it is.
create or replace function change_reading(_read_as text) returns boolean
language plpgsql as $$
#variable_conflict use_column
declare
    _changed boolean;
begin
    if exists (select from fact_reading r where r.read_as = _read_as) then
        return false;
    end if;
    perform alone_with_facts();
    update fact_reading r set read_as = _read_as where r.read_as <> _read_as;
    _changed := found;
    if _changed then
        insert into fact_unread (fact_id) select t.fact_id from fact_terms t where t.read_as <> _read_as
            on conflict do nothing;
    end if;
    return _changed;
end $$;

-- Some of the facts that wait to be read.
create or replace function unread_facts(_limit integer)
returns table (fact_id uuid, subject text, text text, predicate text)
language plpgsql as $$
begin
    perform facts_open(true);
    return query
        select f.fact_id, f.subject, f.text, f.predicate from fact_unread u join fact f on f.fact_id = u.fact_id limit _limit;
    perform facts_open(false);
end $$;
