-- Claim one lane for a program that waits for its answer; no row: it is not free, or it is not its time. A lane that waits for
-- another program is free when that one has left it alone for longer than a program that asks for a turn does.
create or replace function claim_lane(_owner bigint, _lane uuid)
returns table (key uuid, kind text, tier smallint, seq bigint, epoch bigint, attempts integer, flow bigint)
language sql as $$
    update lane l set state = 'running', owner = _owner, lease_until = null, epoch = l.epoch + 1, attempts = l.attempts + 1,
                      delayed = false
        where l.key = _lane and l.state = 'ready' and l.ready_at <= clock_timestamp()
          and exists (select from process w where w.process_id = _owner)
          and (l.pool <> 'program' or l.program = _owner or l.ready_at < clock_timestamp() - interval '5 s')
        returning l.key, l.kind, l.tier, l.next_seq, l.epoch, l.attempts, l.flow;
$$;
