-- Codes by which a person links another of their handles, at most one of each handle, known by a keyed hash. used_by: the
-- message that sent it from the other handle.
create table link_code (
    channel text not null,
    realm text not null,
    identity text not null,
    key uuid not null,
    tries smallint not null default 0,
    expires_at timestamptz not null,
    used_by uuid,
    primary key (channel, realm, identity),
    foreign key (channel, realm, identity) references person_handle on delete cascade
);
