-- Complete: the turn, its delivery or notice, its reply, its dead letter and the next item, or nothing at all (fenced).
-- A reply goes to the conversation of the message, and nowhere else: it is looked up here, not given.
-- pool is where the reply waits: null for a mailbox that is read over the API. To plan the statements for each call took as
-- long as to execute them; they look up by key, so that one plan is right for all. It may be made while the tables are small, and
-- is kept when they have grown: only indexes are read. What no index serves then seems to cost so much that it would be compiled,
-- hence no jit. And "= any (array[x])" in place of "= x", or "offset 0" where a row is only asked for: of a table with one row all
-- of an index is read as cheaply as one key, and such a condition allows nothing but to look up a key. Nor does an index serve
-- "is not distinct from", which is why the fence is asked for in this way.
create or replace function settle_turns(_owner bigint, _given settlement[])
returns table (lane uuid, ok boolean, next_seq bigint)
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    _lane uuid[] := array(select i.lane from unnest(_given) i);
    _conversation uuid[];
    _flow bigint[];
    _send_lane uuid[];
    _notices boolean;
    _dead boolean;
    _files boolean;
    _ok boolean[];
    _ended integer[];
    _request_id uuid[];
    _system text[];
    _reply_seq bigint[];
begin
    -- replies that are read over the API never wait for a sender, so they have a lane of their own that is always idle
    select array_agg(l.conversation order by i.ordinality), array_agg(l.flow order by i.ordinality),
           array_agg(case when i.outbox_id is not null then
                         lane_key(case when i.pool is null then 'mailbox' else 'send' end, null, l.conversation)
                     end order by i.ordinality),
           bool_or(l.kind = 'notice'), bool_or(i.dead_letter_id is not null), bool_or(i.files is not null)
        into _conversation, _flow, _send_lane, _notices, _dead, _files
        from unnest(_given) with ordinality i left join lane l on l.key = any (array[i.lane]);
    perform lock_lanes(array_agg(w.key), array_agg(w.kind), array_agg(w.system_id), array_agg(w.conversation), array_agg(w.pool))
        from (
            select l.key, l.kind, l.system_id, l.conversation, l.pool from lane l where l.key = any (_lane)
            union all select _send_lane[i.ordinality], case when i.pool is null then 'mailbox' else 'send' end, null,
                             _conversation[i.ordinality], coalesce(i.pool, 'work')
            from unnest(_given) with ordinality i
            where i.outbox_id is not null and _conversation[i.ordinality] is not null
            union all select lane_key('notice', i.handler, _conversation[i.ordinality]), 'notice', i.handler,
                             _conversation[i.ordinality], 'work'
            from unnest(_given) with ordinality i
            where i.dead_letter_id is not null and i.handler is not null
        ) w;

    select array_agg((l.owner, l.epoch, l.state, l.next_seq) is not distinct from (_owner, i.epoch, 'running', i.seq)
                     order by i.ordinality) into _ok
        from unnest(_given) with ordinality i left join lane l on l.key = any (array[i.lane]);

    with settled as (
        update delivery d set
            state = case when i.dead_letter_id is not null then 'dead' else i.outcome end,
            error_class = i.error_class, settled_at = clock_timestamp()
            from unnest(_given) with ordinality i
            where _ok[i.ordinality] and d.lane = any (array[i.lane]) and d.seq = i.seq
            returning i.ordinality as ord, d.request_id, d.system_id
    ), told as (
        update notice n set
            state = case when i.outcome in ('answered', 'declined') then 'delivered' else 'failed' end,
            error_class = i.error_class, settled_at = clock_timestamp()
            from unnest(_given) with ordinality i
            where _notices and _ok[i.ordinality] and n.lane = any (array[i.lane]) and n.seq = i.seq
            returning i.ordinality as ord, n.request_id
    ), attempted as (
        insert into attempt (request_id, lane, seq, epoch, outcome, error_class, error, engine, worker, started_at, finished_at,
                             stop_reason, usage)
            select e.request_id, i.lane, i.seq, i.epoch, i.outcome, i.error_class, i.error, i.engine, _owner, i.started_at,
                   clock_timestamp(), i.stop_reason, i.usage::json
            from (select s.ord, s.request_id from settled s union all select t.ord, t.request_id from told t) e
            join unnest(_given) with ordinality i on i.ordinality = e.ord
    )
    select array_agg(s.ord order by s.ord), array_agg(s.request_id order by s.ord), array_agg(s.system_id order by s.ord)
        into _ended, _request_id, _system
        from settled s where _send_lane[s.ord] is not null;

    if _ended is not null then
        select enqueue_items(array_agg(_send_lane[e.ord] order by e.ord), array_agg(_flow[e.ord] order by e.ord), null,
                             array_agg(i.pool order by e.ord))
            into _reply_seq from unnest(_ended) as e (ord) join unnest(_given) with ordinality i on i.ordinality = e.ord;
        insert into outbox (lane, seq, outbox_id, request_id, system_id, channel, endpoint, thread, recipient,
                            reply_to, text, files, state, created_at, settled_at)
            select _send_lane[e.ord], e.seq, i.outbox_id, e.request_id, e.system_id,
                   -- a notice names the account through which it goes: core/notices.py
                   case when m.channel = 'notice' then split_part(m.endpoint, '/', 1) else m.channel end,
                   case when m.channel = 'notice' then substr(m.endpoint, strpos(m.endpoint, '/') + 1) else m.endpoint end,
                   m.thread, m.sender, m.envelope #>> '{event,external_event_id}', i.text, i.files::json,
                   case when i.pool is null then 'sent' else 'pending' end, clock_timestamp(),
                   case when i.pool is null then clock_timestamp() end
            from unnest(_ended, _reply_seq, _request_id, _system) as e (ord, seq, request_id, system_id)
            join unnest(_given) with ordinality i on i.ordinality = e.ord
            join message_inbox m on m.request_id = any (array[e.request_id]);
        if _files then
            insert into outbox_blob (blob, outbox_id)
                select decode(f ->> 'sha256', 'hex'), i.outbox_id
                from unnest(_ended) as e (ord) join unnest(_given) with ordinality i on i.ordinality = e.ord
                cross join json_array_elements(i.files::json) f
                on conflict do nothing;
        end if;
    end if;

    if _dead then
        perform write_dead_letters(array_agg(
                (i.dead_letter_id, d.request_id, _conversation[i.ordinality], d.team_id, i.category, i.reason, i.handler, i.lane,
                 i.seq, d.system_id, d.text, d.n)::new_dead_letter))
            from unnest(_given) with ordinality i
            join delivery d on d.lane = any (array[i.lane]) and d.seq = i.seq
            where _ok[i.ordinality] and i.dead_letter_id is not null;
    end if;

    return query
        with moved as (
            select m.lane, m.next_seq
            from (
                select array_agg(i.lane) as lane, array_agg(i.seq) as seq, array_agg(i.hand_on) as hand_on, array_agg(i.pause) as pause
                from unnest(_given) with ordinality i where _ok[i.ordinality]
            ) i
            cross join advance_lanes(i.lane, i.seq, i.hand_on, i.pause) m
        )
        select i.lane, _ok[i.ordinality], m.next_seq
        from unnest(_given) with ordinality i left join moved m on m.lane = i.lane;
end $$;
