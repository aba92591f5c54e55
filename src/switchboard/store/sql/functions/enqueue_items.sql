-- Append items to lanes that the caller has locked; returns their seqs, those of one lane in the order given. An idle lane
-- becomes ready, and takes the share of the first one's flow (null: that of the last time). The most urgent tier of what
-- waits counts for all (null: that of the lane). _pool: where the lane waits from now on, unless null; _due_at: not before then, unless null. What lies in a mailbox is read over the API: it has ended as soon
-- as it is there.
create or replace function enqueue_items(
    _lane uuid[], _flow bigint[], _tier smallint[] default null, _pool text[] default null, _due_at timestamptz[] default null
) returns bigint[]
language plpgsql as $$
declare
    _seq bigint[];
begin
    with moved as (
        update lane l set
            last_seq = l.last_seq + g.items,
            done_seq = case when l.kind = 'mailbox' then l.last_seq + g.items else l.done_seq end,
            pool = coalesce(g.pool, l.pool),
            tier = case when l.state = 'idle' then coalesce(g.tier, l.tier) else least(l.tier, g.tier) end,
            ready_at = case when l.state = 'idle' then clock_timestamp() else l.ready_at end,
            delayed = case when l.state = 'idle' then is_kept(l.kept_until) else l.delayed end,
            flow = case when l.state = 'idle' then coalesce(g.flow, l.flow) else l.flow end,
            state = case when l.state = 'idle' and l.kind <> 'mailbox' then 'ready' else l.state end
            from (
                select i.lane, count(*) as items, array_agg(i.ord order by i.ord) as ords,
                       (array_agg(i.flow order by i.ord))[1] as flow, min(i.tier) as tier, max(i.pool) as pool
                from unnest(_lane, _flow, _tier, _pool) with ordinality as i (lane, flow, tier, pool, ord)
                group by i.lane
            ) g
            where l.key = any (array[g.lane])
            returning g.ords, l.last_seq - g.items as before
    )
    select array_agg(m.before + i.nth order by i.ord) into _seq
        from moved m cross join unnest(m.ords) with ordinality as i (ord, nth);
    if _due_at is not null then
        perform defer_item(i.lane, i.seq, i.due_at) from unnest(_lane, _seq, _due_at) as i (lane, seq, due_at)
            where i.due_at is not null;
    end if;
    return _seq;
end $$;
