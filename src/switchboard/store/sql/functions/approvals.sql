-- Register that a step of a running item waits for a decision of people, as expect_event. A second time changes nothing. False means
-- fenced.
create or replace function ask_people_about(
    _owner bigint, _lane uuid, _epoch bigint, _seq bigint, _request_id uuid, _path text, _key uuid, _within interval,
    _kind text, _tool text, _effect text, _risk text, _arguments json, _why text, _digest text, _readers text
) returns boolean
language plpgsql as $$
begin
    if not expect_event(_owner, _lane, _epoch, _seq, _request_id, _path, _key, _within) then
        return false;
    end if;
    insert into approval (approval_id, kind, system_id, tool, effect, risk, arguments, why, digest, readers)
        select _key, _kind, d.system_id, _tool, _effect, _risk, _arguments, _why, _digest, _readers
        from delivery d where d.lane = _lane and d.seq = _seq
        on conflict do nothing;
    return true;
end $$;

-- The same for servers of 0.1, which do not say what the call may do.
create or replace function ask_people(
    _owner bigint, _lane uuid, _epoch bigint, _seq bigint, _request_id uuid, _path text, _key uuid, _within interval,
    _kind text, _tool text, _arguments json, _why text, _digest text, _readers text
) returns boolean
language sql as $$
    select ask_people_about(_owner, _lane, _epoch, _seq, _request_id, _path, _key, _within, _kind, _tool, null, null, _arguments,
                            _why, _digest, _readers);
$$;

-- Whether an item has not ended: it is before the end of its lane, or parked.
create or replace function has_not_ended(_lane uuid, _seq bigint) returns boolean
language sql stable as $$
    select exists (select from lane l where l.key = _lane and l.done_seq < _seq)
        or exists (select from parked p where p.lane = _lane and p.seq = _seq);
$$;

-- What became of what people were asked.
create or replace function approval_state(_event awaited) returns text
language sql stable as $$
    select case
        when _event.result is not null then coalesce(_event.result #>> '{value,decision}', 'expired')
        when _event.decided_at is null and has_not_ended(_event.lane, _event.seq) then 'pending'
        else 'ended' end;
$$;

-- Tell the sender of the message of a running item what its turn waits for (_keys), each once. False: fenced, or told before.
create or replace function tell_of_approvals(
    _owner bigint, _lane uuid, _epoch bigint, _seq bigint, _keys uuid[], _outbox_id uuid, _text text, _pool text
) returns boolean
language plpgsql as $$
#variable_conflict use_column
declare
    _conversation uuid := (select l.conversation from lane l where l.key = _lane);
    _kind text := case when _pool is null then 'mailbox' else 'send' end;
    _key uuid := lane_key(_kind, null, _conversation);
begin
    perform lock_lanes(array[_key], array[_kind], array[null::text], array[_conversation], array[coalesce(_pool, 'work')]);
    if not exists (select from lane l
                   where l.key = _lane and l.owner = _owner and l.epoch = _epoch and l.state = 'running' and l.next_seq = _seq) then
        return false;
    end if;
    update approval p set told_in = _outbox_id where p.approval_id = any (_keys) and p.told_in is null;
    if found then
        perform say_as_switchboard(request_of(_lane, _seq), _key, _outbox_id, _text, _pool);
    end if;
    return found;
end $$;
