-- What modules do from time to time: one row for each account. epoch: counts those who have taken or given back the chore; whoever
-- knows an older one changes nothing any more. failures: in a row.
create table chore (
    module text not null,
    account text not null,
    name text not null,
    every interval not null,
    next_at timestamptz not null default clock_timestamp(),
    owner text,
    lease_until timestamptz,
    epoch bigint not null default 0,
    failures integer not null default 0,
    last_at timestamptz,
    last_error text,
    primary key (module, account, name)
);
