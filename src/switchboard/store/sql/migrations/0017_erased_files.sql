-- What is to be removed from the disks of all workers, because persons were erased. pattern: below the directory `workspaces`, of
-- names and hashes that operators or we have chosen. Files that were written after ordered_at stay.
create table erased_files (
    pattern text primary key,
    ordered_at timestamptz not null unique
);

-- The disks that have such a directory, by an id that is kept on each. erased_until: what was ordered until then is done there.
create table workspace_disk (
    disk uuid primary key,
    host text not null,
    erased_until timestamptz not null default '-infinity',
    seen_at timestamptz not null default clock_timestamp(),
    problem text
);
