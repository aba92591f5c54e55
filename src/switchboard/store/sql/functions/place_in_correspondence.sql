-- The conversation of each message (by ord) of a channel where anybody can name any thread: that of the first of its threads
-- (t_*, in order) in which its author is known, else that of the first of our own messages that it names (i_*, in order, sent
-- from the account _channel and _endpoint) in which its author is known. A stranger in the thread that it names (_home) gets a
-- conversation of its own (_apart), unless nobody is known there yet. Its recipients (a_*) are known from now on in its own
-- thread (_own), and in the one that it names if its author is; a place that somebody has stays. _keep: false only tells.
create or replace function place_in_correspondence(
    _home uuid[], _apart uuid[], _own uuid[], _author uuid[], _channel text[], _endpoint text[],
    t_ord integer[], t_thread uuid[], i_ord integer[], i_id text[], a_ord integer[], a_person uuid[], _keep boolean
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
        if _found is null and n = any (i_ord) then
            _found := place_by_reply(array(select i.id from unnest(i_ord, i_id) as i (ord, id) where i.ord = n),
                                     _channel[n], _endpoint[n], _author[n]);
        end if;
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
                    union values (_own[n], _author[n]), (_home[n], _author[n]), (_found, _author[n])
                ) w
                order by w.thread, w.person
                on conflict do nothing;
        end if;
        return query select n, _found, (select c.name from conversation c where c.conversation = _found);
    end loop;
end $$;

-- The conversation in which we sent one of the messages with these ids, the first one first, if this person is known in it: who
-- has only learnt an id of ours does not belong there. The thread of a conversation has its key.
create or replace function place_by_reply(_ids text[], _channel text, _endpoint text, _person uuid) returns uuid
language sql stable as $$
    select m.conversation
    from unnest(_ids) with ordinality as i (id, place)
    cross join lateral (
        select o.request_id, o.channel, o.endpoint from outbox o where o.platform_message_id in (i.id, '<' || i.id || '>')
        union all
        select o.request_id, o.channel, o.endpoint from outbox_part p join outbox o using (outbox_id)
        where p.platform_message_id in (i.id, '<' || i.id || '>')
    ) r
    join message_inbox m using (request_id)
    join thread_place k on k.thread = m.conversation and k.person = _person and k.conversation = m.conversation
    where r.channel = _channel and r.endpoint = _endpoint
    order by i.place limit 1;
$$;
