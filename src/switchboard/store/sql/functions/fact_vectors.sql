-- Vectors of facts: in fact_halfvec where pgvector is, else in fact_vector. What names pgvector is run as text, as a server without
-- it refuses such a function. Rows of facts that are forgotten, undone or told to others go with their terms, by foreign keys.

-- Where pgvector is, if it is 0.8 or newer and in use; null: nowhere.
create or replace function vector_schema() returns text
language plpgsql stable as $$
begin
    return (
        select n.nspname from pg_extension e join pg_namespace n on n.oid = e.extnamespace
        where e.extname = 'vector' and to_regclass('switchboard.fact_halfvec') is not null);
end $$;

-- Make pgvector ready, if the server has it, and may: only superusers make it.
create or replace function prepare_pgvector() returns boolean
language plpgsql as $$
declare
    _schema text;
begin
    if to_regclass('switchboard.fact_halfvec') is not null then
        return true;
    end if;
    begin
        create extension if not exists vector with schema public;
    exception
        when insufficient_privilege or undefined_file or undefined_object or feature_not_supported or invalid_schema_name then
            return false;
    end;
    select n.nspname into _schema from pg_extension e join pg_namespace n on n.oid = e.extnamespace
        where e.extname = 'vector' and string_to_array(substring(e.extversion from '^\d+\.\d+'), '.')::integer[] >= array[0, 8];
    if _schema is null then
        return false;
    end if;
    execute format(
        'create table fact_halfvec (
            model_id integer not null references fact_model on delete cascade,
            space_id integer not null,
            fact_id uuid not null,
            vector %I.halfvec not null,
            primary key (model_id, space_id, fact_id),
            foreign key (fact_id, space_id) references fact_terms (fact_id, space_id) on update cascade on delete cascade
        )', _schema);
    create index fact_halfvec_fact on fact_halfvec (fact_id);
    delete from fact_vector;
    update fact_model set complete_at = null;
    insert into fact_unembedded (model_id, fact_id)
        select m.model_id, t.fact_id from fact_model m cross join fact_terms t
        on conflict do nothing;
    return true;
end $$;

-- The number of a model, which has all facts to wait for it if it is new.
create or replace function enter_model(_name text, _revision text, _dimensions integer) returns integer
language plpgsql as $$
declare
    _model_id integer;
begin
    perform alone_with_facts();
    perform prepare_pgvector();
    select m.model_id into _model_id from fact_model m
        where m.name = _name and m.revision = _revision and m.dimensions = _dimensions;
    if _model_id is null then
        insert into fact_model (name, revision, dimensions) values (_name, _revision, _dimensions)
            returning model_id into _model_id;
        insert into fact_unembedded (model_id, fact_id) select _model_id, t.fact_id from fact_terms t;
    end if;
    return _model_id;
end $$;

-- The statement that makes the index of a model, if somebody may see so many facts that it is needed, or that removes one whose
-- making was interrupted; null: none is due. It runs outside of transactions, and stops nobody. Vectors with more dimensions than
-- 4000 can have no index.
create or replace function due_vector_index(_model_id integer, _exact bigint) returns text
language plpgsql as $$
declare
    _name text := format('fact_halfvec_%s', _model_id);
    _valid boolean := (select i.indisvalid from pg_index i where i.indexrelid = to_regclass('switchboard.' || _name));
begin
    return (
        select case when not _valid then format('drop index switchboard.%I', _name) else format(
            'create index concurrently %I on switchboard.fact_halfvec '
            'using hnsw ((vector::%I.halfvec(%s)) %I.halfvec_ip_ops) with (m = 24, ef_construction = 128) where model_id = %s',
            _name, vector_schema(), m.dimensions, vector_schema(), _model_id) end
        from fact_model m
        where m.model_id = _model_id and m.dimensions <= 4000 and vector_schema() is not null and _valid is not true
          and (select sum(s.facts) from fact_space s) > _exact);
end $$;

-- Some of the facts that wait for a vector.
create or replace function unembedded_facts(_model_id integer, _limit integer)
returns table (fact_id uuid, subject text, text text, predicate text)
language plpgsql as $$
begin
    perform facts_open(true);
    return query
        select f.fact_id, f.subject, f.text, f.predicate
        from fact_unembedded u join fact f on f.fact_id = u.fact_id where u.model_id = _model_id
        order by u.fact_id limit _limit;
    perform facts_open(false);
end $$;

-- The oldest facts with vectors of a model, in one of both forms: those that other weights under the same name would not make.
create or replace function sampled_vectors(_name text, _revision text, _dimensions integer, _limit integer)
returns table (subject text, text text, predicate text, vector bytea, numbers real[])
language plpgsql as $$
declare
    _model_id integer := (
        select m.model_id from fact_model m
        where m.name = _name and m.revision = _revision and m.dimensions = _dimensions);
