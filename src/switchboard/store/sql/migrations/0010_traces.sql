-- Messages whose traces are being sent; only while the setting `traces.url` is there. exported: the spans that the collector
-- has; done: all of them, and the row stays only until newer messages cannot come any more with ids before it.
create table trace_message (
    request_id uuid primary key,
    exported bigint[] not null default '{}',
    done boolean not null default false,
    look_at timestamptz not null default clock_timestamp()
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
create index trace_message_look on trace_message (look_at) where not done;

-- How far that is. upto: all messages with ids up to it were taken. failing_since and why: the collector does not take spans.
create table trace_export (
    one boolean primary key default true check (one),
    upto uuid not null,
    spans bigint not null default 0,
    exported_at timestamptz,
    failing_since timestamptz,
    why text not null default ''
);
