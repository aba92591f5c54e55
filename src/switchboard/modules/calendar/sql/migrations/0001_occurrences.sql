-- What calendars are asked by: the events of each object, and when they take place within a window.
--
-- Laws:
--   * Both are written in the transaction that keeps the object, and go with it.
--   * Within `span`, all dates of what recurs are here. What does not recur is here whenever it is.
--   * Dates without a zone, and whole days, have no `starts`: they are where their walls are in the zone of whoever asks.
--   * `secret` events are told to the account's person alone, `invited` ones, which a stranger has sent and nobody has
--     accepted, without their text. The queries see to that, not those who call them.
--   * `owner` is whose account it is, `person:ann` or `group:family`, for whoever hands out or erases what is kept.

create table event (
    account text not null,
    collection text not null,
    name text not null,
    place integer not null,
    uid text not null,
    recurs boolean not null,
    title text not null,
    location text not null,
    notes text not null,
    organizer text not null,
    attendees text[] not null,
    answers text[] not null,
    status text not null,
    answer text not null,
    secret boolean not null,
    invited boolean not null,
    busy text not null check (busy in ('busy', 'tentative', 'free', 'day')),
    sought text not null,
    primary key (account, collection, name, place),
    foreign key (account, collection, name) references object on delete cascade
);

create table occurrence (
    account text not null,
    collection text not null,
    name text not null,
    place integer not null,
    recurrence text not null,
    starts timestamptz,
    ends timestamptz,
    wall_start timestamp not null,
    wall_end timestamp not null,
    all_day boolean not null,
    zone text not null,
    guessed boolean not null,
    primary key (account, collection, name, place, recurrence),
    foreign key (account, collection, name, place) references event on delete cascade
);
create index occurrence_at on occurrence (account, starts) where starts is not null;
create index occurrence_on on occurrence (account, wall_start) where starts is null;

create table span (
    account text primary key,
    owner text not null,
    since timestamptz not null,
    until timestamptz not null,
    rules text not null
);
