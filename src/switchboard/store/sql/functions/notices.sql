-- What operators have not been told of yet, the oldest of each kind. detail: whose or what kind it is, in no word that a sender
-- wrote. account: whose trouble it is; carried: the address of the notice that it is about, if it is about one.
create or replace function unnoticed(_limit integer)
returns table (kind text, key text, detail text, account text, carried text)
language sql stable as $$
    (select 'dead_letter', x.dead_letter_id::text, x.category, null::text,
            case when x.channel = 'notice' then x.payload #>> '{event,external_thread_id}' end
     from dead_letter x where not x.noticed and x.status = 'pending' order by x.dead_letter_id limit _limit)
    union all
    (select 'stranger', c.contact_id::text, c.channel || '/' || c.endpoint, null, null
     from contact c where not c.noticed and c.state = 'stranger' and c.scope <> 'late' order by c.contact_id limit _limit)
    union all
    (select 'approval', a.approval_id::text, a.system_id, null, null
     from approval a join awaited w on w.key = a.approval_id
     where not a.noticed and w.decided_at is null order by a.approval_id limit _limit)
    union all
    (select 'account', c.instance_id, c.channel || '/' || c.endpoint, c.channel || '/' || c.endpoint, null
     from connector c where is_in_trouble(c) limit _limit)
    union all
    (select e.kind, e.key, e.detail, e.account, null from sign_in_end e where not e.noticed order by e.key limit _limit);
$$;

-- Whether operators have to be told of an account: it has failed, or has been degraded for minutes, and they do not know. One
-- that is silent besides is none of its own words: `doctor` shows it.
create or replace function is_in_trouble(_one connector) returns boolean
language sql stable as $$
    select (_one.state = 'failed' or _one.state = 'degraded' and _one.since < clock_timestamp() - interval '5 minutes')
       and _one.last_seen_at > clock_timestamp() - interval '10 minutes'
       and coalesce(_one.noticed_at < _one.since, true);
$$;

-- Take what is still unnoticed of _keys for a notice, unless one of this kind went to this address within the last minute. Returns
-- how many; 0: none is sent now. The row of told_operators is locked until the notice is stored.
create or replace function take_for_notice(_kind text, _address text, _keys text[]) returns integer
language plpgsql as $$
declare
    _count integer;
begin
    insert into told_operators (kind, address, at) values (_kind, _address, '-infinity') on conflict do nothing;
    perform from told_operators t
        where t.kind = _kind and t.address = _address and t.at <= clock_timestamp() - interval '1 minute' for update;
    if not found then
        return 0;
    end if;
    case _kind
    when 'dead_letter' then
        update dead_letter x set noticed = true where x.dead_letter_id = any (_keys::uuid[]) and not x.noticed;
    when 'stranger' then
        update contact c set noticed = true where c.contact_id = any (_keys::uuid[]) and not c.noticed;
    when 'approval' then
        update approval a set noticed = true where a.approval_id = any (_keys::uuid[]) and not a.noticed;
    when 'sign_in_ended', 'sign_in_ends' then
        update sign_in_end e set noticed = true where e.kind = _kind and e.key = any (_keys) and not e.noticed;
    else
        update connector c set noticed_at = clock_timestamp() where c.instance_id = any (_keys) and is_in_trouble(c);
    end case;
    get diagnostics _count = row_count;
    update told_operators t set at = clock_timestamp() where t.kind = _kind and t.address = _address and _count > 0;
    return _count;
end $$;
