-- Called by statements of the release before only: place_in_correspondence has taken its place.
-- The conversation of each message (by ord) of a channel where anybody can name any thread: that of the first of its threads
-- (t_*, in order) in which its author is known. A stranger in the thread that it names (_home) gets a conversation of its own
-- (_apart), unless nobody is known there yet. Its recipients (a_*) are known from now on in its own thread (_own),
-- and in the one that it names if its author is; a place that somebody has stays. _keep: false only tells.
create or replace function place_in_threads(
    _home uuid[], _apart uuid[], _own uuid[], _author uuid[],
    t_ord integer[], t_thread uuid[], a_ord integer[], a_person uuid[], _keep boolean
) returns table (ord integer, conversation uuid, name text)
language plpgsql as $$
#variable_conflict use_column
declare
    _found uuid;
begin
    -- Of two strangers who come at once, one is the first.
    if _keep then
        perform pg_advisory_xact_lock(hashtextextended('thread:' || h.home, 0))
        from (select distinct u.home::text as home from unnest(_home) as u (home) order by 1) h;
    end if;
    for n in 1 .. cardinality(_home) loop
        select p.conversation into _found
            from unnest(t_ord, t_thread) with ordinality as t (ord, thread, place)
            join thread_place p on p.thread = t.thread and p.person = _author[n]
            where t.ord = n order by t.place limit 1;
        if _found is null then
            _found := case when exists (select from thread_place p where p.thread = _home[n]) then _apart[n] else _home[n] end;
        end if;
        if _keep then
            insert into thread_place (thread, person, conversation)
                select w.thread, w.person, _found
                from (
                    select _own[n] as thread, a.person from unnest(a_ord, a_person) as a (ord, person) where a.ord = n
                    union select _home[n], a.person from unnest(a_ord, a_person) as a (ord, person)
                    where a.ord = n and _found = _home[n]
                    union values (_own[n], _author[n]), (_home[n], _author[n])
                ) w
                order by w.thread, w.person
                on conflict do nothing;
        end if;
        return query select n, _found, (select c.name from conversation c where c.conversation = _found);
    end loop;
end $$;
