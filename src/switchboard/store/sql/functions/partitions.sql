-- Partitions by month (UTC) of every partitioned table, from the month of _from to that of _until, where they are missing.
-- Attached, not created in place: that locks a table against nobody who writes. Returns how many it made.
create or replace function make_partitions(_from timestamptz, _until timestamptz) returns integer
language plpgsql as $$
declare
    _made integer := 0;
    _one record;
begin
    perform pg_advisory_xact_lock(hashtextextended('switchboard.make_partitions', 0));
    for _one in
        select c.relname as parent, format('%s_%s', c.relname, to_char(m.month, 'YYYY_MM')) as name,
               month_start(m.month) as low, month_start(m.month + interval '1 month') as high
        from pg_class c
        cross join generate_series(date_trunc('month', _from at time zone 'UTC'), _until at time zone 'UTC', interval '1 month') as m (month)
        where c.relkind = 'p' and c.relnamespace = 'switchboard'::regnamespace
        order by c.relname, m.month
    loop
        if to_regclass('switchboard.' || _one.name) is null then
            execute format('create table switchboard.%I (like switchboard.%I including defaults including constraints including storage)',
                           _one.name, _one.parent);
            execute format('alter table switchboard.%I attach partition switchboard.%I for values from (%L) to (%L)',
                           _one.parent, _one.name, _one.low, _one.high);
            _made := _made + 1;
        end if;
    end loop;
    return _made;
end $$;

-- The least UUIDv7 of a time in UTC: its first 48 bits are milliseconds.
create or replace function month_start(_at timestamp) returns uuid
language sql immutable as $$
    select rpad(lpad(to_hex((extract(epoch from _at) * 1000)::bigint), 12, '0'), 32, '0')::uuid;
$$;
