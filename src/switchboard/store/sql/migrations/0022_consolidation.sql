-- Who says the same again may mean another time. run: the consolidation that found this source, null: none.
alter table fact_source
    add column valid_from timestamptz,
    add column valid_to timestamptz,
    add column run uuid;
create index fact_source_run on fact_source (run) where run is not null;

-- Up to which entry facts were looked for in each conversation of a butler, and when. tries: since then; not before ready_at.
create table consolidation (
    lane uuid primary key,
    position bigint not null default 0,
    at timestamptz not null default clock_timestamp(),
    tries smallint not null default 0,
    ready_at timestamptz not null default clock_timestamp()
);

-- What was said before this release is not looked through anew, which would cost tokens: compaction has done or will do it.
insert into consolidation (lane, position) select e.lane, max(e.position) from entry e group by e.lane;

-- What a model was asked for the facts of one space: of a person in private, else person is empty. tokens: an estimate until it
-- has answered; outcome: null until then. facts: how many were new. The facts and sources that it found have its id.
create table consolidation_run (
    run uuid primary key,
    lane uuid not null,
    system_id text not null,
    person text not null,
    first_position bigint not null,
    last_position bigint not null,
    episodes integer not null,
    model text not null default '',
    tokens integer not null,
    cost_usd double precision,
    outcome text check (outcome in ('kept', 'rejected', 'failed', 'stale')),
    reason text not null default '',
    facts integer not null default 0,
    started_at timestamptz not null default clock_timestamp(),
    ended_at timestamptz,
    undone_at timestamptz
);
create index consolidation_run_spent on consolidation_run (system_id, started_at);
