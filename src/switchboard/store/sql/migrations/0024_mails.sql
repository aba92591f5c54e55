-- Mails that butlers write, by the keys of who had them sent. Each is one reply in the outbox, whose message is the mail itself.
-- recipients: keyed hashes of their addresses. origin: where answers are told; null: nowhere, or its words were erased.
create table mail (
    key text primary key,
    request_id uuid not null,
    outbox_id uuid not null,
    channel text not null,
    endpoint text not null,
    system_id text not null,
    message_id text not null,
    recipients uuid[] not null,
    origin json,
    created_at timestamptz not null default clock_timestamp()
);
create unique index mail_request on mail (request_id);
create unique index mail_outbox on mail (outbox_id);
create unique index mail_message_id on mail (message_id);
create index mail_account on mail (channel, endpoint, created_at);

-- Other than of replies, people are told of every mail that is not sent.
alter table outbox drop constraint outbox_untold_check;
alter table outbox add constraint outbox_untold_check check (untold in ('uncertain', 'braked', 'blocked', 'undelivered', 'unsent'));
