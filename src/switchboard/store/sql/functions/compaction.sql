-- Whether anything that a compaction has read is another now: its entries, what may be learned from them, earlier summaries,
-- the beginning of the conversation.
create or replace function compaction_mark(_lane uuid, _first bigint, _last bigint) returns text
language sql stable as $$
    select md5(
        coalesce((select string_agg(concat_ws(' ', e.position, e.learn, e.compacted_at, md5(e.text)), ',' order by e.position)
                  from switchboard.entry e where e.lane = _lane and e.position between _first and _last), '')
        || coalesce((select string_agg(concat_ws(' ', s.position, s.restored_at, md5(s.text)), ',' order by s.position)
                     from switchboard.summary s where s.lane = _lane), '')
        || switchboard.begun_anew(_lane));
$$;

-- The position of the first entry of a lane for which no summary has ever stood. There may be none at the positions before it:
-- what a failed turn was asked is replaced when its message comes again. No summary will stand for what was said before the
-- conversation began anew.
create or replace function first_not_compacted(_lane uuid) returns bigint
language sql stable as $$
    select coalesce(
        (select e.position from switchboard.entry e
         where e.lane = _lane and e.position > f.until and e.request_id > f.since
         order by e.position limit 1),
        greatest(f.until, switchboard.last_position(_lane)) + 1)
    from (
        select greatest(
                   (select s.position from switchboard.summary s where s.lane = _lane order by s.position desc limit 1),
                   switchboard.erased_position(_lane)) as until,
               switchboard.begun_anew(_lane) as since
    ) f;
$$;

-- How many entries of a lane no summary has ever stood for.
create or replace function not_compacted(_lane uuid) returns bigint
language sql stable as $$
    select 1 + switchboard.last_position(_lane) - switchboard.first_not_compacted(_lane);
$$;

-- Let a summary and facts take the place of entries, unless anything that was read has changed meanwhile, or a fact was
-- forgotten: then the summary may say it, too, and the next try reads without it. _full: how many entries without a summary
-- are too many.
create or replace function commit_compaction(
    _lane uuid, _first bigint, _last bigint, _mark text, _summary_id uuid, _person text, _private boolean, _text text,
    _facts text, _full integer
) returns boolean
language plpgsql as $$
declare
    _since uuid;
begin
    perform from lane l where l.key = _lane for no key update;
    _since := begun_anew(_lane);  -- before the mark, which knows if another one is in force by then
    if compaction_mark(_lane, _first, _last) <> _mark then
        return false;
    end if;
    perform alone_with_facts();
    if unlearn_forgotten(_lane, _facts) > 0 then
        return false;
    end if;
    insert into summary (lane, position, summary_id, first_position, person, private, text, since)
        values (_lane, _last, _summary_id, _first, _person, _private, _text, _since);
    update entry e set compacted_at = clock_timestamp() where e.lane = _lane and e.position between _first and _last;
    perform save_facts(_lane, _facts);
    if not_compacted(_lane) < _full then
        delete from compaction c where c.lane = _lane;
    else
        update compaction c set tries = 0, ready_at = clock_timestamp() where c.lane = _lane;
    end if;
    return true;
end $$;

-- The summary that stands for what this reader may not see any more, the latest; the same wall as that of visible_entries.
create or replace function visible_summary(_lane uuid, _person text, _private boolean, _authentic boolean)
returns setof summary
language sql stable as $$
    select s.* from switchboard.summary s
    where s.lane = _lane and s.restored_at is null and s.text <> ''
      and _authentic
      and (not s.private or (_private and s.person = _person))
      and s.since = switchboard.begun_anew(_lane)
    order by s.position desc limit 1;
$$;

-- Give back the entries for which a summary and those after it stand, as far as they have not been erased, and but for what
-- is not to be learned from: that was forgotten. Returns how many.
create or replace function restore_entries(_summary_id uuid) returns integer
language plpgsql as $$
declare
    _restored integer;
    _from record;
begin
    select s.lane, s.first_position into _from from summary s where s.summary_id = _summary_id;
    perform from lane l where l.key = _from.lane for no key update;
    update entry e set compacted_at = null
        where e.lane = _from.lane and e.position >= _from.first_position and e.compacted_at is not null and e.learn;
    get diagnostics _restored = row_count;
    update summary s set restored_at = clock_timestamp()
        where s.lane = _from.lane and s.first_position >= _from.first_position and s.restored_at is null and _restored > 0;
    return _restored;
end $$;
