-- What operators are told of in the chats of the setting `notify`. noticed: they know of it, or it was before they could be told.
alter table dead_letter add column noticed boolean not null default true;
alter table dead_letter alter column noticed set default false;
create index dead_letter_unnoticed on dead_letter (dead_letter_id) where not noticed and status = 'pending';
alter table contact add column noticed boolean not null default true;
alter table contact alter column noticed set default false;
create index contact_unnoticed on contact (contact_id) where not noticed and state = 'stranger' and scope <> 'late';
alter table approval add column noticed boolean not null default true;
alter table approval alter column noticed set default false;
create index approval_unnoticed on approval (approval_id) where not noticed;
-- When they were last told of the trouble of an account.
alter table connector add column noticed_at timestamptz;
-- When the last notice of a kind went to an address of `notify`; an empty address is the log.
create table told_operators (
    kind text not null,
    address text not null,
    at timestamptz not null,
    primary key (kind, address)
);
