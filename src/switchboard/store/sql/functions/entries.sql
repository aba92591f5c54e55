-- settle_turns, and what was said in these turns: both, or neither. A lane with 40 entries that no summary stands for is due to
-- be compacted; one whose tries are used up gets new ones. _entries: a JSON array of lane, n, role, person, private,
-- text, calls, created_at; n is the order within a lane.
create or replace function settle_turns_with_entries(_owner bigint, _given settlement[], _entries text)
returns table (lane uuid, ok boolean, next_seq bigint)
language plpgsql as $$
#variable_conflict use_column
declare
    _lane uuid[];
    _ok boolean[];
    _next bigint[];
begin
    select array_agg(s.lane), array_agg(s.ok), array_agg(s.next_seq) into _lane, _ok, _next
        from settle_turns(_owner, _given) s;
    -- settle_turns has locked the lanes, so that nobody else gives positions there
    insert into entry (lane, position, request_id, role, person, private, text, calls, created_at)
        select e.lane,
               coalesce((select x.position from entry x where x.lane = e.lane order by x.position desc limit 1), 0)
                   + row_number() over (partition by e.lane order by e.n),
               d.request_id, e.role, e.person, e.private, e.text, e.calls, e.created_at
        from json_to_recordset(_entries::json) as e (lane uuid, n integer, role text, person text, private boolean, text text,
                                                     calls json, created_at timestamptz)
        join unnest(_lane, _ok) as s (lane, ok) on s.lane = e.lane and s.ok
        join unnest(_given) i on i.lane = e.lane
        join delivery d on d.lane = i.lane and d.seq = i.seq;
    insert into compaction (lane)
        select e.lane from (select distinct x.lane from json_to_recordset(_entries::json) as x (lane uuid)) e
        join unnest(_lane, _ok) as s (lane, ok) on s.lane = e.lane and s.ok
        where not_compacted(e.lane) >= 40
        on conflict (lane) do update set tries = 0, ready_at = clock_timestamp() where compaction.tries >= 3;
    return query select s.lane, s.ok, s.next_seq from unnest(_lane, _ok, _next) as s (lane, ok, next_seq);
end $$;

-- The entries of a lane after a position that this reader may see: what was said in private is for the same person in
-- private, and who a message is from must be sure. A summary stands for those that are compacted.
create or replace function visible_entries(_lane uuid, _after bigint, _person text, _private boolean, _authentic boolean)
returns setof entry
language sql stable as $$
    select e.* from switchboard.entry e
    where e.lane = _lane and e.position > _after and e.compacted_at is null
      and _authentic
      and (not e.private or (_private and e.person = _person));
$$;
