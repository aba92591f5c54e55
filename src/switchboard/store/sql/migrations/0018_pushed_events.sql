-- What a platform calls an event that it pushes over a socket (SHA-256): one that is pushed again waits only once.
alter table posted_event add column mark bytea;
create unique index posted_event_mark on posted_event (channel, endpoint, mark) where mark is not null;

-- A platform has reported that it did not deliver a message that it had taken. outbox_id: the reply that has failed by it; null: none
-- has sent that message, or not yet: the report may come before our receipt. reason: empty once it is with the reply. late_failure_id: a hash of account, message and at.
create table late_failure (
    late_failure_id uuid primary key,
    channel text not null,
    endpoint text not null,
    platform_message_id text not null,
    reason text not null,
    because text check (because in ('blocked')),
    at timestamptz not null,
    outbox_id uuid,
    received_at timestamptz not null default clock_timestamp()
);
-- A hash, because an id may be longer than an entry of an index.
create index late_failure_open on late_failure (hashtextextended(platform_message_id, 0)) where outbox_id is null;
create index late_failure_age on late_failure (received_at);
create index outbox_part_message on outbox_part (hashtextextended(platform_message_id, 0)) where platform_message_id is not null;
create index outbox_message on outbox (hashtextextended(platform_message_id, 0)) where platform_message_id is not null;

alter table outbox drop constraint outbox_untold_check;
alter table outbox add constraint outbox_untold_check check (untold in ('uncertain', 'braked', 'blocked', 'undelivered'));
