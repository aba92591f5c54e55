-- A fact is a statement: what is said of its subject, and for which time. What became of it is not stored: it is settled by what
-- else was said whenever it is read, see core/memory/settling.py.

-- value: what is said, empty: all of the text; denied: that it is not so. said_by: what the author is to the subject. rivals: a hash
-- of what the statements have in common that may replace or contradict each other. special: no group is shown it. said_at: the time of the message that first
-- said so. run: the consolidation that found it, null: none. undone_at: since when it counts as never said.
alter table fact
    add column predicate text not null default 'other',
    add column value text not null default '',
    add column denied boolean not null default false,
    add column said_by text not null default 'other' check (said_by in ('subject', 'guardian', 'owner', 'other')),
    add column valid_from timestamptz,
    add column valid_to timestamptz,
    add column importance real not null default 0.5 check (importance between 0 and 1),
    add column permanence text not null default 'stable' check (permanence in ('permanent', 'stable', 'passing')),
    add column rivals uuid,
    add column special boolean not null default false,
    add column said_at timestamptz,
    add column run uuid,
    add column undone_at timestamptz;

-- When each source said so: whoever says the same again confirms it, also when the entry has been erased.
alter table fact_source add column said_at timestamptz;

select set_config('switchboard.facts', 'open', true);
update fact_source s set said_at = coalesce(
    (select e.created_at from entry e where e.lane = s.lane and e.position = s.position),
    (select f.created_at from fact f where f.fact_id = s.fact_id),
    clock_timestamp());
update fact f set said_at = coalesce((select min(s.said_at) from fact_source s where s.fact_id = f.fact_id), f.created_at);
select set_config('switchboard.facts', '', true);

alter table fact alter column said_at set not null;
alter table fact_source alter column said_at set not null;
create index fact_rivals on fact (system_id, rivals) where rivals is not null;
create index fact_run on fact (run) where run is not null;
create index fact_source_entry on fact_source (lane, position);