begin
    perform facts_open(true);
    if vector_schema() is null then
        return query
            select f.subject, f.text, f.predicate, v.vector, null::real[]
            from fact_vector v join fact f on f.fact_id = v.fact_id where v.model_id = _model_id
            order by v.fact_id limit _limit;
    else
        return query execute
            'select f.subject, f.text, f.predicate, null::bytea, h.vector::real[]
            from fact_halfvec h join fact f on f.fact_id = h.fact_id where h.model_id = $1
            order by h.fact_id limit $2' using _model_id, _limit;
    end if;
    perform facts_open(false);
end $$;

-- Keep vectors: as bytes, and as text for pgvector. The facts of _fact_ids wait no more, those without a vector, a null, neither.
-- Returns whether the model is complete; others are gone then.
create or replace function put_vectors(_model_id integer, _fact_ids uuid[], _vectors bytea[], _texts text[]) returns boolean
language plpgsql as $$
begin
    perform alone_with_facts();
    delete from fact_unembedded u where u.model_id = _model_id and u.fact_id = any (_fact_ids);
    if vector_schema() is null then
        insert into fact_vector as k (model_id, space_id, fact_id, vector)
            select _model_id, t.space_id, t.fact_id, v.vector
            from unnest(_fact_ids, _vectors) as v (fact_id, vector) join fact_terms t on t.fact_id = v.fact_id
            where v.vector is not null and exists (select from fact_model m where m.model_id = _model_id)
            on conflict (model_id, space_id, fact_id) do update set vector = excluded.vector;
    else
        execute format(
            'insert into fact_halfvec as k (model_id, space_id, fact_id, vector)
                select $1, t.space_id, t.fact_id, v.vector::%I.halfvec
                from unnest($2, $3) as v (fact_id, vector) join fact_terms t on t.fact_id = v.fact_id
                where v.vector is not null and exists (select from fact_model m where m.model_id = $1)
                on conflict (model_id, space_id, fact_id) do update set vector = excluded.vector', vector_schema())
            using _model_id, _fact_ids, _texts;
    end if;
    return complete_model(_model_id);
end $$;

-- Whether all facts that a model may be given have their vectors; then others are removed.
create or replace function complete_model(_model_id integer) returns boolean
language plpgsql as $$
declare
    _other integer;
begin
    update fact_model m set complete_at = clock_timestamp()
        where m.model_id = _model_id and m.complete_at is null
          and not exists (select from fact_unembedded u where u.model_id = _model_id);
    if found then
        for _other in select m.model_id from fact_model m where m.model_id <> _model_id loop
            execute format('drop index if exists fact_halfvec_%s', _other);
            delete from fact_model m where m.model_id = _other;
        end loop;
    end if;
    return exists (select from fact_model m where m.model_id = _model_id and m.complete_at is not null);
end $$;

-- The number of a model that is complete, if there are facts at all, and whether pgvector has its vectors.
create or replace function find_model(_name text, _revision text, _dimensions integer)
returns table (model_id integer, pgvector boolean)
language sql stable as $$
    select m.model_id, vector_schema() is not null from fact_model m
    where m.name = _name and m.revision = _revision and m.dimensions = _dimensions and m.complete_at is not null
      and exists (select from fact_space);
$$;

-- The facts of spaces that are nearest to a question, with their cosines, and the cosines of those of _fact_ids. _exactly: compare
-- all of them; else by index, which may find too few.
create or replace function nearest_facts(
    _model_id integer, _spaces integer[], _query real[], _fact_ids uuid[], _limit integer, _exactly boolean
) returns table (fact_id uuid, cosine double precision)
language plpgsql as $$
#variable_conflict use_column
declare
    _schema text := vector_schema();
    _dimensions integer := cardinality(_query);
    _found integer := 0;
begin
    return query execute format(
        'select h.fact_id, -(h.vector operator(%1$I.<#>) $1::%1$I.halfvec)::double precision
        from fact_halfvec h where h.model_id = $2 and h.space_id = any ($3) and h.fact_id = any ($4)', _schema)
        using _query, _model_id, _spaces, _fact_ids;
    if not _exactly and _dimensions <= 4000 then
        perform set_config('hnsw.iterative_scan', 'relaxed_order', true), set_config('hnsw.ef_search', '1000', true),
                set_config('hnsw.max_scan_tuples', '40000', true), set_config('enable_sort', 'off', true);
        return query execute format(
            'select h.fact_id, -(h.vector operator(%1$I.<#>) $1::%1$I.halfvec)::double precision
            from fact_halfvec h where h.model_id = %2$s and h.space_id = any ($2)
            order by h.vector::%1$I.halfvec(%3$s) operator(%1$I.<#>) $1::%1$I.halfvec(%3$s) limit $3',
            _schema, _model_id, _dimensions)
            using _query, _spaces, _limit;
        get diagnostics _found = row_count;
        perform set_config('enable_sort', 'on', true);
    end if;
    if _found < _limit then
        return query execute format(
            'select h.fact_id, -(h.vector operator(%1$I.<#>) $1::%1$I.halfvec)::double precision as cosine
            from fact_halfvec h where h.model_id = $2 and h.space_id = any ($3)
            order by 2 desc, h.fact_id limit $4', _schema)
            using _query, _model_id, _spaces, _limit;
    end if;
end $$;
