-- Modules that no worker opens or calls until an operator releases them.
create table module_quarantine (
    module text primary key,
    why text not null,
    since timestamptz not null default clock_timestamp()
);

-- What modules have done to workers: held their event loop, or been in use when one died. Kept for a day.
create table module_harm (
    module text not null,
    kind text not null check (kind in ('hold', 'death')),
    at timestamptz not null default clock_timestamp()
);
create index module_harm_of on module_harm (module, at);

-- Modules that are being called, each with the instance that calls them: one whose beat has stopped has died.
create table module_use (
    module text not null,
    instance uuid not null,
    beat timestamptz not null default clock_timestamp(),
    primary key (module, instance)
);

-- Why a module could not be opened on a host, as it was last tried there.
create table module_failure (
    module text not null,
    host text not null,
    why text not null,
    at timestamptz not null default clock_timestamp(),
    primary key (module, host)
);
