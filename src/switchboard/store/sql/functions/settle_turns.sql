-- Complete: the turn, its delivery or notice, its reply, its dead letter and the next item, or nothing at all (fenced).
-- A reply goes to the conversation of the message, and nowhere else: it is looked up here, not given.
-- _pool is where the reply waits: null for a mailbox that is read over the API.
create or replace function settle_turns(
    _owner bigint, _lane uuid[], _epoch bigint[], _seq bigint[], _outcome text[], _error_class text[], _error text[],
    _engine text[], _started_at timestamptz[], _stop_reason text[], _usage text[], _hand_on boolean[], _pause boolean[],
    _outbox_id uuid[], _text text[], _pool text[],
    _dead_id uuid[], _category text[], _reason text[], _handler text[]
) returns table (lane uuid, ok boolean, next_seq bigint)
language plpgsql as $$
#variable_conflict use_column
declare
    _conversation uuid[] := (select array_agg(l.conversation order by i.ord)
                             from unnest(_lane) with ordinality as i (lane, ord) left join lane l on l.key = i.lane);
    -- replies that are read over the API never wait for a sender, so they have a lane of their own that is always idle
    _send_lane uuid[] := (select array_agg(lane_key(case when r.pool is null then 'mailbox' else 'send' end, null, r.conversation) order by r.ord)
                          from unnest(_pool, _conversation) with ordinality as r (pool, conversation, ord));
    _ok boolean[];
    _reply integer[];
    _reply_seq bigint[];
begin
    perform lock_lanes(array_agg(w.key), array_agg(w.kind), array_agg(w.system_id), array_agg(w.conversation), array_agg(w.pool))
        from (
            select l.key, l.kind, l.system_id, l.conversation, l.pool from lane l where l.key = any (_lane)
            union all select i.lane, case when i.pool is null then 'mailbox' else 'send' end, null, i.conversation, coalesce(i.pool, 'work')
            from unnest(_outbox_id, _pool, _conversation, _send_lane) as i (outbox_id, pool, conversation, lane)
            where i.outbox_id is not null and i.conversation is not null
            union all select lane_key('notice', i.handler, i.conversation), 'notice', i.handler, i.conversation, 'work'
            from unnest(_dead_id, _handler, _conversation) as i (dead_id, handler, conversation)
            where i.dead_id is not null and i.handler is not null
        ) w;

    select array_agg(l.key is not null order by i.ord) into _ok
        from unnest(_lane, _epoch, _seq) with ordinality as i (lane, epoch, seq, ord)
        left join lane l on l.key = i.lane and l.owner = _owner and l.epoch = i.epoch and l.state = 'running'
                        and l.next_seq = i.seq;

    insert into attempt (request_id, lane, seq, epoch, outcome, error_class, error, engine, worker, started_at, finished_at,
                         stop_reason, usage)
        select request_of(i.lane, i.seq), i.lane, i.seq, i.epoch, i.outcome, i.error_class, i.error, i.engine, _owner, i.started_at, clock_timestamp(),
               i.stop_reason, i.usage::json
        from unnest(_lane, _seq, _epoch, _outcome, _error_class, _error, _engine, _started_at, _stop_reason, _usage, _ok)
             as i (lane, seq, epoch, outcome, error_class, error, engine, started_at, stop_reason, usage, ok)
        where i.ok;

    update delivery d set
        state = case when i.dead_id is not null then 'dead' else i.outcome end,
        error_class = i.error_class, settled_at = clock_timestamp()
        from unnest(_lane, _seq, _outcome, _error_class, _dead_id, _ok) as i (lane, seq, outcome, error_class, dead_id, ok)
        where i.ok and d.lane = i.lane and d.seq = i.seq;
    update notice n set
        state = case when i.outcome in ('answered', 'declined') then 'delivered' else 'failed' end,
        error_class = i.error_class, settled_at = clock_timestamp()
        from unnest(_lane, _seq, _outcome, _error_class, _ok) as i (lane, seq, outcome, error_class, ok)
        where i.ok and n.lane = i.lane and n.seq = i.seq;

    if exists (select from unnest(_outbox_id) as o (id) where o.id is not null) then
        select array_agg(i.ord order by i.ord),
               enqueue(array_agg(i.send_lane order by i.ord), null, array_agg(i.pool order by i.ord))
            into _reply, _reply_seq
            from unnest(_outbox_id, _pool, _send_lane, _ok) with ordinality as i (outbox_id, pool, send_lane, ok, ord)
            where i.ok and i.outbox_id is not null;
        insert into outbox (lane, seq, outbox_id, request_id, system_id, channel, endpoint, thread, recipient,
                            reply_to, text, state, created_at, settled_at)
            select _send_lane[n.ord], n.seq, _outbox_id[n.ord], d.request_id, d.system_id, m.channel, m.endpoint,
                   m.thread, m.sender, m.envelope #>> '{event,external_event_id}', _text[n.ord],
                   case when _pool[n.ord] is null then 'sent' else 'pending' end, clock_timestamp(),
                   case when _pool[n.ord] is null then clock_timestamp() end
            from unnest(_reply, _reply_seq) as n (ord, seq)
            join delivery d on d.lane = _lane[n.ord] and d.seq = _seq[n.ord]
            join message_inbox m on m.request_id = d.request_id;
    end if;

    if exists (select from unnest(_dead_id) as x (id) where x.id is not null) then
        perform write_dead_letters(array_agg(i.dead_id), array_agg(d.request_id), array_agg(i.conversation), array_agg(d.team_id),
                     array_agg(i.category), array_agg(i.reason), array_agg(i.handler), array_agg(i.lane), array_agg(i.seq),
                     array_agg(d.system_id), array_agg(d.text), array_agg(d.n))
            from unnest(_lane, _seq, _conversation, _dead_id, _category, _reason, _handler, _ok)
                 as i (lane, seq, conversation, dead_id, category, reason, handler, ok)
            join delivery d on d.lane = i.lane and d.seq = i.seq
            where i.ok and i.dead_id is not null;
    end if;

    return query
        with moved as (
            select m.lane, m.next_seq
            from (
                select array_agg(i.lane) as lane, array_agg(i.seq) as seq, array_agg(i.hand_on) as hand_on, array_agg(i.pause) as pause
                from unnest(_lane, _seq, _hand_on, _pause, _ok) as i (lane, seq, hand_on, pause, ok) where i.ok
            ) i
            cross join advance_lanes(i.lane, i.seq, i.hand_on, i.pause) m
        )
        select i.lane, i.ok, m.next_seq
        from unnest(_lane, _ok) as i (lane, ok) left join moved m on m.lane = i.lane;
end $$;
