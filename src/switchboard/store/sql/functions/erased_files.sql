-- Order that these files be removed from all disks. One after the other, so that whoever sees an order has seen all before it.
-- Returns the time of the last one.
create or replace function order_erased_files(_pattern text[]) returns timestamptz
language plpgsql as $$
declare
    _last timestamptz;
    _one text;
begin
    perform pg_advisory_xact_lock(hashtextextended('switchboard.erased_files', 0));
    select max(e.ordered_at) into _last from erased_files e;
    foreach _one in array _pattern loop
        _last := greatest(clock_timestamp(), _last + interval '1 microsecond');
        insert into erased_files as e (pattern, ordered_at) values (_one, _last)
            on conflict (pattern) do update set ordered_at = excluded.ordered_at;
    end loop;
    return _last;
end $$;
