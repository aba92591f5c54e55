-- What messages pass through, called without any: a connection that was just opened plans its statements here, for which the
-- first messages would wait. What only a message reaches is still planned then. The plan of start_lanes is kept for its
-- callers, so it is made with their settings: see settle_turns.
create or replace function plan_ahead() returns void
language plpgsql set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
begin
    perform accept_messages(
        '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}',
        _asks => null, _size => '{}', _at => '{}', _raw => '',
        d_ord => '{}', d_lane => '{}', d_system => '{}', d_team => '{}',
        x_ord => '{}', x_id => '{}', x_team => '{}', x_category => '{}', x_reason => '{}', x_handler => '{}'
    );
    perform claim_in_turn(null, null, '{}', '{}', '{}', '{}', '{}', '{}', '{}');
    perform start_lanes(null, null, '{}');
    perform load_turns('{}', '{}');
    perform write_steps(0, '{}');
    perform settle_turns(0, '{}');
end $$;
