-- Whether there was an attempt at an item.
create or replace function was_tried(_lane uuid, _seq bigint) returns boolean
language sql stable as $$
    select exists (select from attempt a where a.request_id = request_of(_lane, _seq) and a.lane = _lane and a.seq = _seq);
$$;

-- Whether its sender wants an item to end.
create or replace function is_stopped(_lane uuid, _seq bigint) returns boolean
language sql stable as $$
    select exists (select from stopped s where s.lane = _lane and s.seq = _seq);
$$;

-- The turns of a message are to end, whether they have begun or not. Returns which; none of those that have ended.
create or replace function stop_message(_request_id uuid) returns table (lane uuid, seq bigint)
language sql as $$
    delete from stopped where at < clock_timestamp() - interval '1 day';
    insert into stopped (lane, seq)
        select d.lane, d.seq from delivery d where d.request_id = _request_id and d.state = 'pending'
        on conflict do nothing
        returning lane, seq;
$$;

-- The turns that run or wait for an event, for earlier messages of the senders of these commands in the same conversations, are
-- to end. What has not begun stays. It starts from the lanes, so what others have written in the conversation since does not matter.
create or replace function stop_earlier(_commands uuid[]) returns table (lane uuid, seq bigint)
language sql as $$
    delete from stopped where at < clock_timestamp() - interval '1 day';
    insert into stopped (lane, seq, command)
        select distinct on (d.lane, d.seq) d.lane, d.seq, s.request_id
        from message_inbox s
        cross join member b
        join lane l on l.key = lane_key('turn', b.system_id, s.conversation)
        cross join lateral (
            select l.next_seq where l.state = 'running' or l.attempts > 0 or (l.delayed and was_tried(l.key, l.next_seq))
            union all
            select p.seq from parked p where p.lane = l.key and p.due_at is null
        ) as begun (seq)
        join delivery d on d.lane = l.key and d.seq = begun.seq and d.state = 'pending'
        join message_inbox m on m.request_id = d.request_id
        where s.request_id = any (_commands)
            and m.conversation = s.conversation and m.sender = s.sender and m.request_id < s.request_id
        order by d.lane, d.seq, s.request_id
        on conflict do nothing
        returning lane, seq;
$$;

-- The turns that run or wait for an event in a conversation are to end. What has not begun stays.
create or replace function stop_conversation(_conversation uuid) returns table (lane uuid, seq bigint)
language sql as $$
    delete from stopped where at < clock_timestamp() - interval '1 day';
    insert into stopped (lane, seq)
        select distinct d.lane, d.seq
        from member b
        join lane l on l.key = lane_key('turn', b.system_id, _conversation)
        cross join lateral (
            select l.next_seq where l.state = 'running' or l.attempts > 0 or (l.delayed and was_tried(l.key, l.next_seq))
            union all
            select p.seq from parked p where p.lane = l.key and p.due_at is null
        ) as begun (seq)
        join delivery d on d.lane = l.key and d.seq = begun.seq and d.state = 'pending'
        on conflict do nothing
        returning lane, seq;
$$;

-- Lanes that wait for another attempt at an item that is to end need not wait any longer, and neither need parked items for
-- their events. False: there are none.
create or replace function wake_stopped(_lane uuid[]) returns boolean
language plpgsql as $$
declare
    _delayed boolean;
    _parked uuid[];
begin
    -- one of them may be about to wait: see try_again and park_item
    perform from lane l where l.key = any (_lane) order by l.key for no key update;
    update lane l set delayed = false, ready_at = clock_timestamp()
        where l.key = any (_lane) and l.state = 'ready' and l.delayed and is_stopped(l.key, l.next_seq);
    _delayed := found;
    with woken as (
        update parked p set decided_at = clock_timestamp()
            where p.lane = any (_lane) and p.decided_at is null and p.due_at is null and is_stopped(p.lane, p.seq)
            returning p.lane
    )
    select array_agg(distinct w.lane) into _parked from woken w;
    perform choose_next(w.lane) from unnest(_parked) as w (lane);
    return _delayed or _parked is not null;
end $$;
