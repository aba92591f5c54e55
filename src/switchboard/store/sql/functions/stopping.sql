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

-- The turns that run for earlier messages of the senders of these commands, in the same conversations, are to end. What has not
-- begun stays. Only the latest messages count: so many do not wait behind one that runs.
create or replace function stop_earlier(_commands uuid[]) returns table (lane uuid, seq bigint)
language sql as $$
    delete from stopped where at < clock_timestamp() - interval '1 day';
    insert into stopped (lane, seq, command)
        select distinct on (d.lane, d.seq) d.lane, d.seq, s.request_id
        from message_inbox s
        cross join lateral (
            select m.request_id, m.sender from message_inbox m
            where m.conversation = s.conversation and m.request_id < s.request_id
            order by m.request_id desc limit 200
        ) m
        join delivery d on d.request_id = m.request_id and d.state = 'pending' and d.system_id <> 'switchboard'
        join lane l on l.key = d.lane and l.next_seq = d.seq and (l.state = 'running' or l.attempts > 0 or l.delayed)
        where s.request_id = any (_commands) and m.sender = s.sender
        order by d.lane, d.seq, s.request_id
        on conflict do nothing
        returning lane, seq;
$$;

-- Lanes that wait for another attempt at an item that is to end need not wait any longer. False: there are none.
create or replace function wake_stopped(_lane uuid[]) returns boolean
language plpgsql as $$
begin
    -- one of them may be about to wait: see try_again
    perform from lane l where l.key = any (_lane) order by l.key for no key update;
    update lane l set delayed = false, ready_at = clock_timestamp()
        where l.key = any (_lane) and l.state = 'ready' and l.delayed and is_stopped(l.key, l.next_seq);
    return found;
end $$;
