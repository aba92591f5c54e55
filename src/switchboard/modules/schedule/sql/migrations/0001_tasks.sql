-- What is due at a time, and each time at which it was due.
--
-- Laws:
--   * A firing is one row (task, revision, due), committed before anything is said or done, and completed after. Who is
--     killed in between repeats the call under the same key, which finds the first.
--   * next_at is when the task is due next; of a task that recurs it has moved on in the transaction that made the
--     firing. A row of a task that is not active is never due.
--   * A firing whose `tell` is not empty has to be told to the task's person once; told_at says that it was.

create table task (
    account text not null,
    task_id uuid not null,
    system_id text not null,
    person text not null,
    place text not null,
    private boolean not null,
    kind text not null check (kind in ('say', 'do')),
    text text not null,
    own boolean not null,
    tainted boolean not null,
    zone text not null,
    wall timestamp,
    cron text not null default '',
    gate text not null default '',
    origin text not null,
    revision integer not null default 1,
    state text not null default 'active' check (state in ('active', 'paused', 'done', 'cancelled')),
    why text not null default '',
    next_at timestamptz,
    next_wall timestamp,
    next_fold integer not null default 0,
    rules text not null,
    failures integer not null default 0,
    made_at timestamptz not null default now(),
    changed_at timestamptz not null default now(),
    primary key (account, task_id),
    check (state <> 'active' or (next_at is not null and next_wall is not null))
);
create index task_due on task (account, next_at) where state = 'active';
create index task_of_butler on task (account, system_id, task_id);

create table firing (
    account text not null,
    task_id uuid not null,
    revision integer not null,
    due timestamptz not null,
    wall timestamp not null,
    zone text not null,
    state text not null check (state in ('due', 'gated', 'fired', 'said', 'skipped', 'missed', 'failed')),
    late_s integer not null default 0,
    passed integer not null default 0,
    request_id uuid,
    gate_exit integer,
    why text not null default '',
    tell text not null default '',
    told_at timestamptz,
    tries integer not null default 0,
    next_try timestamptz not null default now(),
    ended_at timestamptz,
    made_at timestamptz not null default now(),
    primary key (account, task_id, revision, due)
);
create index firing_open on firing (account, next_try)
    where state in ('due', 'gated') or (tell <> '' and told_at is null);
create index firing_ended on firing (account, ended_at);
