-- Insert dead letters, and the notices to their handlers. The caller holds the locks of the notice lanes. text: the part of
-- the message that each is about, null for the whole; n: the number of the decision that made each.
-- A System4 with 20 pending notices gets no more single ones: further dead letters wait for a digest. Concurrent
-- transactions do not see each other's notices; a few more than 20 cost less than a lock that all of them wait for.
create or replace function write_dead_letters(_given new_dead_letter[]) returns void
language plpgsql as $$
#variable_conflict use_column
declare
    _told uuid[];
    _notice uuid[];
    _flow bigint[];
begin
    with given as (
        select x.*, row_number() over (partition by x.handler order by x.id) as nth from unnest(_given) x
    ), busy as (
        select h.handler, (
            select count(*) from (
                select from notice n where n.system_id = h.handler and n.state = 'pending' limit 20
            ) p
        ) as notices
        from (select distinct g.handler from given g where g.handler is not null) h
    )
    select array_agg(g.id order by g.id), array_agg(lane_key('notice', g.handler, g.conversation) order by g.id),
           array_agg(flow_of(g.request_id) order by g.id)
        into _told, _notice, _flow
        from given g join busy b on b.handler = g.handler and b.notices + g.nth <= 20;

    with told as (
        select t.* from unnest(_told, _notice, enqueue_items(_notice, _flow)) as t (id, lane, seq)
    ), inserted as (
        insert into dead_letter (dead_letter_id, conversation, request_id, team_id, channel, payload, raw, category,
                                 reason, lane, seq, system_id, handler, received_at, created_at, notice_lane, notice_seq,
                                 text, n)
            select g.id, g.conversation, g.request_id, g.team_id, m.channel, m.envelope, coalesce(w.raw, ''), g.category,
                   g.reason, g.lane, g.seq, g.system_id, g.handler, m.received_at, clock_timestamp(), t.lane, t.seq,
                   g.text, g.n
            from unnest(_given) g
            join message_inbox m on m.request_id = any (array[g.request_id])
            left join message_raw w on w.request_id = any (array[g.request_id])
            left join told t on t.id = g.id
    )
    insert into notice (lane, seq, dead_letter_id, request_id, team_id, system_id, created_at)
        select t.lane, t.seq, g.id, g.request_id, g.team_id, g.handler, clock_timestamp()
        from told t join unnest(_given) g on g.id = t.id;
end $$;

-- Digest: one notice, at the end of its lane of digests, about the dead letters that wait to be reported to a System4. The
-- last notice there is extended, unless it is the next to run: it may have been read already. Returns the number of dead
-- letters added: 200 at most, so that few conversations are locked at once; the caller repeats until it is 0.
create or replace function digest_dead_letters(_handler text) returns bigint
language plpgsql as $$
#variable_conflict use_column
declare
    _key uuid := lane_key('notice', _handler, null);
    _ids uuid[];
    _grows boolean;
    _seq bigint;
begin
    perform lock_lanes(array[_key], array['notice'], array[_handler], array[null::uuid], array['work']);
    select array_agg(x.dead_letter_id) into _ids
        from (
            select x.dead_letter_id from dead_letter x
            where x.handler = _handler and x.notice_lane is null and x.status = 'pending'
            order by x.dead_letter_id limit 200 for no key update skip locked
        ) x;
    if _ids is null then
        return 0;
    end if;
    select l.last_seq > l.done_seq + 1 and not is_parked(_key, l.last_seq), l.last_seq into _grows, _seq from lane l where l.key = _key;
    if _grows then
        update notice n set dead_letters = n.dead_letters + cardinality(_ids) where n.lane = _key and n.seq = _seq;
    else
        _seq := (enqueue_items(array[_key], null))[1];
        insert into notice (lane, seq, dead_letter_id, request_id, team_id, system_id, created_at, dead_letters)
            select _key, _seq, x.dead_letter_id, x.request_id, x.team_id, _handler, clock_timestamp(), cardinality(_ids)
            from dead_letter x where x.dead_letter_id = _ids[1];
    end if;
    update dead_letter x set notice_lane = _key, notice_seq = _seq where x.dead_letter_id = any (_ids);
    return cardinality(_ids);
end $$;
