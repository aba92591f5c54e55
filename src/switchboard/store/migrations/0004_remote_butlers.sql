-- Remote butlers: what they say of themselves, and whether they are there.

alter table member
    add column since timestamptz not null default now(),
    add column promised boolean not null default false,
    add column last_seen_at timestamptz,
    add column announced jsonb not null default '{}',
    add column endpoint text,
    add column own_endpoint boolean not null default false,
    add column quarantined_by text,
    add column quarantine_reason text;
create index member_remote on member (system_id) where engine = 'mcp';

-- Since when somebody has been there, without a gap, to hear that butlers live: silence before that says nothing.
create table listening (
    one boolean primary key default true check (one),
    since timestamptz not null default clock_timestamp(),
    at timestamptz not null default clock_timestamp()
);
