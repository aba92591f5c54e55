-- Let a reply that was sent have failed, if the platform has reported since that it did not deliver one of its messages: the part
-- is refused, so that it is sent again with the reply, and nothing more goes there if nothing can (as of when it was sent, because
-- somebody may have written since). The caller holds the lock of its lane. Returns the state that the reply is in now.
create or replace function count_late_failure(_outbox_id uuid) returns text
language plpgsql as $$
#variable_conflict use_column
declare
    _late late_failure;
    _sent_at timestamptz;
begin
    select f.* into _late
        from outbox o
        cross join lateral (
            select o.platform_message_id as id union select p.platform_message_id from outbox_part p where p.outbox_id = o.outbox_id
        ) sent
        join late_failure f on hashtextextended(f.platform_message_id, 0) = hashtextextended(sent.id, 0)
                           and f.platform_message_id = sent.id and f.channel = o.channel and f.endpoint = o.endpoint
        where o.outbox_id = _outbox_id and o.state = 'sent' and f.outbox_id is null
        order by f.because nulls last, f.at limit 1;
    if not found then
        return (select o.state from outbox o where o.outbox_id = _outbox_id);
    end if;
    update late_failure f set outbox_id = _outbox_id, reason = '' where f.late_failure_id = _late.late_failure_id;
    _sent_at := coalesce(
        (select min(p.at) from outbox_part p where p.outbox_id = _outbox_id and p.platform_message_id = _late.platform_message_id),
        (select o.settled_at from outbox o where o.outbox_id = _outbox_id));
    update outbox_part p set state = 'refused', error = _late.reason
        where p.outbox_id = _outbox_id and p.platform_message_id = _late.platform_message_id;
    update outbox o set
        state = 'failed', error = 'the platform had taken it, and reported later: ' || _late.reason, settled_at = clock_timestamp(),
        untold = case when is_notice(o) then 'blocked' when o.system_id = 'switchboard' then null
                      when _late.because is null or is_mail(o) then 'undelivered'
                      when (select l.blocked_at is null from lane l where l.key = o.lane) then _late.because end
        where o.outbox_id = _outbox_id;
    update lane l set blocked_at = greatest(l.blocked_at, _sent_at)
        from outbox o where o.outbox_id = _outbox_id and l.key = o.lane and _late.because = 'blocked';
    return 'failed';
end $$;

-- Let the reply that has sent a message fail, if this was reported. Returns its state; null if no reply has sent it, or several did,
-- so that nobody knows which was meant.
create or replace function fail_late(_channel text, _endpoint text, _platform_message_id text) returns text
language plpgsql as $$
#variable_conflict use_column
declare
    _found uuid[] := array(
        select o.outbox_id from outbox o
            where hashtextextended(o.platform_message_id, 0) = hashtextextended(_platform_message_id, 0)
              and o.platform_message_id = _platform_message_id and o.channel = _channel and o.endpoint = _endpoint
        union
        select o.outbox_id from outbox_part p join outbox o using (outbox_id)
            where hashtextextended(p.platform_message_id, 0) = hashtextextended(_platform_message_id, 0)
              and p.platform_message_id = _platform_message_id and o.channel = _channel and o.endpoint = _endpoint
        limit 2);
begin
    if cardinality(_found) <> 1 then
        return null;
    end if;
    perform from lane l where l.key = (select o.lane from outbox o where o.outbox_id = _found[1]) for no key update;
    return count_late_failure(_found[1]);
end $$;
