-- What tools have written into calendars, and who may be writing now.
--
-- Laws:
--   * All writes of a step are noted before the first of them is sent. Whoever repeats the step sends the same bytes.
--   * `before` and `after` are the bytes of the object; none: it was, or is, not there. They are kept for 30 days.
--   * One step at a time looks whether a time is free and writes, of one account. Whoever is killed has its lease until
--     it ends; the same step takes it again at once.

create table write (
    account text not null,
    write_id uuid not null,
    step uuid not null,
    place integer not null,
    collection text not null,
    url text not null,
    name text not null,
    before bytea,
    etag text not null,
    after bytea,
    now_etag text not null default '',
    state text not null default 'started' check (state in ('started', 'done', 'failed', 'undone')),
    said text not null,
    made_by text not null,
    made_at timestamptz not null default now(),
    primary key (account, write_id)
);
create index write_step on write (account, step);
create index write_made on write (account, made_at);

create table lease (
    account text primary key,
    holder uuid not null,
    until timestamptz not null
);
