-- What of a message waits for its next attempt, or is paused, need not wait any longer: its turns, its notices, its replies, and
-- itself where a model was to be asked. Returns how many lanes go on.
create or replace function try_message_now(_request_id uuid) returns bigint
language plpgsql as $$
declare
    _lane uuid[];
begin
    select array_agg(l.key) into _lane from (
        select l.key from (
            select d.lane, d.seq from delivery d where d.request_id = _request_id and d.state = 'pending'
            union select r.lane, r.seq from routing r where r.request_id = _request_id and r.state = 'pending'
            union select n.lane, n.seq from notice n where n.request_id = _request_id and n.state = 'pending'
            union select o.lane, o.seq from outbox o where o.request_id = _request_id and o.state = 'pending'
        ) i join lane l on l.key = i.lane
        where l.next_seq = i.seq and (l.state = 'paused' or l.state = 'ready' and l.ready_at > clock_timestamp())
        order by l.key for no key update of l
    ) l;
    update lane l set state = 'ready', ready_at = clock_timestamp(), delayed = false
        where l.key = any (_lane) and (l.state = 'paused' or l.state = 'ready');
    perform choose_next(k.key) from unnest(_lane) as k (key);
    return coalesce(cardinality(_lane), 0);
end $$;
