-- Messages to attendees and organizers, of accounts whose invitations are mailed, and what attendees have answered.
--
-- Laws:
--   * A message is one by (uid, recurrence, sequence, method, recipient). A version of an event can be answered again,
--     so that answers are counted: `turn`.
--   * The messages of a step are noted with its writes, queued once all of these are carried out, and forgotten if what
--     was written is taken back. Whoever repeats the step queues what is not queued yet, under the same key.
--   * `arrived`: mails of other people's programs that were read; each is read once, from `arrivals.since` on.
--   * `answer`: the latest one of each attendee; an older one is not applied.

create table mail (
    account text not null,
    uid text not null,
    recurrence text not null,
    sequence integer not null,
    method text not null check (method in ('REQUEST', 'CANCEL', 'REPLY')),
    recipient text not null,
    turn integer not null,
    step uuid not null,
    place integer not null,
    sender text not null,
    subject text not null,
    words text not null,
    ics bytea not null,
    made_by text not null,
    queued boolean not null default false,
    made_at timestamptz not null default now(),
    primary key (account, uid, recurrence, sequence, method, recipient, turn)
);
create index mail_step on mail (account, step);
create index mail_made on mail (account, made_at);

create table arrived (
    account text not null,
    request_id uuid not null,
    read_at timestamptz not null default now(),
    primary key (account, request_id)
);

create table arrivals (
    account text primary key,
    since timestamptz not null
);

create table answer (
    account text not null,
    uid text not null,
    recurrence text not null,
    attendee text not null,
    answer text not null,
    sequence integer not null,
    made timestamptz not null,
    applied_at timestamptz not null default now(),
    primary key (account, uid, recurrence, attendee)
);
