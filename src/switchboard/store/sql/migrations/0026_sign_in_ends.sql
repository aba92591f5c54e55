-- Sign-ins by OAuth 2 that have ended (kind sign_in_ended) or will within a day (sign_in_ends), so that operators are told of each
-- once. key: the token file, and when somebody consented; account: of the connector that signs in by it.
create table sign_in_end (
    kind text not null,
    key text not null,
    detail text not null,
    account text,
    noticed boolean not null default false,
    primary key (kind, key)
);
create index sign_in_end_unnoticed on sign_in_end (key) where not noticed;
