-- What the turns of these items need to know. A function, so that it is not planned for each call: that took ten times as long
-- as to execute it. See settle_turns for the settings.
create or replace function load_turns(_lane uuid[], _seq bigint[])
returns table (
    lane uuid, seq bigint, request_id uuid, conversation text, system_id text, team_id text, segment smallint, text text,
    envelope text, received_at timestamptz, dead_letter jsonb, resumed boolean, stopped boolean
)
language plpgsql stable set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
begin
    return query
        select d.lane, d.seq, d.request_id, c.name, d.system_id, d.team_id, d.segment, d.text, m.envelope::text, m.received_at,
               null::jsonb,
               exists (select from step s where s.request_id = d.request_id and s.lane = d.lane and s.seq = d.seq offset 0),
               d.state = 'cancelled' or exists (select from stopped s where s.lane = d.lane and s.seq = d.seq offset 0)
        from unnest(_lane, _seq) as i (lane, seq)
        join delivery d on d.lane = any (array[i.lane]) and d.seq = i.seq
        join message_inbox m on m.request_id = any (array[d.request_id])
        join conversation c on c.conversation = any (array[m.conversation]);
end $$;
