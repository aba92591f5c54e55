-- The turns of a message are to end, whether they have begun or not. Returns which; none of those that have ended.
create or replace function stop_message(_request_id uuid) returns table (lane uuid, seq bigint)
language sql as $$
    delete from stopped where at < clock_timestamp() - interval '1 day';
    insert into stopped (lane, seq)
        select d.lane, d.seq from delivery d where d.request_id = _request_id and d.state = 'pending'
        on conflict do nothing
        returning lane, seq;
$$;

-- The turns that run for earlier messages of the sender of this one, in the same conversation, are to end. What has not begun
-- stays. Only the latest messages count: so many do not wait behind one that runs.
create or replace function stop_before(_request_id uuid) returns table (lane uuid, seq bigint)
language sql as $$
    delete from stopped where at < clock_timestamp() - interval '1 day';
    insert into stopped (lane, seq)
        select d.lane, d.seq
        from message_inbox s
        cross join lateral (
            select m.request_id, m.sender from message_inbox m
            where m.conversation = s.conversation and m.request_id < s.request_id
            order by m.request_id desc limit 200
        ) m
        join delivery d on d.request_id = m.request_id and d.state = 'pending'
        join lane l on l.key = d.lane and l.next_seq = d.seq and (l.state = 'running' or l.attempts > 0 or l.delayed)
        where s.request_id = _request_id and m.sender = s.sender
        on conflict do nothing
        returning lane, seq;
$$;
