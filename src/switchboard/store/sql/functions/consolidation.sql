-- What was said in a lane since facts were last looked for: what people said that no summary stands for, and that may be learned
-- from. A turn is an episode.
create or replace function consolidation_news(_lane uuid)
returns table (episodes bigint, since timestamptz)
language sql stable as $$
    select count(distinct e.request_id), min(e.created_at) from switchboard.entry e
    where e.lane = _lane and e.position > coalesce((select c.position from switchboard.consolidation c where c.lane = _lane), 0)
      and e.compacted_at is null and e.learn and e.role = 'user' and e.person <> '' and e.request_id > switchboard.begun_anew(_lane);
$$;

-- Take up to _limit lanes in which enough was said, or something long enough ago, for _lease. Each try that comes to nothing
-- doubles the time until the next one.
create or replace function claim_consolidations(_limit integer, _lease interval, _enough bigint, _after interval)
returns setof uuid
language sql as $$
    insert into switchboard.consolidation as c (lane, at, tries, ready_at)
        select l.key, '-infinity', 1, clock_timestamp() + _lease
        from switchboard.lane l
        left join switchboard.consolidation k on k.lane = l.key
        cross join lateral switchboard.consolidation_news(l.key) n
        where l.kind = 'turn'
          -- one look-up in the index for each conversation; as `exists` it would be a scan of all entries
          and (select e.position from switchboard.entry e where e.lane = l.key order by e.position desc limit 1)
              > coalesce(k.position, 0)
          and coalesce(k.ready_at, '-infinity') <= clock_timestamp()
          and (n.episodes >= _enough
               or n.episodes > 0 and greatest(n.since, coalesce(k.at, '-infinity')) <= clock_timestamp() - _after)
        order by coalesce(k.ready_at, '-infinity'), l.key limit _limit
        on conflict (lane) do update
            set tries = least(c.tries + 1, 10), ready_at = clock_timestamp() + _lease * (1 << least(c.tries, 8))
            where c.ready_at <= clock_timestamp()
        returning c.lane;
$$;

-- Begin to ask a model, if the butler has so many tokens left of those of a day. Whether it has.
create or replace function begin_consolidation_run(
    _run uuid, _lane uuid, _person text, _first bigint, _last bigint, _episodes integer, _tokens integer, _budget integer
) returns boolean
language plpgsql as $$
declare
    _system_id text := (select l.system_id from lane l where l.key = _lane);
begin
    perform pg_advisory_xact_lock(hashtextextended('switchboard.consolidation ' || _system_id, 0));
    insert into consolidation_run (run, lane, system_id, person, first_position, last_position, episodes, tokens)
        select _run, _lane, _system_id, _person, _first, _last, _episodes, _tokens
        where _tokens + (
            select coalesce(sum(r.tokens), 0) from consolidation_run r
            where r.system_id = _system_id and r.started_at > clock_timestamp() - interval '1 day') <= _budget;
    return found;
end $$;

-- Keep what was found in entries, unless what was read has changed meanwhile, or somebody else has looked for facts in it; or a
-- fact was forgotten: the next try reads without it. _found: a JSON array of run and facts, which are as for save_facts.
create or replace function commit_consolidation(_lane uuid, _after bigint, _last bigint, _mark text, _found text) returns boolean
language plpgsql as $$
#variable_conflict use_column
declare
    _one record;
    _new integer;
    _forgotten integer;
begin
    perform from lane l where l.key = _lane for no key update;
    if coalesce((select c.position from consolidation c where c.lane = _lane), 0) <> _after
       or compaction_mark(_lane, _after + 1, _last) <> _mark then
        return false;
    end if;
    perform alone_with_facts();
    select sum(unlearn_forgotten(_lane, f.facts::text)) into _forgotten
        from json_to_recordset(_found::json) as f (run uuid, facts json);
    if _forgotten > 0 then
        return false;
    end if;
    for _one in select f.run, f.facts::text as facts from json_to_recordset(_found::json) as f (run uuid, facts json) loop
        _new := save_facts(_lane, _one.facts);
        update consolidation_run r set outcome = 'kept', facts = _new, ended_at = clock_timestamp() where r.run = _one.run;
    end loop;
    insert into consolidation as c (lane, position) values (_lane, _last)
        on conflict (lane) do update
        set position = excluded.position, at = excluded.at, tries = 0, ready_at = excluded.ready_at;
    return true;
end $$;

-- Count what a run has found as never said; a fact that others have found, too, is theirs, without its sources of this run. Null:
-- there is no such run; else how many facts are gone, none if it was undone before.
create or replace function undo_consolidation_run(_run uuid) returns integer
language plpgsql as $$
declare
    _undone integer;
begin
    perform alone_with_facts();
    perform from consolidation_run r where r.run = _run for no key update;
    if not found then
        return null;
    end if;
    update consolidation_run r set undone_at = coalesce(r.undone_at, clock_timestamp()) where r.run = _run;
    perform facts_open(true);
    update fact f set (run, said_at, valid_from, valid_to) = (
            select s.run, s.said_at, s.valid_from, s.valid_to from fact_source s
            where s.fact_id = f.fact_id and s.run is distinct from _run order by s.run nulls first, s.said_at limit 1)
        where f.run = _run and exists (select from fact_source s where s.fact_id = f.fact_id and s.run is distinct from _run);
    delete from fact_source s using fact f
        where s.run = _run and f.fact_id = s.fact_id and f.run is distinct from _run;
    update fact f set undone_at = clock_timestamp() where f.run = _run and f.undone_at is null;
    get diagnostics _undone = row_count;
    perform drop_terms(array(select f.fact_id from fact f where f.run = _run));
    perform facts_open(false);
    return _undone;
end $$;
